/* Products of sparse matrices, and look-ups in them (unidex.sparse_rows). */
#include "kernels.h"

/* Whether rows start in order and within the entries. */
int is_whole(Csr matrix) {
    if (matrix.starts[0] < 0 || matrix.starts[matrix.rows] > matrix.entries) return 0;
    for (int64_t row = 0; row < matrix.rows; row++)
        if (matrix.starts[row] > matrix.starts[row + 1]) return 0;
    return 1;
}

/* The product in new arrays, zeros left out. Where a value on the left is 0, its column may be any number. The
   number of entries, or -1 for a wrong matrix, -2 without memory. */
int64_t multiply(Csr left, Csr right, int64_t columns, float **values, int32_t **places, int32_t *starts) {
    if (!is_whole(left)) return -1;
    int64_t most = 0, room = 64, entries = 0;
    for (int64_t row = 0; row < left.rows; row++) {
        int64_t touched = 0;
        for (int32_t at = left.starts[row]; at < left.starts[row + 1]; at++) {
            int32_t own = left.columns[at];
            if (left.values[at] == 0) continue;
            if (own < 0 || own >= right.rows) return -1;
            if (right.starts[own] < 0 || right.starts[own] > right.starts[own + 1]) return -1;
            if (right.starts[own + 1] > right.entries) return -1;
            touched += right.starts[own + 1] - right.starts[own];
        }
        most = touched > most ? touched : most;
        room += touched < columns ? touched : columns;
    }
    if (room > INT32_MAX) return -1;
    most = most < columns ? most : columns;
    float *sums = calloc((size_t)columns + 1, sizeof *sums);
    uint8_t *is_touched = calloc((size_t)columns + 1, 1);
    uint64_t *touched = malloc(2 * ((size_t)most + 1) * sizeof *touched);
    *values = malloc((size_t)room * sizeof **values);
    *places = malloc((size_t)room * sizeof **places);
    if (!sums || !is_touched || !touched || !*values || !*places) entries = -2;
    starts[0] = 0;
    for (int64_t row = 0; row < left.rows && entries >= 0; row++) {
        int64_t count = 0;
        for (int32_t at = left.starts[row]; at < left.starts[row + 1]; at++) {
            float value = left.values[at];
            int32_t own = left.columns[at];
            if (value == 0) continue;
            for (int32_t entry = right.starts[own]; entry < right.starts[own + 1]; entry++) {
                int32_t column = right.columns[entry];
                if (column < 0 || column >= columns) {
                    entries = -1;
                    goto done;
                }
                if (!is_touched[column]) {
                    is_touched[column] = 1;
                    touched[count++] = (uint64_t)column;
                }
                sums[column] += value * right.values[entry];
            }
        }
        sort_numbers(touched, touched + most + 1, count);
        for (int64_t at = 0; at < count; at++) {
            int64_t column = (int64_t)touched[at];
            if (sums[column] != 0) {
                (*values)[entries] = sums[column];
                (*places)[entries++] = (int32_t)column;
            }
            sums[column] = 0;
            is_touched[column] = 0;
        }
        starts[row + 1] = (int32_t)entries;
    }
done:
    free(sums);
    free(is_touched);
    free(touched);
    return entries;
}

/* The value of a row at a column; 0 where nothing is stored. */
float value_at(Csr matrix, int64_t row, int64_t wanted) {
    int32_t low = matrix.starts[row], high = matrix.starts[row + 1], end = high;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (matrix.columns[middle] < wanted) low = middle + 1;
        else high = middle;
    }
    return low < end && matrix.columns[low] == wanted ? matrix.values[low] : 0;
}
