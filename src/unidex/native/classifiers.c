/* Linear classifiers of labels, by coordinate descent on the dual of the squared hinge (unidex.training.linear_fit). */
#include "kernels.h"

#include <math.h>

/* The inner product of a row with weights, in four sums: a processor adds them side by side. */
static float product(Csr texts, int32_t text, const float *weights) {
    float sums[4] = {0, 0, 0, 0};
    int32_t at = texts.starts[text], end = texts.starts[text + 1];
    for (; at + 4 <= end; at += 4)
        for (int lane = 0; lane < 4; lane++) sums[lane] += weights[texts.columns[at + lane]] * texts.values[at + lane];
    for (; at < end; at++) sums[0] += weights[texts.columns[at]] * texts.values[at];
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
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

/* Fit one label to its examples, whose values are 1 or -1. The weights, all 0 before, have the bias behind them. */
static void fit_one(Csr texts, Csr examples, int64_t label, int64_t features, Descent descent, uint64_t state,
                    float *weights, float *alphas, int32_t *order) {
    int32_t first = examples.starts[label];
    int64_t count = examples.starts[label + 1] - first;
    const float ridge = 0.5f / descent.cost;
    for (int64_t at = 0; at < count; at++) {
        alphas[at] = 0;
        order[at] = (int32_t)at;
    }
    for (int64_t pass = 0; pass < descent.passes; pass++) {
        float largest = 0;
        shuffle(order, count, &state);
        for (int64_t place = 0; place < count; place++) {
            int32_t at = order[place], text = examples.columns[first + at];
            if (place + 1 < count) fetch_row(texts, examples.columns[first + order[place + 1]]);
            float side = examples.values[first + at], alpha = alphas[at];
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

/* Whether every example is a text, whose columns are features. Other texts are not looked at: there may be millions of
   them, and each block of labels comes here. */
static int are_texts(Csr texts, Csr examples, int64_t features) {
    for (int32_t at = examples.starts[0]; at < examples.starts[examples.rows]; at++) {
        int32_t text = examples.columns[at];
        if (text < 0 || text >= texts.rows) return 0;
        if (texts.starts[text] < 0 || texts.starts[text] > texts.starts[text + 1] ||
            texts.starts[text + 1] > texts.entries)
            return 0;
        for (int32_t entry = texts.starts[text]; entry < texts.starts[text + 1]; entry++)
            if (texts.columns[entry] < 0 || texts.columns[entry] >= features) return 0;
    }
    return 1;
}

/* Classifiers of all labels: the weights that are not below the least one, label after label, where each label starts,
   and the biases. The number of weights, WRONG or NO_MEMORY. */
int64_t fit_classifiers(Csr texts, Csr examples, int64_t features, Descent descent, float **values, int32_t **columns,
                        int32_t *starts, float *biases) {
    int64_t kept = 0, room = 1 << 16, longest = 0;
    if (!is_whole(examples) || !are_texts(texts, examples, features)) return WRONG;
    for (int64_t label = 0; label < examples.rows; label++)
        if (examples.starts[label + 1] - examples.starts[label] > longest)
            longest = examples.starts[label + 1] - examples.starts[label];
    float *weights = calloc((size_t)features + 1, sizeof *weights), *alphas = malloc((size_t)(longest + 1) * sizeof *alphas);
    int32_t *order = malloc((size_t)(longest + 1) * sizeof *order);
    *values = malloc((size_t)room * sizeof **values);
    *columns = malloc((size_t)room * sizeof **columns);
    int is_done = weights && alphas && order && *values && *columns;
    starts[0] = 0;
    for (int64_t label = 0; is_done && label < examples.rows; label++) {
        int32_t first = examples.starts[label];
        uint64_t state = 0x9E3779B97F4A7C15u * (uint64_t)(label + 1);
        fit_one(texts, examples, label, features, descent, state, weights, alphas, order);
        biases[label] = weights[features];
        weights[features] = 0;
        for (int32_t at = first; is_done && at < examples.starts[label + 1]; at++) {
            int32_t text = examples.columns[at];
            for (int32_t entry = texts.starts[text]; entry < texts.starts[text + 1]; entry++) {
                int32_t column = texts.columns[entry];
                float weight = weights[column];
                weights[column] = 0;
                if (weight == 0 || fabsf(weight) < descent.least) continue;
                if (kept == room) {
                    float *more_values = realloc(*values, (size_t)(room * 2) * sizeof *more_values);
                    if (more_values) *values = more_values;
                    int32_t *more_columns = realloc(*columns, (size_t)(room * 2) * sizeof *more_columns);
                    if (more_columns) *columns = more_columns;
                    room *= 2;
                    if (!more_values || !more_columns || room > INT32_MAX) {
                        is_done = 0;
                        break;
                    }
                }
                (*values)[kept] = weight;
                (*columns)[kept++] = column;
            }
        }
        starts[label + 1] = (int32_t)kept;
    }
    free(weights);
    free(alphas);
    free(order);
    return is_done ? kept : NO_MEMORY;
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
