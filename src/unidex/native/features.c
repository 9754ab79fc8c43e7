/* Features of texts as weighted rows (unidex.features.extractor). */
#include <math.h>

#include "kernels.h"

enum { KIND_BITS = 3, WORD = 0, PART, BIGRAM, CHARS };

/* The row of one text from its ascending occurrences (an id, then a kind); the number of entries, or WRONG for a wrong id.
   Room is as large as the occurrences. */
static int64_t weigh_row(const int64_t *occurrences, int64_t count, double *room, const float *idf, int64_t features,
                         const double *tf_table, int64_t table_size, int32_t *ids, float *weights) {
    int64_t entries = 0, at = 0;
    double square = 0;
    while (at < count) {
        int64_t id = occurrences[at] >> KIND_BITS;
        if (id < 0 || id >= features) return WRONG;
        /* As a feature may be of several kinds: the first, and the sum of the others. */
        double weight = 0, others = 0;
        int kinds = 0;
        while (at < count && occurrences[at] >> KIND_BITS == id) {
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
        room[entries++] = weight;
    }
    double length = sqrt(square);
    for (int64_t entry = 0; entry < entries; entry++) weights[entry] = (float)(room[entry] / length);
    return entries;
}

/* Rows of weights from occurrences of many texts (a row, an id, then a kind), which are sorted; the number of entries. */
int64_t weigh_rows(int64_t *occurrences, int64_t count, int64_t rows, int id_bits, const float *idf, int64_t features,
                   const double *tf_table, int64_t table_size, int64_t *counts, int32_t *ids, float *weights) {
    double *room = malloc((size_t)(count + 1) * sizeof *room);
    if (!room) return NO_MEMORY;
    sort_numbers((uint64_t *)occurrences, (uint64_t *)room, count);
    memset(counts, 0, (size_t)rows * sizeof *counts);
    int64_t entries = 0, at = 0;
    while (at < count && entries >= 0) {
        int64_t first = at, row = occurrences[at] >> KIND_BITS >> id_bits, found = WRONG;
        for (; at < count && occurrences[at] >> KIND_BITS >> id_bits == row; at++)
            occurrences[at] &= ((int64_t)1 << (id_bits + KIND_BITS)) - 1;
        if (row >= 0 && row < rows) {
            found = weigh_row(occurrences + first, at - first, room, idf, features, tf_table, table_size,
                              ids + entries, weights + entries);
            counts[row] = found;
        }
        entries = found < 0 ? found : entries + found;
    }
    free(room);
    return entries;
}

/* What the rows of texts are made with. */
typedef struct {
    Letters letters;
    uint64_t *keys; /* of the features of a text */
    uint8_t *kinds;
    int64_t *occurrences;
    double *room;
} Desk;

/* The keys of the features of a text; their number, or NOT_FILLED. */
static int64_t read_keys(Desk *desk, const uint32_t *codes, int64_t length, CodePoints points,
                         const Vocabulary *vocabulary) {
    const Letters *letters = &desk->letters;
    int64_t count = 0;
    Span word = {0, 0};
    uint64_t before = 0;
    if (!read_letters(&desk->letters, codes, length, points)) return NOT_FILLED;
    for (int64_t number = 0; next_word(letters, &word); number++) {
        uint64_t key = string_key(letters->terms + word.start, word.end - word.start, WORD_SEED);
        desk->kinds[count] = WORD;
        desk->keys[count++] = key;
        if (vocabulary->has_bigrams && number) {
            desk->kinds[count] = BIGRAM;
            desk->keys[count++] = pair_key(before, key);
        }
        before = key;
        for (Span part = {0, word.start}; vocabulary->is_parted && next_part(letters, word, &part);) {
            desk->kinds[count] = PART;
            desk->keys[count++] = string_key(letters->terms + part.start, part.end - part.start, WORD_SEED);
        }
        if (!vocabulary->longest) continue;
        int64_t ngrams = ngram_keys(letters, word, vocabulary->shortest, vocabulary->longest, desk->keys + count);
        memset(desk->kinds + count, CHARS, (size_t)ngrams);
        count += ngrams;
    }
    return count;
}

enum { AHEAD = 8 };

/* The occurrences of features in a text; their number, or NOT_FILLED. */
static int64_t read_text_features(Desk *desk, const uint32_t *codes, int64_t length, CodePoints points,
                                  const Vocabulary *vocabulary) {
    Keys known = vocabulary->keys;
    int64_t count = read_keys(desk, codes, length, points, vocabulary), found = 0;
    for (int64_t at = 0; at < count; at++) {
        /* Keys are far apart: later ones are on their way while this one is looked up. */
        if (at + 2 * AHEAD < count) PREFETCH(known.starts + (desk->keys[at + 2 * AHEAD] >> known.shift));
        if (at + AHEAD < count) {
            uint32_t later = known.starts[desk->keys[at + AHEAD] >> known.shift];
            PREFETCH(known.keys + later);
            PREFETCH(vocabulary->ids + later);
        }
        int64_t place = find_key(known, desk->keys[at]), id = place < 0 ? -1 : vocabulary->ids[place];
        if (place < 0 && vocabulary->buckets)
            id = known.size + (int64_t)(desk->keys[at] % (uint64_t)vocabulary->buckets);
        if (id >= 0) desk->occurrences[found++] = id << KIND_BITS | desk->kinds[at];
    }
    return count < 0 ? count : found;
}

/* Add the row of a lead to the row of its text; features of the lead alone are left out. */
static void add_lead(const int32_t *ids, float *weights, int64_t entries, const int32_t *lead_ids,
                     const float *lead_weights, int64_t lead_entries, float factor, double *room) {
    double square = 0;
    for (int64_t at = 0, lead = 0; at < entries; at++) {
        while (lead < lead_entries && lead_ids[lead] < ids[at]) lead++;
        double weight = weights[at];
        if (lead < lead_entries && lead_ids[lead] == ids[at]) weight += (double)(factor * lead_weights[lead]);
        square += weight * weight;
        room[at] = weight;
    }
    double length = sqrt(square);
    if (!(length > 0)) length = 1;
    for (int64_t at = 0; at < entries; at++) weights[at] = (float)(room[at] / length);
}

/* The rows of texts; leads are none or as many, and an empty one is none. The number of entries. */
int64_t text_rows(Texts texts, Texts leads, float lead_weight, CodePoints points, Vocabulary vocabulary,
                  int64_t *counts, Growing *ids, Growing *weights) {
    int64_t longest = texts.longest > leads.longest ? texts.longest : leads.longest, entries = 0;
    int64_t sizes = vocabulary.longest ? vocabulary.longest - vocabulary.shortest + 1 : 0;
    size_t most = (size_t)(2 * longest + 4) * (size_t)(sizes + 2);
    Desk desk = {.keys = malloc(most * sizeof *desk.keys),
                 .kinds = malloc(most),
                 .occurrences = malloc(most * sizeof *desk.occurrences),
                 .room = malloc(most * sizeof *desk.room)};
    Growing lead_ids = {0}, lead_weights = {0};
    if (!make_letters(&desk.letters, longest) || !desk.keys || !desk.kinds || !desk.occurrences || !desk.room) entries = NO_MEMORY;
    for (int64_t text = 0; text < texts.count && entries >= 0; text++) {
        int64_t found[2] = {0, 0};
        for (int is_lead = 0; is_lead < 2; is_lead++) {
            const Texts *own = is_lead ? &leads : &texts;
            Growing *own_ids = is_lead ? &lead_ids : ids, *own_weights = is_lead ? &lead_weights : weights;
            if (is_lead && (!leads.count || !leads.lengths[text])) continue;
            int64_t count = read_text_features(&desk, own->codes, own->lengths[text], points, &vocabulary);
            lead_ids.count = lead_weights.count = 0;
            if (count >= 0 && (!grow(own_ids, count) || !grow(own_weights, count))) count = NO_MEMORY;
            if (count > 0) sort_numbers((uint64_t *)desk.occurrences, (uint64_t *)desk.room, count);
            if (count > 0)
                count = weigh_row(desk.occurrences, count, desk.room, vocabulary.idf, vocabulary.features,
                                  vocabulary.tf_table, vocabulary.table_size,
                                  (int32_t *)own_ids->numbers + own_ids->count,
                                  (float *)own_weights->numbers + own_weights->count);
            if (count < 0) {
                entries = count;
                goto done;
            }
            found[is_lead] = count;
        }
        texts.codes += texts.lengths[text];
        if (leads.count) leads.codes += leads.lengths[text];
        if (found[1])
            add_lead((int32_t *)ids->numbers + ids->count, (float *)weights->numbers + weights->count, found[0],
                     lead_ids.numbers, lead_weights.numbers, found[1], lead_weight, desk.room);
        counts[text] = found[0];
        ids->count = weights->count = entries += found[0];
    }
done:
    free(desk.keys);
    free(desk.kinds);
    free(desk.occurrences);
    free(desk.room);
    free_letters(&desk.letters);
    free(lead_ids.numbers);
    free(lead_weights.numbers);
    return entries;
}
