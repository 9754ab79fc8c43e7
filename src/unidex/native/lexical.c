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

/* The words and n-grams of one text at a time, in a table of open addressing. */
struct TextWords {
    Csr texts;
    const double *idf;
    int64_t half;
    double norm; /* of the words of the text */
    int bits;
    uint32_t last;
    Slot *slots;
};

static uint32_t slot_of(uint32_t column, int bits) { return column * 2654435761u >> (32 - bits); }

/* Room for the words of any of the texts; NULL without memory or for a wrong matrix. */
TextWords *text_words(Csr texts, const double *idf, int64_t half) {
    if (!is_whole(texts)) return NULL;
    int64_t most = 1;
    for (int64_t text = 0; text < texts.rows; text++) {
        int64_t own = texts.starts[text + 1] - texts.starts[text];
        most = own > most ? own : most;
    }
    int bits = 6;
    while (((int64_t)1 << bits) < 4 * most && bits < 30) bits++;
    TextWords *words = malloc(sizeof *words);
    if (!words) return NULL;
    *words = (TextWords){texts, idf, half, 0, bits, ((uint32_t)1 << bits) - 1, NULL};
    words->slots = malloc(((size_t)1 << bits) * sizeof *words->slots);
    if (words->slots) return words;
    free(words);
    return NULL;
}

void free_words(TextWords *words) {
    free(words->slots);
    free(words);
}

/* Put a text into the table; 0 for a wrong number. */
int read_text(TextWords *words, int64_t text) {
    if (text < 0 || text >= words->texts.rows) return 0;
    memset(words->slots, 0xFF, ((size_t)words->last + 1) * sizeof *words->slots);
    words->norm = 0;
    for (int32_t at = words->texts.starts[text]; at < words->texts.starts[text + 1]; at++) {
        uint32_t column = (uint32_t)words->texts.columns[at], slot = slot_of(column, words->bits);
        if ((int64_t)column >= 2 * words->half) return 0;
        if ((int64_t)column < words->half) words->norm += words->idf[column] * (double)words->texts.values[at];
        while (words->slots[slot].column != UINT32_MAX) slot = (slot + 1) & words->last;
        words->slots[slot] = (Slot){column, words->texts.values[at]};
    }
    return 1;
}

/* What the text shares with a label: words, n-grams, and the share of the label's words; 0 for a wrong number. */
int share_words(const TextWords *words, LabelWords labels, int64_t label, double *found) {
    if (label < 0 || label >= labels.rows.rows) return 0;
    int64_t at = labels.rows.starts[label], end = labels.rows.starts[label + 1], ngrams = at + labels.words[label];
    if (at < 0 || end > labels.rows.entries) return 0;
    double sums[2] = {0, 0};
    for (; at < end; at++) {
        uint32_t column = (uint32_t)labels.rows.columns[at], slot = slot_of(column, words->bits);
        while (words->slots[slot].column != column && words->slots[slot].column != UINT32_MAX)
            slot = (slot + 1) & words->last;
        if (words->slots[slot].column == column)
            sums[at >= ngrams] += (double)labels.rows.values[at] * (double)words->slots[slot].value;
    }
    found[0] = sums[0];
    found[1] = sums[1];
    found[2] = sums[0] * (words->norm / labels.norms[label]);
    return 1;
}
