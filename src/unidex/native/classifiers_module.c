/* The fit of linear classifiers, and their scores. */
#include "bindings.h"

/* fit_classifiers(texts' values, columns, starts, examples' values, columns, starts, descent, biases, num_features,
   passes) -> values, columns, starts; the descent is cost, tolerance and least weight. */
PyObject *py_fit_classifiers(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    Buffers buffers;
    void *p[8];
    if (count != 10) return PyErr_Format(PyExc_TypeError, "fit_classifiers takes 10 arguments");
    if (!take_all(&buffers, arguments, 7, 1, p)) return NULL;
    Csr texts = matrix(&buffers, p, 0), examples = matrix(&buffers, p, 3);
    int64_t features = whole(arguments[8]), passes = whole(arguments[9]), entries = NO_MEMORY;
    if (!is_matrix(texts, &buffers, 0) || !is_matrix(examples, &buffers, 3) || features < 0 ||
        numbers(&buffers, 6, 4) != 3 || numbers(&buffers, 7, 4) != examples.rows)
        return finish(&buffers, NULL, SIZES);
    const float *asked = p[6];
    Descent descent = {asked[0], asked[1], asked[2], passes};
    float *values = NULL;
    int32_t *columns = NULL, *starts = malloc((size_t)(examples.rows + 1) * sizeof *starts);
    Py_BEGIN_ALLOW_THREADS
    if (starts) entries = fit_classifiers(texts, examples, features, descent, &values, &columns, starts, p[7]);
    Py_END_ALLOW_THREADS
    PyObject *result = NULL;
    if (entries >= 0) {
        PyObject *parts[3] = {bytes_of(values, entries * 4), bytes_of(columns, entries * 4),
                              bytes_of(starts, (examples.rows + 1) * 4)};
        result = tuple_of(3, parts);
    }
    free(values);
    free(columns);
    free(starts);
    return unless_wrong(&buffers, result, entries);
}

/* The classifiers and rows of texts among the buffers from a place on; 0 where they do not fit each other. */
int take_linear(Buffers *buffers, void **pointers, int at, Linear *linear) {
    *linear = (Linear){matrix(buffers, pointers, at), matrix(buffers, pointers, at + 3), pointers[at + 6],
                       numbers(buffers, at + 6, 4), *(float *)pointers[at + 7]};
    return is_matrix(linear->rows, buffers, at) && is_matrix(linear->weights, buffers, at + 3);
}

/* score_linear(rows' values, columns, starts, weights' values, columns, starts, biases, score of none, ids, scores) */
PyObject *py_score_linear(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    Buffers buffers;
    void *p[10];
    Linear linear;
    if (count != 10) return PyErr_Format(PyExc_TypeError, "score_linear takes 10 arguments");
    if (!take_all(&buffers, arguments, 9, 1, p)) return NULL;
    int64_t size = numbers(&buffers, 8, 8);
    if (numbers(&buffers, 7, 4) != 1 || !take_linear(&buffers, p, 0, &linear) || numbers(&buffers, 9, 4) != size ||
        (linear.rows.rows ? size % linear.rows.rows : size))
        return finish(&buffers, NULL, SIZES);
    int64_t done;
    Py_BEGIN_ALLOW_THREADS
    done = score_linear(linear, p[8], linear.rows.rows ? size / linear.rows.rows : 0, p[9]);
    Py_END_ALLOW_THREADS
    return unless_wrong(&buffers, done == 1 ? Py_NewRef(Py_None) : NULL, done);
}
