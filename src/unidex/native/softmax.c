/* The passes of a softmax in both directions over a matrix of scores (unidex.losses.exponentials). */
#include "kernels.h"

#include <math.h>

typedef int32_t Whole __attribute__((vector_size(8 * sizeof(int32_t))));

/* The highest number of each row and of each column. */
WIDEST void highest(const float *scores, int64_t rows, int64_t columns, int64_t stride, float *of_rows, float *of_columns) {
    enum { LANES = 8 };
    for (int64_t column = 0; column < columns; column++) of_columns[column] = -INFINITY;
    for (int64_t row = 0; row < rows; row++, scores += stride) {
        for (int64_t column = 0; column < columns; column++)
            of_columns[column] = scores[column] > of_columns[column] ? scores[column] : of_columns[column];
        Floats lanes[2];
        for (int lane = 0; lane < LANES; lane++) lanes[0][lane] = lanes[1][lane] = -INFINITY;
        int64_t column = 0;
        for (; column + 2 * LANES <= columns; column += 2 * LANES)
            for (int part = 0; part < 2; part++) {
                Floats found;
                memcpy(&found, scores + column + part * LANES, sizeof found);
                Whole is_more = found > lanes[part];
                lanes[part] = (Floats)(((Whole)found & is_more) | ((Whole)lanes[part] & ~is_more));
            }
        float most = -INFINITY;
        for (; column < columns; column++) most = scores[column] > most ? scores[column] : most;
        for (int lane = 0; lane < 2 * LANES; lane++) {
            float found = lanes[lane / LANES][lane % LANES];
            most = found > most ? found : most;
        }
        of_rows[row] = most;
    }
}

/* exp(x) for x from the logarithm of the smallest normal number to 0: 2^n exp(r) with |r| <= log(2) / 2, by the polynomial
   of Cephes (Moshier), of which the kept bits stay. NaN stays NaN. */
static inline float exponential(float x, uint32_t kept) {
    /* Behind this number, floats have a distance of 1: the sum is rounded to n, which its last bits are. */
    float shifted = x * 1.44269504f + 12582912.0f, n = shifted - 12582912.0f;
    float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = (p * (r * r) + r) + 1.0f;
    uint32_t power, bits;
    memcpy(&power, &shifted, sizeof power);
    memcpy(&bits, &p, sizeof bits);
    bits = (bits + (power << 23)) & kept;
    memcpy(&p, &bits, sizeof p);
    return p;
}

/* exp(score - top) in place, at least exp(lowest), and 0 where a score is -inf; the sum of each row, weighted by factors
   unless they are NULL, by halves of a power of two; and the sums of columns over each block of rows. There is room for
   that power of two of numbers. */
WIDEST void exponentials(float *scores, int64_t rows, int64_t columns, int64_t stride, float top, float lowest,
                       const float *factors, int64_t at_once, float *of_rows, float *of_blocks, float *room) {
    int64_t half = 1;
    while (half * 2 < columns) half *= 2;
    int64_t behind = columns > half ? columns - half : 0, within = columns < half ? columns : half;
    for (int64_t row = 0; row < rows; row++, scores += stride) {
        float *block = of_blocks + row / at_once * columns;
        if (row % at_once == 0) memset(block, 0, (size_t)columns * sizeof *block);
        for (int64_t column = 0; column < columns; column++) {
            float x = scores[column] - top;
            /* All bits or none: a branch would keep the loop from being several numbers wide. */
            uint32_t kept = 0u - (uint32_t)(scores[column] != -INFINITY);
            scores[column] = exponential(x < lowest ? lowest : x, kept);
        }
        for (int64_t column = 0; column < columns; column++) block[column] += scores[column];
        if (factors) {
            for (int64_t at = 0; at < within; at++) room[at] = scores[at] * factors[at];
            for (int64_t at = 0; at < behind; at++) room[at] += scores[half + at] * factors[half + at];
        } else {
            for (int64_t at = 0; at < within; at++) room[at] = scores[at];
            for (int64_t at = 0; at < behind; at++) room[at] += scores[half + at];
        }
        for (int64_t left = half / 2; left; left /= 2)
            for (int64_t at = 0; at < left; at++) room[at] += room[at + left];
        of_rows[row] = columns ? room[0] : 0;
    }
}

/* Multiply each number by what its row pushes, times the factor of its column unless these are NULL, plus what its column
   pushes. */
WIDEST void multiply_pushes(float *scores, int64_t rows, int64_t columns, int64_t stride, const float *of_rows,
                          const float *factors, const float *of_columns) {
    for (int64_t row = 0; row < rows; row++, scores += stride) {
        float push = of_rows[row];
        if (factors)
            for (int64_t column = 0; column < columns; column++)
                scores[column] *= push * factors[column] + of_columns[column];
        else
            for (int64_t column = 0; column < columns; column++) scores[column] *= push + of_columns[column];
    }
}
