/* From what an index, the nearest training texts, shared words and matches find to the best labels
   (unidex.scoring.ranked_search). Texts are described a few at a time, so that their features stay in the caches. */
#include <math.h>

#include "kernels.h"

enum { TEXTS_AT_ONCE = 16, NUM_MATCH_FEATURES = 7 };

/* The rows of some texts. */
static Csr rows_from(Csr matrix, int64_t first, int64_t count) {
    return (Csr){matrix.values, matrix.columns, matrix.starts + first, count, matrix.entries};
}

/* Ascending, each id once; a repeated one becomes -1. */
static void without_repeats(int64_t *ids, int64_t count) {
    for (int64_t at = 1; at < count; at++) {
        int64_t id = ids[at], place = at;
        for (; place > 0 && ids[place - 1] > id; place--) ids[place] = ids[place - 1];
        ids[place] = id;
    }
    for (int64_t at = count - 1; at > 0; at--)
        if (ids[at] == ids[at - 1]) ids[at] = -1;
}

/* Append the best entries of each row to the candidates of its text; 0 for a wrong matrix. Room is for as many. */
static int append_best(Csr matrix, int64_t k, int64_t *ids, int64_t width, int64_t at, int64_t *room, float *scores) {
    if (!k) return 1;
    if (!best_entries(matrix, k, room, scores)) return 0;
    for (int64_t text = 0; text < matrix.rows; text++)
        memcpy(ids + text * width + at, room + text * k, (size_t)k * sizeof *ids);
    return 1;
}

/* The sums of trees of the candidates of a few texts; 1, 0 for a wrong number, NO_MEMORY. */
static int64_t score_texts(const Search *search, Csr knn, int64_t first, int64_t texts, const int64_t *ids,
                           double *sums) {
    int64_t width = search->width, size = texts * width, done = NO_MEMORY;
    const float *queries = search->queries + first * search->dim;
    int64_t *known = malloc((size_t)size * sizeof *known);
    float *heads = malloc((size_t)(search->num_heads * size) * sizeof *heads);
    float *scaled = malloc((size_t)(texts * search->dim) * sizeof *scaled);
    float *columns = malloc((size_t)(search->num_columns * size) * sizeof *columns);
    Csr rows = rows_from(search->words, first, texts);
    TextWords *words = text_words(rows, search->idf, search->half);
    if (!known || !heads || !scaled || !columns || !words) goto done;
    done = 0;
    for (int64_t at = 0; at < size; at++) known[at] = ids[at] < 0 ? 0 : ids[at];
    for (int64_t head = 0; head < search->num_heads; head++) {
        int64_t from = search->head_columns[2 * head], number = search->head_columns[2 * head + 1];
        for (int64_t text = 0; text < texts; text++)
            for (int64_t at = 0; at < number; at++)
                scaled[text * number + at] = queries[text * search->dim + from + at] / search->head_weights[head];
        if (!inner_products(scaled, texts, number, search->rows, search->labels, search->dim, from, known, width,
                            heads + head * size))
            goto done;
    }
    Pairs pairs = {ids, texts, width, heads, search->weights, search->num_heads, rows_from(knn, first, texts),
                   search->nearest + first, search->priors, search->frequencies, search->labels, search->label_words,
                   rows};
    done = describe_pairs(pairs, words, columns);
    if (done != 1) {
        done = done ? NO_MEMORY : 0;
        goto done;
    }
    int64_t described = 3 * search->num_heads + 17;
    FoundMatches found = search->found;
    found.starts += first;
    if (!(done = describe_matches(ids, texts, width, found, search->matched, columns + described * size))) goto done;
    described += NUM_MATCH_FEATURES;
    if (search->has_links) {
        Csr links = rows_from(search->links, first, texts);
        float *column = columns + described++ * size;
        for (int64_t at = 0; at < size; at++) column[at] = value_at(links, at / width, known[at]);
    }
    if (search->has_linear) {
        Linear linear = search->linear;
        float *column = columns + described * size;
        linear.rows = rows_from(linear.rows, first, texts);
        done = score_linear(linear, ids, width, column);
        if (done == 1 && !compare_candidates(ids, texts, width, column)) done = NO_MEMORY;
        if (done != 1) {
            done = done == WRONG ? 0 : NO_MEMORY;
            goto done;
        }
    }
    done = score_trees(search->trees, columns, size, sums) ? 1 : NO_MEMORY;
done:
    free(known);
    free(heads);
    free(scaled);
    free(columns);
    if (words) free_words(words);
    return done;
}

/* The best of what the index found, to the candidates of each text; 1, or WRONG, NOT_FILLED, NO_MEMORY. */
static int64_t append_found(const Search *search, int64_t texts, int64_t *ids) {
    int64_t number = search->num_found, k = search->num_index, done = 1;
    const int64_t *found = search->found_ids;
    if (number <= k) {
        for (int64_t text = 0; text < texts; text++)
            memcpy(ids + text * search->width, found + text * number, (size_t)number * sizeof *ids);
        return 1;
    }
    float *scores = malloc((size_t)(number + k) * sizeof *scores);
    if (!scores) return NO_MEMORY;
    for (int64_t text = 0; text < texts && done == 1; text++, found += number) {
        for (int64_t at = 0; at < number; at++) done = found[at] < 0 ? NOT_FILLED : done;
        if (done == 1 && !inner_products(search->queries + text * search->dim, 1, search->dim, search->rows,
                                         search->labels, search->dim, 0, found, number, scores))
            done = WRONG;
        if (done == 1 && !rank_places(found, scores, 1, number, k, ids + text * search->width, scores + number))
            done = NOT_FILLED;
    }
    free(scores);
    return done;
}

/* ln(exp(one) + exp(other)), as NumPy computes it. */
static double log_add_exp(double one, double other) {
    double difference = one - other;
    if (one == other) return one + 0.693147180559945309417232121458176568;
    if (difference > 0) return one + log1p(exp(-difference));
    return difference <= 0 ? other + log1p(exp(difference)) : difference;
}

/* The best candidates of texts by their scores, ln p + rarity; 1, or WRONG, NOT_FILLED, NO_MEMORY. */
static int64_t rank_candidates(const Search *search, int64_t texts, const int64_t *ids, const double *sums, int64_t k,
                               int64_t *best_ids, float *best_scores) {
    int64_t size = texts * search->width;
    float *scores = malloc((size_t)size * sizeof *scores);
    if (!scores) return NO_MEMORY;
    for (int64_t at = 0; at < size; at++) {
        int64_t frequency = search->frequencies[ids[at] < 0 ? 0 : ids[at]];
        if (frequency < 0 || frequency >= search->num_rarities) {
            free(scores);
            return WRONG;
        }
        scores[at] = ids[at] < 0 ? -INFINITY : (float)(search->rarities[frequency] - log_add_exp(0, -sums[at]));
    }
    int is_done = rank_places(ids, scores, texts, search->width, k, best_ids, best_scores);
    free(scores);
    return is_done ? 1 : NOT_FILLED;
}

/* The best labels of texts; 1, or WRONG, NO_MEMORY, and NOT_FILLED where they must be searched in another way. */
int64_t search_labels(Search search, int64_t k, int64_t *best_ids, float *best_scores) {
    int64_t texts = search.words.rows, width = search.width, done = NO_MEMORY;
    int64_t most = search.num_knn > search.num_lexical ? search.num_knn : search.num_lexical;
    most = search.num_matches > most ? search.num_matches : most;
    most = search.num_links > most ? search.num_links : most;
    Csr products[2] = {{.rows = texts}, {.rows = texts}}, left[2] = {search.shares, search.searched};
    Csr right[2] = {search.positives, search.by_word};
    float *values[2] = {NULL, NULL}, *scores = malloc((size_t)(texts * most + 1) * sizeof *scores);
    int32_t *places[2] = {NULL, NULL}, *starts = malloc((size_t)(texts + 1) * 2 * sizeof *starts);
    int64_t *room = malloc((size_t)(texts * (most + width) + 1) * sizeof *room), *ids = room + texts * most;
    double *sums = malloc((size_t)(texts * width) * sizeof *sums);
    if (!scores || !starts || !room || !sums) goto done;
    for (int which = 0; which < 2; which++) {
        int32_t *own = starts + which * (texts + 1);
        int64_t entries = multiply(left[which], right[which], search.labels, &values[which], &places[which], own);
        if (entries < 0) {
            done = entries;
            goto done;
        }
        products[which] = (Csr){values[which], places[which], own, texts, entries};
    }
    if ((done = append_found(&search, texts, ids)) != 1) goto done;
    done = WRONG;
    int64_t next = search.num_index;
    if (!append_best(products[0], search.num_knn, ids, width, next, room, scores)) goto done;
    next += search.num_knn;
    if (!append_best(products[1], search.num_lexical, ids, width, next, room, scores)) goto done;
    next += search.num_lexical;
    if (!append_best(search.match_scores, search.num_matches, ids, width, next, room, scores)) goto done;
    next += search.num_matches;
    if (!append_best(search.links, search.num_links, ids, width, next, room, scores)) goto done;
    for (int64_t text = 0; text < texts; text++) without_repeats(ids + text * width, width);
    for (int64_t first = 0; first < texts; first += TEXTS_AT_ONCE) {
        int64_t number = texts - first < TEXTS_AT_ONCE ? texts - first : TEXTS_AT_ONCE;
        done = score_texts(&search, products[0], first, number, ids + first * width, sums + first * width);
        if (done != 1) {
            done = done ? NO_MEMORY : WRONG;
            goto done;
        }
    }
    done = rank_candidates(&search, texts, ids, sums, k, best_ids, best_scores);
done:
    for (int which = 0; which < 2; which++) {
        free(values[which]);
        free(places[which]);
    }
    free(scores);
    free(starts);
    free(room);
    free(sums);
    return done;
}
