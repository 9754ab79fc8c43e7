/* Functions that rank candidates. */
#include "bindings.h"

/* Matches and what is known of labels that match, among the buffers from a place on; 0 where sizes do not fit. */
int take_matches(Buffers *buffers, void **p, int at, FoundMatches *found, MatchedLabels *labels) {
    int64_t texts = numbers(buffers, at, 4) - 1, entries = numbers(buffers, at + 1, 4);
    *found = (FoundMatches){p[at], p[at + 1], p[at + 2], p[at + 3], p[at + 4], p[at + 5], numbers(buffers, at + 3, 4)};
    *labels = (MatchedLabels){p[at + 6], p[at + 7], numbers(buffers, at + 6, 8), p[at + 8], p[at + 9],
                              numbers(buffers, at + 8, 4)};
    int fits = texts >= 0 && numbers(buffers, at + 2, 8) == entries && found->starts[texts] == entries;
    fits = fits && numbers(buffers, at + 4, 4) == found->count && numbers(buffers, at + 5, 4) == found->count;
    return fits && numbers(buffers, at + 7, 8) == labels->rows && numbers(buffers, at + 9, 8) == labels->labels;
}

/* Trees among the buffers from a place on, over so many columns; 0 where a number is not within its array. */
int take_trees(Buffers *buffers, void **p, int at, int64_t columns, Trees *trees) {
    *trees = (Trees){p[at], p[at + 1], numbers(buffers, at, 8), p[at + 2], p[at + 3], p[at + 4], p[at + 5], p[at + 6],
                     numbers(buffers, at + 6, 8)};
    int64_t nodes = numbers(buffers, at + 2, 4);
    int fits = numbers(buffers, at + 1, 8) == trees->num_features;
    fits &= numbers(buffers, at + 3, 4) == nodes && numbers(buffers, at + 4, 4) == nodes;
    for (int64_t own = 0; fits && own < trees->num_features; own++) {
        fits &= trees->features[own] >= 0 && trees->features[own] < columns;
        fits &= trees->ends[own] >= (own ? trees->ends[own - 1] : 0) && trees->ends[own] <= nodes;
    }
    for (int64_t node = 0; fits && node < nodes; node++) fits &= trees->owners[node] >= 0 && trees->owners[node] < trees->trees;
    /* A set has at most 16 leaves. */
    for (int64_t tree = 0; fits && tree < trees->trees; tree++)
        fits &= trees->firsts[tree] >= 0 && trees->firsts[tree] < numbers(buffers, at + 5, 8) - 15;
    return fits;
}

/* describe_matches(ids, starts, labels, places, counts, firsts, rows, num_words, ambiguities, rates, texts, found) */
PyObject *py_describe_matches(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    Buffers buffers;
    void *p[12];
    if (count != 12) return PyErr_Format(PyExc_TypeError, "describe_matches takes 12 arguments");
    if (!take_all(&buffers, arguments, 11, 1, p)) return NULL;
    FoundMatches found;
    MatchedLabels labels;
    int fits = take_matches(&buffers, p, 1, &found, &labels);
    int64_t texts = numbers(&buffers, 1, 4) - 1, size = numbers(&buffers, 0, 8);
    if (!fits || texts < 1 || size % texts || numbers(&buffers, 11, 4) != 7 * size) return finish(&buffers, NULL, SIZES);
    int is_done = describe_matches(p[0], texts, size / texts, found, labels, p[11]);
    return finish(&buffers, is_done ? Py_NewRef(Py_None) : NULL, is_done ? NULL : NUMBERS);
}

/* describe_pairs(ids, heads, weights, knn values, columns, starts, nearest, priors, frequencies, idf, texts' values,
   columns, starts, labels' values, columns, starts, label_words, label_norms, found) */
PyObject *py_describe_pairs(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    Buffers buffers;
    void *p[19];
    if (count != 19) return PyErr_Format(PyExc_TypeError, "describe_pairs takes 19 arguments");
    if (!take_all(&buffers, arguments, 18, 1, p)) return NULL;
    Csr knn = matrix(&buffers, p, 3), texts = matrix(&buffers, p, 10);
    LabelWords label_words = {matrix(&buffers, p, 13), p[16], p[17]};
    int64_t rows = texts.rows, labels = label_words.rows.rows, all = numbers(&buffers, 0, 8);
    int64_t heads = numbers(&buffers, 2, 4) - 2, width = rows > 0 ? all / rows : 0;
    int fits = is_matrix(knn, &buffers, 3) && is_matrix(texts, &buffers, 10) && is_matrix(label_words.rows, &buffers, 13);
    fits = fits && heads > 0 && width * rows == all && numbers(&buffers, 1, 4) == heads * all && is_whole(knn);
    fits = fits && knn.rows == rows && numbers(&buffers, 6, 4) == rows && numbers(&buffers, 7, 4) == labels;
    fits = fits && numbers(&buffers, 8, 8) == labels && numbers(&buffers, 16, 8) == labels;
    fits = fits && numbers(&buffers, 17, 8) == labels && numbers(&buffers, 18, 4) == (3 * heads + 17) * all;
    if (!fits) return finish(&buffers, NULL, SIZES);
    Pairs pairs = {p[0], rows, width, p[1], p[2], heads, knn, p[6], p[7], p[8], labels, label_words, texts};
    TextWords *words = text_words(texts, p[9], numbers(&buffers, 9, 8) / 2);
    if (!words) return finish(&buffers, NULL, MEMORY);
    int is_done;
    Py_BEGIN_ALLOW_THREADS
    is_done = describe_pairs(pairs, words, p[18]);
    Py_END_ALLOW_THREADS
    free_words(words);
    if (is_done != 1) return finish(&buffers, NULL, is_done ? MEMORY : NUMBERS);
    return finish(&buffers, Py_NewRef(Py_None), NULL);
}

/* score_trees(features, ends, thresholds, trees, leaves, values, firsts, columns, scores, num_columns) */
PyObject *py_score_trees(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    Buffers buffers;
    void *p[9];
    if (count != 10) return PyErr_Format(PyExc_TypeError, "score_trees takes 10 arguments");
    if (!take_all(&buffers, arguments, 8, 1, p)) return NULL;
    Trees trees;
    int64_t pairs = numbers(&buffers, 8, 8), columns = whole(arguments[9]);
    if (!take_trees(&buffers, p, 0, columns, &trees) || numbers(&buffers, 7, 4) != columns * pairs)
        return finish(&buffers, NULL, SIZES);
    int is_done;
    Py_BEGIN_ALLOW_THREADS
    is_done = score_trees(trees, p[7], pairs, p[8]);
    Py_END_ALLOW_THREADS
    return finish(&buffers, is_done ? Py_NewRef(Py_None) : NULL, is_done ? NULL : MEMORY);
}
