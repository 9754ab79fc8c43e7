/* Words and n-grams that texts and labels share (unidex.scoring.lexical). */
#include <math.h>

#include "kernels.h"

/* Columns of texts, in any order and with repetitions, become rows of weights: ascending, each once, and those that no
   label has left out. Words have columns below half. The number of entries, or -1 for a wrong column, -2 without memory. */
int64_t weigh_columns(int32_t *columns, const int64_t *counts, int64_t rows, const double *idf,
                      const int32_t *frequencies, int64_t half, int32_t *starts, float *weights) {
    int64_t entries = 0, most = 0;
    for (int64_t row = 0; row < rows; row++) most = counts[row] > most ? counts[row] : most;
    uint64_t *sorted = malloc(2 * ((size_t)most + 1) * sizeof *sorted);
    if (!sorted) return -2;
    const int32_t *next = columns;
    starts[0] = 0;
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t at = 0; at < counts[row]; at++) {
            if (next[at] < 0 || next[at] >= 2 * half) {
                free(sorted);
                return -1;
            }
            sorted[at] = (uint64_t)next[at];
        }
        next += counts[row];
        sort_numbers(sorted, sorted + most + 1, counts[row]);
        int64_t first = entries;
        double squares[2] = {0, 0};
        for (int64_t at = 0; at < counts[row]; at++) {
            int64_t column = (int64_t)sorted[at];
            if ((at && sorted[at - 1] == sorted[at]) || frequencies[column] <= 0) continue;
            squares[column >= half] += idf[column] * idf[column];
            columns[entries++] = (int32_t)column; /* never ahead of what is read */
        }
        double lengths[2] = {sqrt(squares[0]), sqrt(squares[1])};
        for (int64_t at = first; at < entries; at++)
            weights[at] = (float)(idf[columns[at]] / lengths[columns[at] >= half]);
        starts[row + 1] = (int32_t)entries;
    }
    free(sorted);
    return entries;
}

typedef struct {
    uint32_t column;
    float value;
} Slot;

static uint32_t slot_of(uint32_t column, int bits) { return column * 2654435761u >> (32 - bits); }

/* What each text shares with a row of a label: words, n-grams, and the share of the label's words. Pairs of one text
   follow each other. 1, or 0 for a wrong number, -2 without memory. */
int share_columns(Csr texts, const double *idf, int64_t half, Csr labels, const int64_t *label_words,
                  const double *label_norms, const int64_t *pair_texts, const int64_t *pair_labels, int64_t pairs,
                  double *found) {
    int64_t most = 1;
    for (int64_t row = 0; row < texts.rows; row++) {
        int64_t own = texts.starts[row + 1] - texts.starts[row];
        if (own < 0 || texts.starts[row] < 0 || texts.starts[row + 1] > texts.entries) return 0;
        most = own > most ? own : most;
    }
    int bits = 6;
    while (((int64_t)1 << bits) < 4 * most && bits < 30) bits++;
    uint32_t last = ((uint32_t)1 << bits) - 1;
    Slot *slots = malloc(((size_t)last + 1) * sizeof *slots);
    if (!slots) return -2;
    int64_t text = -1;
    double norm = 0;
    for (int64_t pair = 0; pair < pairs; pair++) {
        int64_t label = pair_labels[pair];
        int fits = pair_texts[pair] >= 0 && pair_texts[pair] < texts.rows && label >= 0 && label < labels.rows;
        if (!fits || labels.starts[label] < 0 || labels.starts[label + 1] > labels.entries) {
            free(slots);
            return 0;
        }
        if (pair_texts[pair] != text) {
            text = pair_texts[pair];
            norm = 0;
            memset(slots, 0xFF, ((size_t)last + 1) * sizeof *slots);
            for (int32_t at = texts.starts[text]; at < texts.starts[text + 1]; at++) {
                uint32_t column = (uint32_t)texts.columns[at], slot = slot_of(column, bits);
                if ((int64_t)column >= 2 * half) {
                    free(slots);
                    return 0;
                }
                if ((int64_t)column < half) norm += idf[column] * (double)texts.values[at];
                while (slots[slot].column != UINT32_MAX) slot = (slot + 1) & last;
                slots[slot] = (Slot){column, texts.values[at]};
            }
        }
        double sums[2] = {0, 0};
        int64_t ngrams = labels.starts[label] + label_words[label];
        for (int64_t at = labels.starts[label]; at < labels.starts[label + 1]; at++) {
            uint32_t column = (uint32_t)labels.columns[at], slot = slot_of(column, bits);
            while (slots[slot].column != column && slots[slot].column != UINT32_MAX) slot = (slot + 1) & last;
            if (slots[slot].column == column)
                sums[at >= ngrams] += (double)labels.values[at] * (double)slots[slot].value;
        }
        found[3 * pair] = sums[0];
        found[3 * pair + 1] = sums[1];
        found[3 * pair + 2] = sums[0] * (norm / label_norms[label]);
    }
    free(slots);
    return 1;
}
