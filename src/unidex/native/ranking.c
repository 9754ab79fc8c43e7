/* Comparisons among the candidates of a text (unidex.scoring.ranking_features), and sums of decision trees
   (unidex.scoring.tree_scores). */
#include <math.h>

#include "kernels.h"

/* The distance to the highest value of the text, and the number of candidates with a higher one. */
WIDE void compare_places(const float *values, const uint8_t *is_there, int64_t features, int64_t rows, int64_t width,
                         float *gaps, float *higher) {
    for (int64_t row = 0; row < features * rows; row++) {
        const float *own = values + row * width;
        const uint8_t *there = is_there + row % rows * width;
        float highest = -INFINITY;
        for (int64_t at = 0; at < width; at++)
            if (there[at] && own[at] > highest) highest = own[at];
        float top = isfinite(highest) ? highest : 0;
        for (int64_t at = 0; at < width; at++) {
            float value = there[at] ? own[at] : -INFINITY;
            int32_t number = 0;
            for (int64_t other = 0; other < width; other++) number += there[other] & (own[other] > value);
            gaps[row * width + at] = top - value;
            higher[row * width + at] = (float)number;
        }
    }
}

/* The number of thresholds that a value is above; of what is no number, all. */
static int64_t place_of(const float *thresholds, int64_t count, float value) {
    int64_t low = 0;
    while (count > 0) {
        int64_t half = count / 2;
        if (value <= thresholds[low + half]) count = half;
        else {
            low += half + 1;
            count -= half + 1;
        }
    }
    return low;
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

static int lowest_bit(uint32_t set) {
#if defined(__GNUC__)
    return set ? __builtin_ctz(set) : 0;
#else
    int bit = 0;
    while (bit < 31 && !(set >> bit & 1)) bit++;
    return bit;
#endif
}

WIDE static void rule_out(uint32_t *possible, const uint32_t *leaves, int64_t trees) {
    for (int64_t tree = 0; tree < trees; tree++) possible[tree] &= leaves[tree];
}

/* The sum of the trees for each pair; columns are those of all pairs, feature after feature. 0 without memory. */
int score_trees(Trees trees, const float *columns, int64_t pairs, double *scores) {
    uint32_t *possible = malloc((size_t)trees.trees * sizeof *possible);
    double *values = malloc((size_t)trees.trees * sizeof *values);
    if (!possible || !values) {
        free(possible);
        free(values);
        return 0;
    }
    for (int64_t pair = 0; pair < pairs; pair++) {
        memset(possible, 0xFF, (size_t)trees.trees * sizeof *possible);
        for (int64_t feature = 0; feature < trees.num_features; feature++) {
            int64_t first = feature ? trees.ends[feature - 1] : 0;
            float value = columns[trees.features[feature] * pairs + pair];
            int64_t place = place_of(trees.thresholds + first, trees.ends[feature] - first, value);
            /* A feature has one row of sets more than thresholds. */
            rule_out(possible, trees.leaves + (first + feature + place) * trees.trees, trees.trees);
        }
        for (int64_t tree = 0; tree < trees.trees; tree++) {
            values[tree] = trees.values[trees.firsts[tree] + lowest_bit(possible[tree])];
        }
        scores[pair] = sum_numbers(values, trees.trees);
    }
    free(possible);
    free(values);
    return 1;
}
