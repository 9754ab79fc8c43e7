/* The inner loops of a training step that torch and SciPy take several passes for (unidex.nn.sparse_product and
   unidex.nn.adagrad). */
#include "kernels.h"

#include <math.h>

/* The columns that hold an entry, ascending, and for each of them its values and their rows, in the order of rows. There
   is room for one column per entry. The number of columns, WRONG or NO_MEMORY. */
int64_t used_columns(Csr rows, int64_t columns, int64_t *ids, float *values, int32_t *places, int32_t *starts) {
    if (!is_whole(rows) || rows.starts[0] != 0 || rows.starts[rows.rows] != rows.entries) return WRONG;
    int32_t *next = calloc((size_t)columns + 1, sizeof *next), total = 0;
    if (!next) return NO_MEMORY;
    int64_t used = 0;
    for (int64_t at = 0; at < rows.entries; at++) {
        if (rows.columns[at] < 0 || rows.columns[at] >= columns) {
            free(next);
            return WRONG;
        }
        next[rows.columns[at]]++;
    }
    /* No branch: nobody can guess which columns have entries. Behind the last one there is no room. */
    for (int64_t column = 0; total < rows.entries; column++) {
        int32_t count = next[column];
        ids[used] = column;
        starts[used] = total;
        next[column] = total;
        used += count > 0;
        total += count;
    }
    starts[used] = total;
    for (int64_t row = 0; row < rows.rows; row++)
        for (int32_t at = rows.starts[row]; at < rows.starts[row + 1]; at++) {
            int32_t place = next[rows.columns[at]]++;
            values[place] = rows.values[at];
            places[place] = (int32_t)row;
        }
    free(next);
    return used;
}

enum { AHEAD = 4, LINE = 16, LANES = 16 };

/* Row-wise Adagrad: add the mean square of each row's gradient to its sum, and move the row. 0 where a row is not there. */
WIDE int adagrad_rows(const int64_t *ids, const float *gradient, int64_t count, int64_t dim, float rate, float *sums,
                      float *table, int64_t rows) {
    for (int64_t at = 0; at < count; at++)
        if (ids[at] < 0 || ids[at] >= rows) return 0;
    for (int64_t at = 0; at < count; at++, gradient += dim) {
        if (at + AHEAD < count)
            for (int64_t line = 0; line < dim; line += LINE) PREFETCH(table + ids[at + AHEAD] * dim + line);
        float lanes[LANES] = {0};
        int64_t column = 0;
        for (; column + LANES <= dim; column += LANES)
            for (int lane = 0; lane < LANES; lane++) lanes[lane] += gradient[column + lane] * gradient[column + lane];
        for (int lane = 0; column + lane < dim; lane++) lanes[lane] += gradient[column + lane] * gradient[column + lane];
        for (int half = LANES / 2; half; half /= 2)
            for (int lane = 0; lane < half; lane++) lanes[lane] += lanes[lane + half];
        float sum = sums[ids[at]] + lanes[0] / (float)dim;
        sums[ids[at]] = sum;
        float factor = rate / (sqrtf(sum) + 1e-10f), *own = table + ids[at] * dim;
        for (column = 0; column < dim; column++) own[column] -= gradient[column] * factor;
    }
    return 1;
}
