/* The best places of texts (unidex.topk): by score, ties by the lower id. */
#include <math.h>

#include "kernels.h"


/* A place as one number, lower for better ones. */
static int64_t key_of(float score, int64_t id) {
    score += 0.0f; /* makes -0 equal to 0 */
    int32_t bits;
    memcpy(&bits, &score, sizeof bits);
    bits = ~(bits ^ ((bits >> 31) & 0x7FFFFFFF));
    return (int64_t)((uint64_t)(int64_t)bits << 32) | id;
}

static float score_of(int64_t key) {
    int32_t bits = ~(int32_t)(key >> 32);
    bits ^= (bits >> 31) & 0x7FFFFFFF;
    float score;
    memcpy(&score, &bits, sizeof score);
    return score;
}

/* Put a place among the best k so far, which ascend. */
static void keep(int64_t *best, int64_t k, int64_t *number, int64_t key) {
    int64_t place;
    if (*number < k) place = (*number)++;
    else if (k && key < best[k - 1]) place = k - 1;
    else return;
    for (; place > 0 && best[place - 1] > key; place--) best[place] = best[place - 1];
    best[place] = key;
}

static void write_places(int64_t *best, int64_t k, int64_t number, float *scores) {
    for (int64_t place = 0; place < k; place++) {
        int is_empty = place >= number;
        scores[place] = is_empty ? -INFINITY : score_of(best[place]);
        best[place] = is_empty ? -1 : best[place] & 0xFFFFFFFF;
    }
}

/* The first k places of each row; 0 where a score is not a number or an id has no room in 31 bits. */
int rank_places(const int64_t *ids, const float *scores, int64_t rows, int64_t width, int64_t k, int64_t *best_ids,
                float *best_scores) {
    for (int64_t row = 0; row < rows; row++) {
        int64_t number = 0, *best = best_ids + row * k;
        for (int64_t at = row * width; at < (row + 1) * width; at++) {
            if (isnan(scores[at]) || ids[at] > INT32_MAX) return 0;
            if (ids[at] >= 0 && scores[at] != -INFINITY) keep(best, k, &number, key_of(scores[at], ids[at]));
        }
        write_places(best, k, number, best_scores + row * k);
    }
    return 1;
}

/* The first k entries of each row of a matrix; 0 for a wrong matrix, and where a value is not a number. */
int best_entries(Csr matrix, int64_t k, int64_t *best_ids, float *best_scores) {
    if (!is_whole(matrix)) return 0;
    for (int64_t row = 0; row < matrix.rows; row++) {
        int64_t number = 0, *best = best_ids + row * k;
        for (int32_t at = matrix.starts[row]; at < matrix.starts[row + 1]; at++) {
            if (isnan(matrix.values[at]) || matrix.columns[at] < 0) return 0;
            if (matrix.values[at] != -INFINITY) keep(best, k, &number, key_of(matrix.values[at], matrix.columns[at]));
        }
        write_places(best, k, number, best_scores + row * k);
    }
    return 1;
}
