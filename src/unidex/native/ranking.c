/* Comparisons among the candidates of a text (unidex.scoring.ranking_features), and sums of decision trees
   (unidex.scoring.tree_scores). */
#include <math.h>

#include "kernels.h"

/* The distance to the highest value of the text, and the number of candidates with a higher one, if asked for. Room is for
   as many numbers. */
WIDE static void compare(const float *restrict values, const uint8_t *restrict is_there, int64_t width,
                         float *restrict room, float *restrict gaps, float *restrict higher) {
    float highest = -INFINITY;
    for (int64_t at = 0; at < width; at++) room[at] = is_there[at] ? values[at] : -INFINITY;
    for (int64_t at = 0; at < width; at++) highest = room[at] > highest ? room[at] : highest;
    float top = isfinite(highest) ? highest : 0;
    for (int64_t at = 0; at < width; at++) gaps[at] = top - room[at];
    for (int64_t at = 0; higher && at < width; at++) {
        float value = room[at];
        int32_t number = 0;
        for (int64_t other = 0; other < width; other++) number += room[other] > value;
        higher[at] = (float)number;
    }
}

/* Six digits behind the point, as NumPy rounds. */
static float rounded(double value) { return (float)(rint(value * 1e6) / 1e6); }

/* Labels are far apart: what is read of all candidates of a text is on its way before the first is described. */
static void fetch_labels(const Pairs *pairs, const int64_t *ids) {
    Csr rows = pairs->label_words.rows;
    for (int64_t at = 0; at < pairs->width; at++) {
        if (ids[at] < 0 || ids[at] >= pairs->labels) continue;
        PREFETCH(rows.starts + ids[at]);
        PREFETCH(pairs->frequencies + ids[at]);
        PREFETCH(pairs->label_words.words + ids[at]);
        PREFETCH(pairs->label_words.norms + ids[at]);
    }
    for (int64_t at = 0; at < pairs->width; at++) {
        if (ids[at] < 0 || ids[at] >= pairs->labels) continue;
        int64_t first = rows.starts[ids[at]], end = rows.starts[ids[at] + 1];
        for (int64_t entry = first; entry < end; entry += 16) {
            PREFETCH(rows.columns + entry);
            PREFETCH(rows.values + entry);
        }
    }
}

/* The features of the learned ranker, one column of all pairs after the other: of each head, of the kNN scores and of
   the weighted sum the value, its gap and its place; of words, n-grams and coverage the value and its gap; the best sum,
   the nearest text, the frequency, the lengths of label and text. 1, or 0 for a wrong number, -2 without memory. */
int describe_pairs(Pairs pairs, TextWords *words, float *columns) {
    int64_t width = pairs.width, size = pairs.texts * width, heads = pairs.num_heads;
    int64_t knn = 3 * heads, sums = knn + 3, lexical = sums + 3, others = lexical + 6;
    float *room = malloc((size_t)(width + 1) * (sizeof *room + 1));
    uint8_t *is_there = (uint8_t *)(room + width + 1);
    if (!room) return -2;
    for (int64_t text = 0; text < pairs.texts; text++) {
        float *column = columns + text * width; /* the text in the first column */
        if (!read_text(words, text)) goto wrong;
        float length = (float)(pairs.words.starts[text + 1] - pairs.words.starts[text]);
        fetch_labels(&pairs, pairs.ids + text * width);
        for (int64_t at = 0; at < width; at++) {
            int64_t label = pairs.ids[text * width + at];
            is_there[at] = label >= 0;
            label = label < 0 ? 0 : label;
            if (label >= pairs.labels) goto wrong;
            float sum = 0, score = value_at(pairs.knn, text, label);
            for (int64_t head = 0; head < heads; head++) {
                float value = pairs.heads[head * size + text * width + at], term = pairs.weights[head] * value;
                column[3 * head * size + at] = value;
                sum = head ? sum + term : term;
            }
            if (pairs.weights[heads] != 0) sum += pairs.weights[heads] * score;
            if (pairs.weights[heads + 1] != 0) sum += pairs.weights[heads + 1] * pairs.priors[label];
            column[knn * size + at] = score;
            column[sums * size + at] = sum;
            double shared[3];
            if (!share_words(words, pairs.label_words, label, shared)) goto wrong;
            for (int part = 0; part < 3; part++) column[(lexical + 2 * part) * size + at] = rounded(shared[part]);
            Csr rows = pairs.label_words.rows;
            column[(others + 1) * size + at] = pairs.nearest[text];
            column[(others + 2) * size + at] = (float)pairs.frequencies[label];
            column[(others + 3) * size + at] = (float)(rows.starts[label + 1] - rows.starts[label]);
            column[(others + 4) * size + at] = length;
        }
        for (int64_t first = 0; first < lexical; first += 3) {
            float *own = column + first * size;
            compare(own, is_there, width, room, own + size, own + 2 * size);
        }
        for (int64_t first = lexical; first < others; first += 2)
            compare(column + first * size, is_there, width, room, column + (first + 1) * size, NULL);
        for (int64_t at = 0; at < width; at++)
            column[others * size + at] = column[sums * size + at] + column[(sums + 1) * size + at];
    }
    free(room);
    return 1;
wrong:
    free(room);
    return 0;
}

/* The gaps and the places of a column, into the two columns behind it; 0 without memory. */
int compare_candidates(const int64_t *ids, int64_t texts, int64_t width, float *column) {
    int64_t size = texts * width;
    float *room = malloc((size_t)(width + 1) * (sizeof *room + 1));
    uint8_t *is_there = (uint8_t *)(room + width + 1);
    if (!room) return 0;
    for (int64_t text = 0; text < texts; text++, ids += width, column += width) {
        for (int64_t at = 0; at < width; at++) is_there[at] = ids[at] >= 0;
        compare(column, is_there, width, room, column + size, column + 2 * size);
    }
    free(room);
    return 1;
}

/* As NumPy sums an axis: eight sums side by side up to 128 numbers, halves of more. */
static double sum_numbers(const double *numbers, int64_t count) {
    if (count < 8) {
        double sum = -0.0;
        for (int64_t at = 0; at < count; at++) sum += numbers[at];
        return sum;
    }
    if (count > 128) {
        int64_t half = count / 2 - count / 2 % 8;
        return sum_numbers(numbers, half) + sum_numbers(numbers + half, count - half);
    }
    double sums[8];
    int64_t at = 8;
    for (int place = 0; place < 8; place++) sums[place] = numbers[place];
    for (; at < count - count % 8; at += 8)
        for (int place = 0; place < 8; place++) sums[place] += numbers[at + place];
    double sum = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
    for (; at < count; at++) sum += numbers[at];
    return sum;
}

static inline int lowest_bit(uint32_t set) {
#if defined(__GNUC__)
    return set ? __builtin_ctz(set) : 0;
#else
    int bit = 0;
    while (bit < 15 && !(set >> bit & 1)) bit++;
    return bit;
#endif
}

enum { LANES = 16, WIDTH = 8 };
typedef uint32_t Sets __attribute__((vector_size(WIDTH * sizeof(uint32_t))));

/* Rule out, for a few pairs side by side, the leaves that a feature rules out. What is no number is above all. */
WIDE static void rule_out(Trees trees, int64_t first, int64_t end, const float *values, Sets (*possible)[LANES / WIDTH]) {
    float highest = -INFINITY;
    Floats own[LANES / WIDTH];
    memcpy(own, values, sizeof own);
    for (int lane = 0; lane < LANES; lane++) {
        float value = values[lane] == values[lane] ? values[lane] : INFINITY;
        highest = value > highest ? value : highest;
    }
    for (int64_t node = first; node < end && highest > trees.thresholds[node]; node++) {
        Sets *sets = possible[trees.owners[node]];
        for (int part = 0; part < LANES / WIDTH; part++)
            sets[part] &= trees.leaves[node] | (Sets)(own[part] <= trees.thresholds[node]);
    }
}

/* The sum of the trees for each pair; columns are those of all pairs, feature after feature. 0 without memory. */
int score_trees(Trees trees, const float *columns, int64_t pairs, double *scores) {
    Sets(*possible)[LANES / WIDTH] = aligned_alloc(sizeof **possible, (size_t)(trees.trees + 1) * sizeof *possible);
    double *found = malloc((size_t)trees.trees * sizeof *found);
    int is_done = possible && found;
    for (int64_t first = 0; is_done && first < pairs; first += LANES) {
        int64_t number = pairs - first < LANES ? pairs - first : LANES;
        float values[LANES] = {0};
        memset(possible, 0xFF, (size_t)trees.trees * sizeof *possible);
        for (int64_t feature = 0; feature < trees.num_features; feature++) {
            memcpy(values, columns + trees.features[feature] * pairs + first, (size_t)number * sizeof *values);
            rule_out(trees, feature ? trees.ends[feature - 1] : 0, trees.ends[feature], values, possible);
        }
        for (int64_t lane = 0; lane < number; lane++) {
            for (int64_t tree = 0; tree < trees.trees; tree++)
                found[tree] = trees.values[trees.firsts[tree] + lowest_bit(((uint32_t *)possible[tree])[lane] & 0xFFFF)];
            scores[first + lane] = sum_numbers(found, trees.trees);
        }
    }
    free(possible);
    free(found);
    return is_done;
}
