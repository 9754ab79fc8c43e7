/* Weighted sums of rows of 8 bits (unidex.storage.eight_bits). */
#include "kernels.h"

WIDE static void add_row(float *restrict sum, const int8_t *restrict codes, const float *restrict scales, int64_t dim,
                         int64_t block, float value) {
    for (int64_t first = 0; first < dim; first += block) {
        float scale = scales[first / block];
        int64_t end = first + block < dim ? first + block : dim;
        /* The product of a code and a scale is exact. */
        for (int64_t at = first; at < end; at++) sum[at] += value * ((float)codes[at] * scale);
    }
}

enum { AHEAD = 8, LINE = 64 };

/* The sum of the rows that each text names, in the order of its entries; 0 for a row that is not there. */
int sum_rows(Csr texts, const int8_t *codes, const float *scales, int64_t rows, int64_t dim, int64_t block,
             float *sums) {
    int64_t blocks = (dim + block - 1) / block, end = texts.starts[texts.rows];
    if (!is_whole(texts)) return 0;
    memset(sums, 0, (size_t)(texts.rows * dim) * sizeof *sums);
    for (int64_t text = 0; text < texts.rows; text++) {
        for (int32_t at = texts.starts[text]; at < texts.starts[text + 1]; at++) {
            int64_t own = texts.columns[at];
            if (own < 0 || own >= rows) return 0;
            /* Rows are far apart: a later one is on its way while this one is added. */
            if (at + AHEAD < end) {
                int64_t later = texts.columns[at + AHEAD];
                for (int64_t place = 0; place < dim; place += LINE) PREFETCH(codes + later * dim + place);
                PREFETCH(scales + later * blocks);
            }
            add_row(sums + text * dim, codes + own * dim, scales + own * blocks, dim, block, texts.values[at]);
        }
    }
    return 1;
}
