/* Products of sparse matrices, and look-ups in them (unidex.sparse_rows). */
#include "kernels.h"

/* Whether rows start in order and within the entries. */
int is_whole(Csr matrix) {
    if (matrix.starts[0] < 0 || matrix.starts[matrix.rows] > matrix.entries) return 0;
    for (int64_t row = 0; row < matrix.rows; row++)
        if (matrix.starts[row] > matrix.starts[row + 1]) return 0;
    return 1;
}

enum { FEW = 1 << 12, BLOCK = 1 << 14 };

/* The entries of a row of a product that it is summed of; -1 for a wrong matrix. Where a value on the left is 0, its
   column may be any number. */
static int64_t count_terms(Csr left, Csr right, int64_t row) {
    int64_t terms = 0;
    for (int32_t at = left.starts[row]; at < left.starts[row + 1]; at++) {
        int32_t own = left.columns[at];
        if (left.values[at] == 0) continue;
        if (own < 0 || own >= right.rows) return -1;
        if (right.starts[own] < 0 || right.starts[own] > right.starts[own + 1]) return -1;
        if (right.starts[own + 1] > right.entries) return -1;
        terms += right.starts[own + 1] - right.starts[own];
    }
    return terms;
}

/* A row of few terms: sorted by column, in their order. The number of entries, or -1 for a wrong column. */
static int64_t multiply_few(Csr left, Csr right, int64_t row, int64_t columns, uint64_t *keys, float *terms,
                            float *values, int32_t *places) {
    int64_t count = 0, entries = 0;
    for (int32_t at = left.starts[row]; at < left.starts[row + 1]; at++) {
        float value = left.values[at];
        int32_t own = left.columns[at];
        if (value == 0) continue;
        for (int32_t entry = right.starts[own]; entry < right.starts[own + 1]; entry++) {
            int32_t column = right.columns[entry];
            if (column < 0 || column >= columns) return -1;
            terms[count] = value * right.values[entry];
            keys[count] = (uint64_t)column << 32 | (uint64_t)count;
            count++;
        }
    }
    sort_numbers(keys, keys + FEW, count);
    for (int64_t at = 0; at < count;) {
        uint64_t column = keys[at] >> 32;
        float sum = 0;
        for (; at < count && keys[at] >> 32 == column; at++) sum += terms[keys[at] & UINT32_MAX];
        if (sum == 0) continue;
        values[entries] = sum;
        places[entries++] = (int32_t)column;
    }
    return entries;
}

/* A row of many terms: summed in an array of some columns at a time, which is all 0 and left so. Next has room for one
   number per entry of the row. The number of entries, or -1 for a wrong column or columns that do not ascend. */
static int64_t multiply_many(Csr left, Csr right, int64_t row, int64_t columns, int32_t *next, float *sums,
                             uint8_t *is_touched, float *values, int32_t *places) {
    int32_t first = left.starts[row], end = left.starts[row + 1];
    for (int32_t at = first; at < end; at++) next[at - first] = left.values[at] == 0 ? 0 : right.starts[left.columns[at]];
    int64_t entries = 0, waiting = columns;
    for (int64_t from = 0; from < columns; from = waiting / BLOCK * BLOCK) {
        int64_t stop = from + BLOCK < columns ? from + BLOCK : columns;
        waiting = columns + BLOCK;
        for (int32_t at = first; at < end; at++) {
            float value = left.values[at];
            if (value == 0) continue;
            int32_t entry = next[at - first], last = right.starts[left.columns[at] + 1];
            for (; entry < last && right.columns[entry] < stop; entry++) {
                int64_t column = right.columns[entry] - from;
                if (column < 0) return -1;
                is_touched[column] = 1;
                sums[column] += value * right.values[entry];
            }
            next[at - first] = entry;
            if (entry < last && right.columns[entry] >= columns) return -1;
            if (entry < last && right.columns[entry] < waiting) waiting = right.columns[entry];
        }
        for (int64_t column = 0; column < stop - from; column++) {
            if (!is_touched[column]) continue;
            if (sums[column] != 0) {
                values[entries] = sums[column];
                places[entries++] = (int32_t)(from + column);
            }
            sums[column] = 0;
            is_touched[column] = 0;
        }
    }
    return entries;
}

/* The product in new arrays, zeros left out. The number of entries, or -1 for a wrong matrix, -2 without memory. */
int64_t multiply(Csr left, Csr right, int64_t columns, float **values, int32_t **places, int32_t *starts) {
    if (!is_whole(left)) return -1;
    int64_t room = 64, entries = 0, most = 0, longest = 1;
    for (int64_t row = 0; row < left.rows; row++) {
        int64_t terms = count_terms(left, right, row), own = left.starts[row + 1] - left.starts[row];
        if (terms < 0) return -1;
        most = terms > most ? terms : most;
        longest = own > longest ? own : longest;
        room += terms < columns ? terms : columns;
    }
    if (room > INT32_MAX) return -1;
    size_t all = most > FEW ? BLOCK : 1;
    float *sums = calloc(all, sizeof *sums), *terms = malloc(FEW * sizeof *terms);
    uint8_t *is_touched = calloc(all, 1);
    int32_t *next = malloc((size_t)longest * sizeof *next);
    uint64_t *keys = malloc(2 * FEW * sizeof *keys);
    *values = malloc((size_t)room * sizeof **values);
    *places = malloc((size_t)room * sizeof **places);
    if (!sums || !is_touched || !next || !terms || !keys || !*values || !*places) entries = -2;
    starts[0] = 0;
    for (int64_t row = 0; row < left.rows && entries >= 0; row++) {
        int64_t found = count_terms(left, right, row) <= FEW
                            ? multiply_few(left, right, row, columns, keys, terms, *values + entries, *places + entries)
                            : multiply_many(left, right, row, columns, next, sums, is_touched, *values + entries,
                                          *places + entries);
        entries = found < 0 ? -1 : entries + found;
        starts[row + 1] = (int32_t)entries;
    }
    free(sums);
    free(terms);
    free(is_touched);
    free(next);
    free(keys);
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
