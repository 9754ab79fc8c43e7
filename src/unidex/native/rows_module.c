/* Functions on rows and on places. */
#include "bindings.h"

/* sum_rows(values, columns, starts, codes, scales, sums, dim, block) */
PyObject *py_sum_rows(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
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

/* read_bytes(compressed, bytes) -> whether it could */
PyObject *py_read_bytes(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    Buffers buffers;
    void *p[2];
    if (count != 2) return PyErr_Format(PyExc_TypeError, "read_bytes takes 2 arguments");
    if (!take_all(&buffers, arguments, 1, 1, p)) return NULL;
    int64_t length = numbers(&buffers, 0, 1), size = numbers(&buffers, 1, 1);
    int is_done;
    Py_BEGIN_ALLOW_THREADS
    is_done = read_bytes(p[0], length, p[1], size);
    Py_END_ALLOW_THREADS
    return finish(&buffers, PyBool_FromLong(is_done), NULL);
}

/* multiply(values, columns, starts, values, columns, starts, num_columns) -> values, columns, starts */
PyObject *py_multiply(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
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
PyObject *py_rank_places(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
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
PyObject *py_best_entries(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
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

/* inner_products(queries, rows, ids, found, columns, dim, first, width) */
PyObject *py_inner_products(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    Buffers buffers;
    void *p[4];
    if (count != 8) return PyErr_Format(PyExc_TypeError, "inner_products takes 8 arguments");
    if (!take_all(&buffers, arguments, 3, 1, p)) return NULL;
    int64_t columns = whole(arguments[4]), dim = whole(arguments[5]), first = whole(arguments[6]);
    int64_t width = whole(arguments[7]), size = numbers(&buffers, 2, 8);
    int fits = columns > 0 && first >= 0 && first + columns <= dim && width > 0 && size % width == 0;
    fits = fits && numbers(&buffers, 0, 4) == size / width * columns && numbers(&buffers, 3, 4) == size;
    if (!fits || numbers(&buffers, 1, 4) % dim) return finish(&buffers, NULL, SIZES);
    int64_t num_rows = numbers(&buffers, 1, 4) / dim;
    int is_done;
    Py_BEGIN_ALLOW_THREADS
    is_done = inner_products(p[0], size / width, columns, p[1], num_rows, dim, first, p[2], width, p[3]);
    Py_END_ALLOW_THREADS
    return finish(&buffers, is_done ? Py_NewRef(Py_None) : NULL, is_done ? NULL : NUMBERS);
}

/* unit_rows(rows, lengths, found, dim, shortest); there are no lengths or one per row */
PyObject *py_unit_rows(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    Buffers buffers;
    void *p[3];
    if (count != 5) return PyErr_Format(PyExc_TypeError, "unit_rows takes 5 arguments");
    if (!take_all(&buffers, arguments, 1, 2, p)) return NULL;
    int64_t dim = whole(arguments[3]), size = numbers(&buffers, 0, 4), lengths = numbers(&buffers, 1, 4);
    if (dim < 1 || size % dim || numbers(&buffers, 2, 4) != size || (lengths && lengths != size / dim))
        return finish(&buffers, NULL, SIZES);
    float shortest = (float)PyFloat_AsDouble(arguments[4]);
    Py_BEGIN_ALLOW_THREADS
    unit_rows(p[0], size / dim, dim, shortest, lengths ? p[1] : NULL, p[2]);
    Py_END_ALLOW_THREADS
    return finish(&buffers, Py_NewRef(Py_None), NULL);
}

/* unit_gradient(gradient, unit, lengths, found, dim) */
PyObject *py_unit_gradient(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    Buffers buffers;
    void *p[4];
    if (count != 5) return PyErr_Format(PyExc_TypeError, "unit_gradient takes 5 arguments");
    if (!take_all(&buffers, arguments, 3, 1, p)) return NULL;
    int64_t dim = whole(arguments[4]), size = numbers(&buffers, 0, 4), rows = numbers(&buffers, 2, 4);
    if (dim < 1 || size != rows * dim || numbers(&buffers, 1, 4) != size || numbers(&buffers, 3, 4) != size)
        return finish(&buffers, NULL, SIZES);
    Py_BEGIN_ALLOW_THREADS
    unit_gradient(p[0], p[1], p[2], rows, dim, p[3]);
    Py_END_ALLOW_THREADS
    return finish(&buffers, Py_NewRef(Py_None), NULL);
}
