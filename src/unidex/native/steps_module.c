/* Functions of a training step. */
#include "bindings.h"

/* used_columns(values, columns, starts, ids, values, places, starts, num_columns) -> the number of columns used */
PyObject *py_used_columns(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    Buffers buffers;
    void *p[7];
    if (count != 8) return PyErr_Format(PyExc_TypeError, "used_columns takes 8 arguments");
    if (!take_all(&buffers, arguments, 3, 4, p)) return NULL;
    Csr rows = matrix(&buffers, p, 0);
    int64_t columns = whole(arguments[7]);
    if (!is_matrix(rows, &buffers, 0) || columns < 0 || numbers(&buffers, 3, 8) != rows.entries ||
        numbers(&buffers, 4, 4) != rows.entries || numbers(&buffers, 5, 4) != rows.entries ||
        numbers(&buffers, 6, 4) != rows.entries + 1)
        return finish(&buffers, NULL, SIZES);
    int64_t used;
    Py_BEGIN_ALLOW_THREADS
    used = used_columns(rows, columns, p[3], p[4], p[5], p[6]);
    Py_END_ALLOW_THREADS
    return unless_wrong(&buffers, used >= 0 ? PyLong_FromLongLong(used) : NULL, used);
}

/* adagrad_rows(rate, ids, gradient, sums, table, dim) */
PyObject *py_adagrad_rows(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    Buffers buffers;
    void *p[5];
    if (count != 6) return PyErr_Format(PyExc_TypeError, "adagrad_rows takes 6 arguments");
    if (!take_all(&buffers, arguments, 3, 2, p)) return NULL;
    int64_t dim = whole(arguments[5]), ids = numbers(&buffers, 1, 8), rows = numbers(&buffers, 3, 4);
    if (dim < 1 || numbers(&buffers, 0, 4) != 1 || numbers(&buffers, 2, 4) != ids * dim ||
        numbers(&buffers, 4, 4) != rows * dim)
        return finish(&buffers, NULL, SIZES);
    int is_done;
    Py_BEGIN_ALLOW_THREADS
    is_done = adagrad_rows(p[1], p[2], ids, dim, *(const float *)p[0], p[3], p[4], rows);
    Py_END_ALLOW_THREADS
    return finish(&buffers, is_done ? Py_NewRef(Py_None) : NULL, is_done ? NULL : NUMBERS);
}
