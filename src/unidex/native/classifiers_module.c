/* The fit of linear classifiers. */
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
