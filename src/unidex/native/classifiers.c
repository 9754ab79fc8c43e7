/* Linear classifiers of labels, by coordinate descent on the dual of the squared hinge (unidex.training.linear_fit). */
#include "kernels.h"

#include <math.h>

/* The inner product of a row with weights, in four sums: a processor adds them side by side. */
static float product(Csr texts, int32_t text, const float *weights) {
    typedef float Four __attribute__((vector_size(16)));
    Four sums = {0, 0, 0, 0};
    int32_t at = texts.starts[text], end = texts.starts[text + 1];
    for (; at + 4 <= end; at += 4) {
        const int32_t *columns = texts.columns + at;
        Four values, found = {weights[columns[0]], weights[columns[1]], weights[columns[2]], weights[columns[3]]};
        memcpy(&values, texts.values + at, sizeof values);
        sums += found * values;
    }
    float first = sums[0];
    for (; at < end; at++) first += weights[texts.columns[at]] * texts.values[at];
    return (first + sums[1]) + (sums[2] + sums[3]);
}

/* The next row is on its way while this one is read. */
static void fetch_row(Csr texts, int32_t text) {
    for (int32_t at = texts.starts[text]; at < texts.starts[text + 1]; at += 16) {
        PREFETCH(texts.columns + at);
        PREFETCH(texts.values + at);
    }
}

static void shuffle(int32_t *order, int64_t count, uint64_t *state) {
    for (int64_t last = count - 1; last > 0; last--) {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        int64_t other = (int64_t)(*state % (uint64_t)(last + 1));
        int32_t kept = order[last];
        order[last] = order[other];
        order[other] = kept;
    }
}

/* The examples of a label: rows of texts, and their sides, 1 or -1. */
typedef struct {
    Csr texts;
    const int32_t *rows;
    const float *sides;
    int64_t count;
} Examples;

/* Fit one label to its examples. The weights, all 0 before, have the bias behind them. */
static void fit_one(Examples examples, int64_t features, Descent descent, uint64_t state, float *weights, float *alphas,
                    int32_t *order) {
    Csr texts = examples.texts;
    int64_t count = examples.count;
    const float ridge = 0.5f / descent.cost;
    for (int64_t at = 0; at < count; at++) {
        alphas[at] = 0;
        order[at] = (int32_t)at;
    }
    for (int64_t pass = 0; pass < descent.passes; pass++) {
        float largest = 0;
        shuffle(order, count, &state);
        for (int64_t place = 0; place < count; place++) {
            int32_t at = order[place], text = examples.rows[at];
            if (place + 1 < count) fetch_row(texts, examples.rows[order[place + 1]]);
            float side = examples.sides[at], alpha = alphas[at];
            float slope = side * (product(texts, text, weights) + weights[features]) - 1 + ridge * alpha;
            if (alpha == 0 && slope >= 0) continue;
            if (fabsf(slope) > largest) largest = fabsf(slope);
            /* A row has the length 1, and 1 more for the bias; an empty one has the bias alone. */
            float size = texts.starts[text] == texts.starts[text + 1] ? 1 : 2;
            float next = alpha - slope / (size + ridge);
            if (next < 0) next = 0;
            float step = (next - alpha) * side;
            alphas[at] = next;
            if (step == 0) continue;
            weights[features] += step;
            for (int32_t entry = texts.starts[text]; entry < texts.starts[text + 1]; entry++)
                weights[texts.columns[entry]] += step * texts.values[entry];
        }
        if (largest < descent.tolerance) break;
    }
}

/* Whether the examples of a label are texts. Other texts are not looked at: there may be millions of them, and each block
   of labels comes here. */
static int are_texts(Csr texts, Csr examples, int64_t label) {
    for (int32_t at = examples.starts[label]; at < examples.starts[label + 1]; at++) {
        int32_t text = examples.columns[at];
        if (text < 0 || text >= texts.rows) return 0;
        if (texts.starts[text] < 0 || texts.starts[text] > texts.starts[text + 1] ||
            texts.starts[text + 1] > texts.entries)
            return 0;
    }
    return 1;
}

/* Whether the columns of these texts are features. */
static int have_features(Examples examples, int64_t features) {
    Csr texts = examples.texts;
    for (int64_t at = 0; at < examples.count; at++) {
        int32_t text = examples.rows[at];
        for (int32_t entry = texts.starts[text]; entry < texts.starts[text + 1]; entry++)
            if (texts.columns[entry] < 0 || texts.columns[entry] >= features) return 0;
    }
    return 1;
}

enum { GATHERED = 1 << 17 }; /* entries; of labels with more, texts are read where they are */

/* The texts of one label side by side, with features numbered as they come up: texts and weights of most labels fit into
   the nearest cache then. */
typedef struct {
    float *values;
    int32_t *columns, *starts, *rows; /* rows: 0, 1, 2, ... */
    int32_t *features;                /* the feature of each number */
    int32_t *number_of;               /* the number of each feature, -1 for none */
    int64_t used;                     /* numbers */
} Gathered;

/* Room for labels of so many entries and texts. One piece: several would go back to the system with each block of labels,
   and come again page by page. */
static int make_gathered(Gathered *own, int64_t features, int64_t most, int64_t longest) {
    int32_t *room = malloc((size_t)(3 * most + 2 * longest + features + 3) * sizeof *room);
    *own = (Gathered){NULL, room, NULL, NULL, NULL, NULL, 0};
    if (!room) return 0;
    own->features = room + most;
    own->number_of = own->features + most;
    own->starts = own->number_of + features;
    own->rows = own->starts + longest + 1;
    own->values = (float *)(own->rows + longest);
    for (int64_t at = 0; at < features; at++) own->number_of[at] = -1;
    for (int64_t at = 0; at < longest; at++) own->rows[at] = (int32_t)at;
    return 1;
}

static void free_gathered(Gathered *own) { free(own->columns); }

/* The gathered examples; 0 where a column is no feature. */
static int gather(Gathered *own, Examples *examples, int64_t features) {
    Csr texts = examples->texts;
    int32_t entries = 0, used = 0;
    own->starts[0] = 0;
    for (int64_t at = 0; at < examples->count; at++) {
        if (at + 1 < examples->count) fetch_row(texts, examples->rows[at + 1]);
        int32_t text = examples->rows[at];
        for (int32_t entry = texts.starts[text]; entry < texts.starts[text + 1]; entry++) {
            int32_t feature = texts.columns[entry];
            if (feature < 0 || feature >= features) return 0;
            /* No branch: half of the features are new ones, and nobody can guess which. */
            int32_t number = own->number_of[feature], is_new = number < 0;
            number = is_new ? used : number;
            own->features[used] = feature;
            own->number_of[feature] = number;
            used += is_new;
            own->values[entries] = texts.values[entry];
            own->columns[entries++] = number;
        }
        own->starts[at + 1] = entries;
    }
    for (int32_t at = 0; at < used; at++) own->number_of[own->features[at]] = -1;
    own->used = used;
    examples->texts = (Csr){own->values, own->columns, own->starts, examples->count, entries};
    examples->rows = own->rows;
    return 1;
}

/* The weights that were kept so far. */
typedef struct {
    float **values;
    int32_t **columns;
    int64_t kept, room;
} Kept;

/* Keep a weight unless it is below the least one; 0 without memory. */
static int keep_weight(Kept *found, float weight, int32_t column, float least) {
    if (weight == 0 || fabsf(weight) < least) return 1;
    if (found->kept == found->room) {
        float *more_values = realloc(*found->values, (size_t)(found->room * 2) * sizeof *more_values);
        if (more_values) *found->values = more_values;
        int32_t *more_columns = realloc(*found->columns, (size_t)(found->room * 2) * sizeof *more_columns);
        if (more_columns) *found->columns = more_columns;
        found->room *= 2;
        if (!more_values || !more_columns || found->room > INT32_MAX) return 0;
    }
    (*found->values)[found->kept] = weight;
    (*found->columns)[found->kept++] = column;
    return 1;
}

/* The entries of the texts of a label. */
static int64_t count_entries(Csr texts, Csr examples, int64_t label) {
    int64_t entries = 0;
    for (int32_t at = examples.starts[label]; at < examples.starts[label + 1]; at++)
        entries += texts.starts[examples.columns[at] + 1] - texts.starts[examples.columns[at]];
    return entries;
}

/* Classifiers of all labels: the weights that are not below the least one, label after label, where each label starts,
   and the biases. The number of weights, WRONG or NO_MEMORY. */
int64_t fit_classifiers(Csr texts, Csr examples, int64_t features, Descent descent, float **values, int32_t **columns,
                        int32_t *starts, float *biases) {
    int64_t longest = 0, most = 0;
    if (!is_whole(examples)) return WRONG;
    for (int64_t label = 0; label < examples.rows; label++) {
        if (!are_texts(texts, examples, label)) return WRONG;
        int64_t count = examples.starts[label + 1] - examples.starts[label], entries = count_entries(texts, examples, label);
        longest = count > longest ? count : longest;
        most = entries > most && entries <= GATHERED ? entries : most;
    }
    Kept found = {values, columns, 0, 1 << 16};
    float *weights = calloc((size_t)(features > most ? features : most) + 1, sizeof *weights);
    float *alphas = malloc((size_t)(longest + 1) * sizeof *alphas);
    int32_t *order = malloc((size_t)(longest + 1) * sizeof *order);
    *values = malloc((size_t)found.room * sizeof **values);
    *columns = malloc((size_t)found.room * sizeof **columns);
    Gathered own;
    int is_done = make_gathered(&own, features, most, longest) && weights && alphas && order && *values && *columns;
    int64_t done = is_done ? 1 : NO_MEMORY;
    starts[0] = 0;
    for (int64_t label = 0; done == 1 && label < examples.rows; label++) {
        int32_t first = examples.starts[label];
        Examples some = {texts, examples.columns + first, examples.values + first, examples.starts[label + 1] - first};
        uint64_t state = 0x9E3779B97F4A7C15u * (uint64_t)(label + 1);
        if (count_entries(texts, examples, label) <= GATHERED) {
            if (!gather(&own, &some, features)) {
                done = WRONG;
                break;
            }
            fit_one(some, own.used, descent, state, weights, alphas, order);
            biases[label] = weights[own.used];
            for (int64_t at = 0; done == 1 && at < own.used; at++)
                if (fabsf(weights[at]) >= descent.least && !keep_weight(&found, weights[at], own.features[at], descent.least)) done = NO_MEMORY;
            memset(weights, 0, (size_t)(own.used + 1) * sizeof *weights);
        } else {
            if (!have_features(some, features)) {
                done = WRONG;
                break;
            }
            fit_one(some, features, descent, state, weights, alphas, order);
            biases[label] = weights[features];
            weights[features] = 0;
            for (int64_t at = 0; at < some.count; at++) {
                int32_t text = some.rows[at];
                for (int32_t entry = texts.starts[text]; entry < texts.starts[text + 1]; entry++) {
                    int32_t column = texts.columns[entry];
                    if (done == 1 && !keep_weight(&found, weights[column], column, descent.least)) done = NO_MEMORY;
                    weights[column] = 0;
                }
            }
        }
        starts[label + 1] = (int32_t)found.kept;
    }
    free_gathered(&own);
    free(weights);
    free(alphas);
    free(order);
    return done == 1 ? found.kept : done;
}

/* The scores of the candidates of texts, an id below 0 as label 0; 1, WRONG or NO_MEMORY. */
int64_t score_linear(Linear linear, const int64_t *ids, int64_t width, float *scores) {
    Csr rows = linear.rows, weights = linear.weights;
    if (!is_whole(rows)) return WRONG;
    float *sums = calloc((size_t)linear.labels + 1, sizeof *sums);
    if (!sums) return NO_MEMORY;
    int64_t done = 1;
    for (int64_t text = 0; done == 1 && text < rows.rows; text++, ids += width, scores += width) {
        int64_t entries = 0;
        for (int32_t at = rows.starts[text]; at < rows.starts[text + 1]; at++) {
            int32_t feature = rows.columns[at];
            int is_there = feature >= 0 && feature < weights.rows;
            if (!is_there || weights.starts[feature] < 0 || weights.starts[feature] > weights.starts[feature + 1] ||
                weights.starts[feature + 1] > weights.entries) {
                done = WRONG;
                goto done;
            }
            PREFETCH(weights.columns + weights.starts[feature]);
            PREFETCH(weights.values + weights.starts[feature]);
            entries += weights.starts[feature + 1] - weights.starts[feature];
        }
        for (int32_t at = rows.starts[text]; at < rows.starts[text + 1]; at++) {
            float value = rows.values[at];
            for (int32_t entry = weights.starts[rows.columns[at]]; entry < weights.starts[rows.columns[at] + 1]; entry++) {
                int32_t label = weights.columns[entry];
                if (label < 0 || label >= linear.labels) {
                    done = WRONG;
                    goto done;
                }
                sums[label] += value * weights.values[entry];
            }
        }
        for (int64_t at = 0; at < width; at++) {
            int64_t label = ids[at] < 0 ? 0 : ids[at];
            scores[at] = label < linear.labels ? sums[label] + linear.biases[label] : linear.none;
        }
        /* To clear all sums in one piece is faster than to find again those that were touched, unless they are few. */
        if (entries > linear.labels / 16)
            memset(sums, 0, (size_t)linear.labels * sizeof *sums);
        else
            for (int32_t at = rows.starts[text]; at < rows.starts[text + 1]; at++)
                for (int32_t entry = weights.starts[rows.columns[at]]; entry < weights.starts[rows.columns[at] + 1]; entry++)
                    sums[weights.columns[entry]] = 0;
    }
done:
    free(sums);
    return done;
}
