/* The module itself, and what its functions share. */
#include "bindings.h"

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
int take_all(Buffers *buffers, PyObject *const *arguments, int reads, int writes, void **pointers) {
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

int64_t numbers(Buffers *buffers, int at, size_t size) { return (int64_t)((size_t)buffers->own[at].len / size); }

int64_t whole(PyObject *number) { return PyLong_AsLongLong(number); }

PyObject *finish(Buffers *buffers, PyObject *result, const char *problem) {
    release(buffers);
    if (!problem) return result;
    PyErr_SetString(PyExc_ValueError, problem);
    return NULL;
}

const char *const SIZES = "sizes of arrays must fit each other, but do not";
const char *const NUMBERS = "numbers of an array must be within another, but are not";
const char *const MEMORY = "there must be memory for the result, but there is not";

Csr matrix(Buffers *buffers, void **pointers, int at) {
    return (Csr){pointers[at], pointers[at + 1], pointers[at + 2], numbers(buffers, at + 2, 4) - 1, numbers(buffers, at + 1, 4)};
}

int is_matrix(Csr matrix, Buffers *buffers, int at) {
    if (matrix.rows < 0 || numbers(buffers, at, 4) != matrix.entries) return 0;
    return matrix.starts[0] == 0 && matrix.starts[matrix.rows] <= matrix.entries;
}

/* Texts from a list of strings; free the memory after use. NULL with an error. */
void *take_texts(PyObject *list, Texts *texts) {
    Py_ssize_t count = PyList_Size(list), total = 0;
    if (count < 0) return NULL;
    *texts = (Texts){NULL, NULL, count, 0};
    for (Py_ssize_t at = 0; at < count; at++) {
        Py_ssize_t length = PyUnicode_GetLength(PyList_GetItem(list, at));
        if (length < 0) return NULL;
        total += length;
        if (length > texts->longest) texts->longest = length;
    }
    int64_t *lengths = malloc((size_t)count * sizeof *lengths + ((size_t)total + 1) * sizeof(uint32_t));
    if (!lengths) return PyErr_NoMemory();
    uint32_t *codes = (uint32_t *)(lengths + count);
    texts->lengths = lengths;
    texts->codes = codes;
    for (Py_ssize_t at = 0; at < count; at++) {
        PyObject *text = PyList_GetItem(list, at);
        lengths[at] = PyUnicode_GetLength(text);
        if (lengths[at] && !PyUnicode_AsUCS4(text, codes, lengths[at], 0)) {
            free(lengths);
            return NULL;
        }
        codes += lengths[at];
    }
    return lengths;
}

enum { NUM_CODE_POINTS = 0x110000 };

/* The tables of code points among the buffers from a place on; 0 where they are not those. */
int take_points(Buffers *buffers, void **pointers, int at, CodePoints *points) {
    *points = (CodePoints){pointers[at], pointers[at + 1], pointers[at + 2]};
    return numbers(buffers, at, 1) == NUM_CODE_POINTS && numbers(buffers, at + 1, 4) == NUM_CODE_POINTS &&
           numbers(buffers, at + 2, 1) == NUM_CODE_POINTS >> 8;
}

/* Ascending keys and where those of the same first bits start; 0 where they do not fit each other. */
int take_keys(Buffers *buffers, void **pointers, int at, Keys *keys) {
    int64_t starts = numbers(buffers, at + 1, 4) - 1;
    *keys = (Keys){pointers[at], pointers[at + 1], numbers(buffers, at, 8), 64};
    while (starts > 1 && starts >> (64 - keys->shift) > 1) keys->shift--;
    return starts == (int64_t)1 << (64 - keys->shift) && keys->shift < 64 && keys->starts[starts] == keys->size;
}

PyObject *bytes_of(const void *content, int64_t size) {
    return PyByteArray_FromStringAndSize(content, (Py_ssize_t)size);
}

/* A tuple of new objects, which it takes; NULL with an error where one is missing. */
PyObject *tuple_of(int count, PyObject **parts) {
    PyObject *found = PyTuple_New(count);
    for (int at = 0; at < count; at++) {
        if (found && parts[at]) PyTuple_SetItem(found, at, parts[at]);
        else {
            Py_XDECREF(parts[at]);
            Py_CLEAR(found);
        }
    }
    return found;
}

PyObject *unless_wrong(Buffers *buffers, PyObject *result, int64_t entries) {
    return finish(buffers, result, entries == WRONG ? NUMBERS : entries == NO_MEMORY ? MEMORY : NULL);
}

#define KERNEL(name) {#name, (PyCFunction)(void (*)(void))py_##name, METH_FASTCALL, NULL},
static PyMethodDef kernels[] = {KERNELS(KERNEL){NULL, NULL, 0, NULL}};
/* Raised with every change of a function, here and in `unidex.native`. */
static int set_version(PyObject *module) { return PyModule_AddIntConstant(module, "version", 10); }
static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)set_version}, {0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_kernels", NULL, 0, kernels, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__kernels(void) { return PyModuleDef_Init(&definition); }
