/* Functions of a softmax in both directions. Scores are one array of rows that start a stride apart. */
#include "bindings.h"

/* Rows of so many numbers that start a stride apart, with nothing behind the last one. */
static int is_grid(int64_t size, int64_t rows, int64_t columns, int64_t stride) {
    return rows > 0 && columns > 0 && stride >= columns && size == (rows - 1) * stride + columns;
}

/* highest(scores, of_rows, of_columns, stride) */
PyObject *py_highest(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    Buffers buffers;
    void *p[3];
    if (count != 4) return PyErr_Format(PyExc_TypeError, "highest takes 4 arguments");
    if (!take_all(&buffers, arguments, 1, 2, p)) return NULL;
    int64_t stride = whole(arguments[3]), rows = numbers(&buffers, 1, 4), columns = numbers(&buffers, 2, 4);
    if (!is_grid(numbers(&buffers, 0, 4), rows, columns, stride)) return finish(&buffers, NULL, SIZES);
    Py_BEGIN_ALLOW_THREADS
    highest(p[0], rows, columns, stride, p[1], p[2]);
    Py_END_ALLOW_THREADS
    return finish(&buffers, Py_NewRef(Py_None), NULL);
}

/* exponentials(bounds, factors, scores, of_rows, of_blocks, room, stride, at_once); bounds are the top and the lowest
   number, and there are no factors or one per column */
PyObject *py_exponentials(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    Buffers buffers;
    void *p[6];
    if (count != 8) return PyErr_Format(PyExc_TypeError, "exponentials takes 8 arguments");
    if (!take_all(&buffers, arguments, 2, 4, p)) return NULL;
    int64_t stride = whole(arguments[6]), at_once = whole(arguments[7]), rows = numbers(&buffers, 3, 4);
    int64_t blocks = at_once > 0 ? (rows + at_once - 1) / at_once : 0;
    int64_t columns = blocks > 0 ? numbers(&buffers, 4, 4) / blocks : 0, factors = numbers(&buffers, 1, 4);
    if (numbers(&buffers, 0, 4) != 2 || !is_grid(numbers(&buffers, 2, 4), rows, columns, stride) ||
        numbers(&buffers, 4, 4) != blocks * columns || (factors && factors != columns) ||
        numbers(&buffers, 5, 4) < columns)
        return finish(&buffers, NULL, SIZES);
    const float *bounds = p[0];
    Py_BEGIN_ALLOW_THREADS
    exponentials(p[2], rows, columns, stride, bounds[0], bounds[1], factors ? p[1] : NULL, at_once, p[3], p[4], p[5]);
    Py_END_ALLOW_THREADS
    return finish(&buffers, Py_NewRef(Py_None), NULL);
}

/* multiply_pushes(of_rows, factors, of_columns, scores, stride); there are no factors or one per column */
PyObject *py_multiply_pushes(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    Buffers buffers;
    void *p[4];
    if (count != 5) return PyErr_Format(PyExc_TypeError, "multiply_pushes takes 5 arguments");
    if (!take_all(&buffers, arguments, 3, 1, p)) return NULL;
    int64_t stride = whole(arguments[4]), rows = numbers(&buffers, 0, 4), columns = numbers(&buffers, 2, 4);
    int64_t factors = numbers(&buffers, 1, 4);
    if (!is_grid(numbers(&buffers, 3, 4), rows, columns, stride) || (factors && factors != columns))
        return finish(&buffers, NULL, SIZES);
    Py_BEGIN_ALLOW_THREADS
    multiply_pushes(p[3], rows, columns, stride, p[0], factors ? p[1] : NULL, p[2]);
    Py_END_ALLOW_THREADS
    return finish(&buffers, Py_NewRef(Py_None), NULL);
}
