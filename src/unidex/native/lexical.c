/* Words and n-grams that texts and labels share (unidex.scoring.lexical). */
#include <math.h>

#include "kernels.h"

enum { NGRAM = 4, BLOCK = 64 };

/* The columns of a text from its letters, in any order and with repetitions; their number. Words have columns below half,
   n-grams the others. */
static int64_t read_columns(const Letters *letters, int64_t beginning, int64_t half, uint64_t *keys, uint64_t *columns) {
    uint64_t *next = columns;
    Span word = {0, 0};
    while (next_word(letters, &word)) {
        /* The word itself, then its parts. */
        for (Span term = word, part = {0, word.start}; term.end;) {
            const uint64_t *terms = letters->terms + term.start;
            int64_t length = term.end - term.start;
            *next++ = string_key(terms, length, WORD_SEED) % (uint64_t)half;
            if (beginning && length > beginning) *next++ = string_key(terms, beginning, WORD_SEED) % (uint64_t)half;
            term = next_part(letters, word, &part) ? part : (Span){0, 0};
        }
        int64_t ngrams = ngram_keys(letters, word, NGRAM, NGRAM, keys);
        for (int64_t at = 0; at < ngrams; at++) *next++ = keys[at] % (uint64_t)half + (uint64_t)half;
    }
    return next - columns;
}

/* The rows of texts: columns ascend, each once, and those that no label has are left out. The number of entries. */
int64_t lexical_rows(Texts texts, CodePoints points, int64_t beginning, const double *idf, const int32_t *frequencies,
                     int64_t half, int32_t *starts, Growing *columns, Growing *weights) {
    int64_t entries = 0;
    size_t most = 4 * ((size_t)texts.longest + 2);
    Letters letters;
    uint64_t *keys = malloc(most * sizeof *keys), *sorted = malloc(2 * most * sizeof *sorted);
    if (!make_letters(&letters, texts.longest) || !keys || !sorted) entries = NO_MEMORY;
    starts[0] = 0;
    for (int64_t text = 0; text < texts.count && entries >= 0; text++) {
        if (!read_letters(&letters, texts.codes, texts.lengths[text], points)) {
            entries = NOT_FILLED;
            break;
        }
        int64_t count = read_columns(&letters, beginning, half, keys, sorted);
        texts.codes += texts.lengths[text];
        if (!grow(columns, count) || !grow(weights, count) || entries + count > INT32_MAX) {
            entries = NO_MEMORY;
            break;
        }
        sort_numbers(sorted, sorted + most, count);
        int32_t *own = (int32_t *)columns->numbers + entries;
        float *own_weights = (float *)weights->numbers + entries;
        int64_t number = 0;
        double squares[2] = {0, 0};
        for (int64_t at = 0; at < count; at++) {
            int64_t column = (int64_t)sorted[at];
            if ((at && sorted[at - 1] == sorted[at]) || frequencies[column] <= 0) continue;
            squares[column >= half] += idf[column] * idf[column];
            own[number++] = (int32_t)column;
        }
        double lengths[2] = {sqrt(squares[0]), sqrt(squares[1])};
        for (int64_t at = 0; at < number; at++) own_weights[at] = (float)(idf[own[at]] / lengths[own[at] >= half]);
        columns->count = weights->count = entries += number;
        starts[text + 1] = (int32_t)entries;
    }
    free(keys);
    free(sorted);
    free_letters(&letters);
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
    uint32_t *is_there; /* a bit per column: most columns of a label are not in the text */
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
    *words = (TextWords){texts, idf, half, 0, bits, ((uint32_t)1 << bits) - 1, NULL, NULL};
    words->slots = malloc(((size_t)1 << bits) * sizeof *words->slots);
    words->is_there = malloc(((size_t)half / 16 + 1) * sizeof *words->is_there);
    if (words->slots && words->is_there) return words;
    free_words(words);
    return NULL;
}

void free_words(TextWords *words) {
    free(words->slots);
    free(words->is_there);
    free(words);
}

/* Put a text into the table; 0 for a wrong number. */
int read_text(TextWords *words, int64_t text) {
    if (text < 0 || text >= words->texts.rows) return 0;
    memset(words->slots, 0xFF, ((size_t)words->last + 1) * sizeof *words->slots);
    memset(words->is_there, 0, ((size_t)words->half / 16 + 1) * sizeof *words->is_there);
    words->norm = 0;
    for (int32_t at = words->texts.starts[text]; at < words->texts.starts[text + 1]; at++) {
        uint32_t column = (uint32_t)words->texts.columns[at], slot = slot_of(column, words->bits);
        if ((int64_t)column >= 2 * words->half) return 0;
        words->is_there[column / 32] |= (uint32_t)1 << column % 32;
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
    while (at < end) {
        int64_t shared[BLOCK], number = 0, stop = at + BLOCK < end ? at + BLOCK : end;
        for (; at < stop; at++) {
            uint32_t column = (uint32_t)labels.rows.columns[at];
            if (column >= 2 * words->half) return 0;
            shared[number] = at;
            number += words->is_there[column / 32] >> column % 32 & 1;
        }
        for (int64_t place = 0; place < number; place++) {
            int64_t entry = shared[place];
            uint32_t column = (uint32_t)labels.rows.columns[entry], slot = slot_of(column, words->bits);
            while (words->slots[slot].column != column) slot = (slot + 1) & words->last;
            sums[entry >= ngrams] += (double)labels.rows.values[entry] * (double)words->slots[slot].value;
        }
    }
    found[0] = sums[0];
    found[1] = sums[1];
    found[2] = sums[0] * (words->norm / labels.norms[label]);
    return 1;
}
