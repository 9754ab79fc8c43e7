/* Features of texts: bigrams of words, and weighted rows from occurrences (unidex.features.feature_weights). */
#include <math.h>

#include "kernels.h"

enum { KIND_BITS = 3, BIGRAM = 2 };

static uint64_t mix(uint64_t value) {
    value ^= value >> 30;
    value *= 0xBF58476D1CE4E5B9u;
    value ^= value >> 27;
    value *= 0x94D049BB133111EBu;
    return value ^ value >> 31;
}

static int64_t find_id(Vocabulary vocabulary, uint64_t key) {
    int64_t low = 0, high = vocabulary.size;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (vocabulary.keys[middle] < key) low = middle + 1;
        else high = middle;
    }
    if (low < vocabulary.size && vocabulary.keys[low] == key) return vocabulary.ids[low];
    return vocabulary.buckets ? vocabulary.size + (int64_t)(key % (uint64_t)vocabulary.buckets) : -1;
}

/* The occurrences of bigrams of successive words of each text; their number. */
int64_t find_bigrams(const uint64_t *words, const int64_t *counts, int64_t rows, Vocabulary vocabulary, int id_bits,
                     int64_t *found) {
    int64_t number = 0;
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t at = 1; at < counts[row]; at++) {
            uint64_t right = mix(words[at] + 0x9E3779B97F4A7C15u);
            int64_t id = find_id(vocabulary, mix(words[at - 1] * 0x9E6C63D0876A9A47u + right));
            if (id >= 0) found[number++] = (row << id_bits | id) << KIND_BITS | BIGRAM;
        }
        words += counts[row];
    }
    return number;
}

/* Rows of weights from occurrences, which are sorted; the number of entries, or -1 for a wrong id, -2 without memory. */
int64_t weigh_rows(int64_t *occurrences, int64_t count, int64_t rows, int id_bits, const float *idf, int64_t features,
                   const double *tf_table, int64_t table_size, int64_t *counts, int32_t *ids, float *weights) {
    double *exact = malloc((size_t)(count + 1) * sizeof *exact);
    if (!exact) return -2;
    /* The room for sorting is as large as that of the weights. */
    sort_numbers((uint64_t *)occurrences, (uint64_t *)exact, count);
    memset(counts, 0, (size_t)rows * sizeof *counts);
    int64_t entries = 0, at = 0, first = 0;
    while (at < count) {
        int64_t row = occurrences[at] >> KIND_BITS >> id_bits;
        double square = 0;
        if (row < 0 || row >= rows) break;
        first = entries;
        while (at < count && occurrences[at] >> KIND_BITS >> id_bits == row) {
            int64_t pair = occurrences[at] >> KIND_BITS, id = pair & (((int64_t)1 << id_bits) - 1);
            if (id >= features) goto done;
            /* As a feature may be of several kinds: the first, and the sum of the others. */
            double weight = 0, others = 0;
            int kinds = 0;
            while (at < count && occurrences[at] >> KIND_BITS == pair) {
                int64_t start = at;
                while (at < count && occurrences[at] == occurrences[start]) at++;
                int64_t tf = at - start;
                double scale = !tf_table ? (double)tf : tf < table_size ? tf_table[tf] : 1 + log((double)tf);
                if (kinds++) others += (double)idf[id] * scale;
                else weight = (double)idf[id] * scale;
            }
            weight += others;
            square += weight * weight;
            ids[entries] = (int32_t)id;
            exact[entries++] = weight;
        }
        double length = sqrt(square);
        for (int64_t entry = first; entry < entries; entry++) weights[entry] = (float)(exact[entry] / length);
        counts[row] = entries - first;
    }
done:
    free(exact);
    return at < count ? -1 : entries;
}
