/* The kernels as a Python module. Arrays come as contiguous buffers, whose sizes are checked; `unidex.native` says what
   is in them. */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include "kernels.h"

#define MAX_BUFFERS 20

typedef struct {
    Py_buffer own[MAX_BUFFERS];
    int count;
} Buffers;

static void release(Buffers *buffers) {
    for (int at = 0; at < buffers->count; at++) PyBuffer_Release(&buffers->own[at]);
}

/* The next buffer of arguments, or NULL with an error. */
static void *take(Buffers *buffers, PyObject *array, int is_writable) {
    Py_buffer *buffer = &buffers->own[buffers->count];
    if (PyObject_GetBuffer(array, buffer, is_writable ? PyBUF_WRITABLE : PyBUF_SIMPLE) < 0) return NULL;
    buffers->count++;
    return buffer->buf;
}

/* Fill the pointers from arguments, the first ones to read from and the others to write to. */
static int take_all(Buffers *buffers, PyObject *const *arguments, int reads, int writes, void **pointers) {
    buffers->count = 0;
    for (int at = 0; at < reads + writes; at++) {
        pointers[at] = take(buffers, arguments[at], at >= reads);
        if (PyErr_Occurred()) {
            release(buffers);
            return 0;
        }
    }
    return 1;
}

static int64_t numbers(Buffers *buffers, int at, size_t size) { return (int64_t)((size_t)buffers->own[at].len / size); }

static int64_t whole(PyObject *number) { return PyLong_AsLongLong(number); }

static PyObject *finish(Buffers *buffers, PyObject *result, const char *problem) {
    release(buffers);
    if (!problem) return result;
    PyErr_SetString(PyExc_ValueError, problem);
    return NULL;
}

static const char *const SIZES = "sizes of arrays must fit each other, but do not";
static const char *const NUMBERS = "numbers of an array must be within another, but are not";
static const char *const MEMORY = "there must be memory for the result, but there is not";

static Csr matrix(Buffers *buffers, void **pointers, int at) {
    return (Csr){pointers[at], pointers[at + 1], pointers[at + 2], numbers(buffers, at + 2, 4) - 1, numbers(buffers, at + 1, 4)};
}

static int is_matrix(Csr matrix, Buffers *buffers, int at) {
    if (matrix.rows < 0 || numbers(buffers, at, 4) != matrix.entries) return 0;
    return matrix.starts[0] == 0 && matrix.starts[matrix.rows] <= matrix.entries;
}

static int64_t sum(const int64_t *counts, int64_t rows) {
    int64_t total = 0;
    for (int64_t row = 0; row < rows; row++) {
        if (counts[row] < 0) return -1;
        total += counts[row];
    }
    return total;
}

static PyObject *bytes_of(const void *content, int64_t size) {
    return PyByteArray_FromStringAndSize(content, (Py_ssize_t)size);
}

/* bigrams(words, counts, keys, ids, found, buckets, id_bits) -> number */
static PyObject *py_bigrams(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    Buffers buffers;
    void *p[5];
    if (count != 7) return PyErr_Format(PyExc_TypeError, "bigrams takes 7 arguments");
    if (!take_all(&buffers, arguments, 4, 1, p)) return NULL;
    int64_t rows = numbers(&buffers, 1, 8), words = numbers(&buffers, 0, 8);
    Vocabulary vocabulary = {p[2], p[3], numbers(&buffers, 2, 8), whole(arguments[5])};
    int id_bits = (int)whole(arguments[6]);
    if (sum(p[1], rows) != words || numbers(&buffers, 3, 4) != vocabulary.size || numbers(&buffers, 4, 8) < words)
        return finish(&buffers, NULL, SIZES);
    int64_t number = find_bigrams(p[0], p[1], rows, vocabulary, id_bits, p[4]);
    return finish(&buffers, PyLong_FromLongLong(number), NULL);
}

/* weigh_rows(idf, tf_table, occurrences, counts, ids, weights, id_bits) -> number of entries */
static PyObject *py_weigh_rows(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    Buffers buffers;
    void *p[6];
    if (count != 7) return PyErr_Format(PyExc_TypeError, "weigh_rows takes 7 arguments");
    if (!take_all(&buffers, arguments, 2, 4, p)) return NULL;
    int64_t number = numbers(&buffers, 2, 8), size = numbers(&buffers, 1, 8);
    if (numbers(&buffers, 4, 4) < number || numbers(&buffers, 5, 4) < number) return finish(&buffers, NULL, SIZES);
    int64_t entries;
    Py_BEGIN_ALLOW_THREADS
    entries = weigh_rows(p[2], number, numbers(&buffers, 3, 8), (int)whole(arguments[6]), p[0],
                         numbers(&buffers, 0, 4), size ? p[1] : NULL, size, p[3], p[4], p[5]);
    Py_END_ALLOW_THREADS
    if (entries < 0) return finish(&buffers, NULL, entries == -1 ? NUMBERS : MEMORY);
    return finish(&buffers, PyLong_FromLongLong(entries), NULL);
}

/* sum_rows(values, columns, starts, codes, scales, sums, dim, block) */
static PyObject *py_sum_rows(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    Buffers buffers;
    void *p[6];
    if (count != 8) return PyErr_Format(PyExc_TypeError, "sum_rows takes 8 arguments");
    if (!take_all(&buffers, arguments, 5, 1, p)) return NULL;
    int64_t dim = whole(arguments[6]), block = whole(arguments[7]);
    Csr texts = matrix(&buffers, p, 0);
    if (dim < 1 || block < 1 || !is_matrix(texts, &buffers, 0)) return finish(&buffers, NULL, SIZES);
    int64_t rows = numbers(&buffers, 3, 1) / dim, blocks = (dim + block - 1) / block;
    if (numbers(&buffers, 4, 4) != rows * blocks || numbers(&buffers, 5, 4) != texts.rows * dim)
        return finish(&buffers, NULL, SIZES);
    int is_done;
    Py_BEGIN_ALLOW_THREADS
    is_done = sum_rows(texts, p[3], p[4], rows, dim, block, p[5]);
    Py_END_ALLOW_THREADS
    return finish(&buffers, is_done ? Py_NewRef(Py_None) : NULL, is_done ? NULL : NUMBERS);
}

/* multiply(values, columns, starts, values, columns, starts, num_columns) -> values, columns, starts */
static PyObject *py_multiply(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    Buffers buffers;
    void *p[6];
    if (count != 7) return PyErr_Format(PyExc_TypeError, "multiply takes 7 arguments");
    if (!take_all(&buffers, arguments, 6, 0, p)) return NULL;
    Csr left = matrix(&buffers, p, 0), right = matrix(&buffers, p, 3);
    int64_t columns = whole(arguments[6]), entries = -1;
    if (!is_matrix(left, &buffers, 0) || !is_matrix(right, &buffers, 3) || columns < 0)
        return finish(&buffers, NULL, SIZES);
    float *values = NULL;
    int32_t *places = NULL, *starts = malloc((size_t)(left.rows + 1) * sizeof *starts);
    Py_BEGIN_ALLOW_THREADS
    entries = starts ? multiply(left, right, columns, &values, &places, starts) : -2;
    Py_END_ALLOW_THREADS
    PyObject *result = NULL;
    if (entries >= 0) {
        PyObject *parts[3] = {bytes_of(values, entries * 4), bytes_of(places, entries * 4), bytes_of(starts, (left.rows + 1) * 4)};
        if (parts[0] && parts[1] && parts[2]) result = PyTuple_Pack(3, parts[0], parts[1], parts[2]);
        for (int at = 0; at < 3; at++) Py_XDECREF(parts[at]);
    }
    free(values);
    free(places);
    free(starts);
    return finish(&buffers, result, entries >= 0 ? NULL : entries == -1 ? NUMBERS : MEMORY);
}

/* rank_places(ids, scores, best_ids, best_scores, rows) -> whether it could */
static PyObject *py_rank_places(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    Buffers buffers;
    void *p[4];
    if (count != 5) return PyErr_Format(PyExc_TypeError, "rank_places takes 5 arguments");
    if (!take_all(&buffers, arguments, 2, 2, p)) return NULL;
    int64_t rows = whole(arguments[4]), all = numbers(&buffers, 0, 8), best = numbers(&buffers, 2, 8);
    if (rows < 1 || all % rows || best % rows || numbers(&buffers, 1, 4) != all || numbers(&buffers, 3, 4) != best)
        return finish(&buffers, NULL, SIZES);
    int is_done;
    Py_BEGIN_ALLOW_THREADS
    is_done = rank_places(p[0], p[1], rows, all / rows, best / rows, p[2], p[3]);
    Py_END_ALLOW_THREADS
    return finish(&buffers, PyBool_FromLong(is_done), NULL);
}

/* best_entries(values, columns, starts, best_ids, best_scores) -> whether it could */
static PyObject *py_best_entries(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    Buffers buffers;
    void *p[5];
    if (count != 5) return PyErr_Format(PyExc_TypeError, "best_entries takes 5 arguments");
    if (!take_all(&buffers, arguments, 3, 2, p)) return NULL;
    Csr found = matrix(&buffers, p, 0);
    int64_t best = numbers(&buffers, 3, 8);
    if (!is_matrix(found, &buffers, 0) || numbers(&buffers, 4, 4) != best || (found.rows ? best % found.rows : best))
        return finish(&buffers, NULL, SIZES);
    int is_done;
    Py_BEGIN_ALLOW_THREADS
    is_done = best_entries(found, found.rows ? best / found.rows : 0, p[3], p[4]);
    Py_END_ALLOW_THREADS
    return finish(&buffers, PyBool_FromLong(is_done), NULL);
}

/* weigh_columns(counts, idf, frequencies, columns, starts, weights) -> number of entries; columns change in place */
static PyObject *py_weigh_columns(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    Buffers buffers;
    void *p[6];
    if (count != 6) return PyErr_Format(PyExc_TypeError, "weigh_columns takes 6 arguments");
    if (!take_all(&buffers, arguments, 3, 3, p)) return NULL;
    int64_t rows = numbers(&buffers, 0, 8), all = numbers(&buffers, 1, 8), total = numbers(&buffers, 3, 4);
    if (sum(p[0], rows) != total || numbers(&buffers, 2, 4) != all || numbers(&buffers, 4, 4) != rows + 1 ||
        numbers(&buffers, 5, 4) < total)
        return finish(&buffers, NULL, SIZES);
    int64_t entries;
    Py_BEGIN_ALLOW_THREADS
    entries = weigh_columns(p[3], p[0], rows, p[1], p[2], all / 2, p[4], p[5]);
    Py_END_ALLOW_THREADS
    if (entries < 0) return finish(&buffers, NULL, entries == -1 ? NUMBERS : MEMORY);
    return finish(&buffers, PyLong_FromLongLong(entries), NULL);
}

/* share_columns(values, columns, starts, idf, values, columns, starts, label_words, label_norms, pair_texts,
   pair_labels, found); pairs of one text follow each other */
static PyObject *py_share_columns(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    Buffers buffers;
    void *p[12];
    if (count != 12) return PyErr_Format(PyExc_TypeError, "share_columns takes 12 arguments");
    if (!take_all(&buffers, arguments, 11, 1, p)) return NULL;
    Csr texts = matrix(&buffers, p, 0);
    LabelWords labels = {matrix(&buffers, p, 4), p[7], p[8]};
    int64_t pairs = numbers(&buffers, 9, 8), *pair_texts = p[9], *pair_labels = p[10], text = -1;
    double *found = p[11];
    if (!is_matrix(texts, &buffers, 0) || !is_matrix(labels.rows, &buffers, 4) ||
        numbers(&buffers, 7, 8) != labels.rows.rows || numbers(&buffers, 8, 8) != labels.rows.rows ||
        numbers(&buffers, 10, 8) != pairs || numbers(&buffers, 11, 8) != 3 * pairs)
        return finish(&buffers, NULL, SIZES);
    TextWords *words = text_words(texts, p[3], numbers(&buffers, 3, 8) / 2);
    if (!words) return finish(&buffers, NULL, MEMORY);
    int is_done = 1;
    Py_BEGIN_ALLOW_THREADS
    for (int64_t pair = 0; is_done && pair < pairs; pair++) {
        if (pair_texts[pair] != text) is_done = read_text(words, text = pair_texts[pair]);
        if (is_done) is_done = share_words(words, labels, pair_labels[pair], found + 3 * pair);
    }
    Py_END_ALLOW_THREADS
    free_words(words);
    return finish(&buffers, is_done ? Py_NewRef(Py_None) : NULL, is_done ? NULL : NUMBERS);
}

/* describe_pairs(ids, heads, weights, knn values, columns, starts, nearest, priors, frequencies, idf, texts' values,
   columns, starts, labels' values, columns, starts, label_words, label_norms, found) */
static PyObject *py_describe_pairs(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
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

/* score_trees(features, ends, thresholds, leaves, values, firsts, columns, scores, num_columns) */
static PyObject *py_score_trees(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    Buffers buffers;
    void *p[8];
    if (count != 9) return PyErr_Format(PyExc_TypeError, "score_trees takes 9 arguments");
    if (!take_all(&buffers, arguments, 7, 1, p)) return NULL;
    Trees trees = {p[0], p[1], numbers(&buffers, 0, 8), p[2], p[3], p[4], p[5], numbers(&buffers, 5, 8)};
    int64_t pairs = numbers(&buffers, 7, 8), columns = whole(arguments[8]), thresholds = numbers(&buffers, 2, 4);
    int fits = numbers(&buffers, 1, 8) == trees.num_features && numbers(&buffers, 6, 4) == columns * pairs;
    fits &= numbers(&buffers, 3, 2) == (thresholds + trees.num_features) * trees.trees;
    for (int64_t at = 0; fits && at < trees.num_features; at++) {
        fits &= trees.features[at] >= 0 && trees.features[at] < columns;
        fits &= trees.ends[at] >= (at ? trees.ends[at - 1] : 0) && trees.ends[at] <= thresholds;
    }
    /* A set has at most 16 leaves. */
    for (int64_t tree = 0; fits && tree < trees.trees; tree++)
        fits &= trees.firsts[tree] >= 0 && trees.firsts[tree] < numbers(&buffers, 4, 8) - 15;
    if (!fits) return finish(&buffers, NULL, SIZES);
    int is_done;
    Py_BEGIN_ALLOW_THREADS
    is_done = score_trees(trees, p[6], pairs, p[7]);
    Py_END_ALLOW_THREADS
    return finish(&buffers, is_done ? Py_NewRef(Py_None) : NULL, is_done ? NULL : MEMORY);
}

#define KERNEL(name) {#name, (PyCFunction)(void (*)(void))py_##name, METH_FASTCALL, NULL}
static PyMethodDef kernels[] = {
    KERNEL(bigrams),       KERNEL(weigh_rows),   KERNEL(sum_rows),      KERNEL(multiply),       KERNEL(rank_places),
    KERNEL(best_entries),  KERNEL(weigh_columns), KERNEL(share_columns), KERNEL(describe_pairs), KERNEL(score_trees),
    {NULL, NULL, 0, NULL},
};
static PyModuleDef_Slot slots[] = {{0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_kernels", NULL, 0, kernels, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__kernels(void) { return PyModuleDef_Init(&definition); }
