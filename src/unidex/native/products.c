/* Inner products of vectors (unidex.index.base), summed as NumPy sums an axis. */
#include <math.h>

#include "kernels.h"

enum { LANES = 8, AT_ONCE = 128, AHEAD = 8, LINE = 16 };

/* Eight sums side by side up to 128 numbers, halves of more. */
static inline float sum_products(const float *one, const float *other, int64_t count) {
    if (count > AT_ONCE) {
        int64_t half = count / 2 - count / 2 % LANES;
        return sum_products(one, other, half) + sum_products(one + half, other + half, count - half);
    }
    int64_t at = LANES, whole = count - count % LANES;
    float sum = -0.0f;
    if (whole) {
        Floats left, right, sums;
        memcpy(&left, one, sizeof left);
        memcpy(&right, other, sizeof right);
        sums = left * right;
        for (; at < whole; at += LANES) {
            memcpy(&left, one + at, sizeof left);
            memcpy(&right, other + at, sizeof right);
            sums += left * right;
        }
        sum = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
    }
    for (at = whole; at < count; at++) sum += one[at] * other[at];
    return sum;
}

/* The inner product of each text with some columns of its rows, -inf for an id below 0; 0 for a row that is not there. */
WIDE int inner_products(const float *queries, int64_t texts, int64_t columns, const float *rows, int64_t num_rows,
                        int64_t dim, int64_t first, const int64_t *ids, int64_t width, float *found) {
    int64_t size = texts * width;
    for (int64_t at = 0; at < size; at++) {
        if (ids[at] >= num_rows) return 0;
        int64_t later = at + AHEAD < size ? ids[at + AHEAD] : -1;
        if (later >= 0)
            for (int64_t place = 0; place < columns; place += LINE) PREFETCH(rows + later * dim + first + place);
        const float *query = queries + at / width * columns;
        found[at] = ids[at] < 0 ? -INFINITY : sum_products(query, rows + ids[at] * dim + first, columns);
    }
    return 1;
}

/* Rows divided by their lengths, and the lengths unless these are NULL. */
WIDE void unit_rows(const float *rows, int64_t count, int64_t dim, float shortest, float *lengths, float *found) {
    for (int64_t row = 0; row < count; row++, rows += dim, found += dim) {
        float length = sqrtf(sum_products(rows, rows, dim));
        length = length > shortest || isnan(length) ? length : shortest;
        if (lengths) lengths[row] = length;
        for (int64_t at = 0; at < dim; at++) found[at] = rows[at] / length;
    }
}

/* The gradient of rows from that of the rows divided by their lengths. */
WIDE void unit_gradient(const float *gradient, const float *unit, const float *lengths, int64_t count, int64_t dim,
                        float *found) {
    for (int64_t row = 0; row < count; row++, gradient += dim, unit += dim, found += dim) {
        float along = sum_products(gradient, unit, dim);
        for (int64_t at = 0; at < dim; at++) found[at] = (gradient[at] - unit[at] * along) / lengths[row];
    }
}
