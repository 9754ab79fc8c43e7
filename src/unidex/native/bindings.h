/* The kernels as a Python module. Arrays come as contiguous buffers, whose sizes are checked; `unidex.native` says what
   is in them. */
#ifndef UNIDEX_BINDINGS_H
#define UNIDEX_BINDINGS_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include "kernels.h"

#define MAX_BUFFERS 64

typedef struct {
    Py_buffer own[MAX_BUFFERS];
    int count;
} Buffers;

extern const char *const SIZES, *const NUMBERS, *const MEMORY;

int take_all(Buffers *buffers, PyObject *const *arguments, int reads, int writes, void **pointers);
int64_t numbers(Buffers *buffers, int at, size_t size);
int64_t whole(PyObject *number);
PyObject *finish(Buffers *buffers, PyObject *result, const char *problem);
PyObject *unless_wrong(Buffers *buffers, PyObject *result, int64_t entries);
Csr matrix(Buffers *buffers, void **pointers, int at);
int is_matrix(Csr matrix, Buffers *buffers, int at);
void *take_texts(PyObject *list, Texts *texts);
int take_points(Buffers *buffers, void **pointers, int at, CodePoints *points);
int take_keys(Buffers *buffers, void **pointers, int at, Keys *keys);
PyObject *bytes_of(const void *content, int64_t size);
PyObject *tuple_of(int count, PyObject **parts);
int take_trees(Buffers *buffers, void **pointers, int at, int64_t columns, Trees *trees);
int take_linear(Buffers *buffers, void **pointers, int at, Linear *linear);
int take_matches(Buffers *buffers, void **pointers, int at, FoundMatches *found, MatchedLabels *labels);

#define KERNELS(X)                                                                                                     \
    X(text_rows) X(weigh_rows) X(lexical_rows) X(share_columns) X(find_matches) X(sum_rows) X(multiply)                \
    X(rank_places) X(best_entries) X(inner_products) X(unit_rows) X(unit_gradient) X(describe_matches) X(describe_pairs) X(score_trees)                 \
    X(search_labels) X(fit_classifiers) X(score_linear) X(used_columns) X(adagrad_rows) X(read_bytes) \
    X(highest) X(exponentials) X(multiply_pushes)
#define DECLARE(name) PyObject *py_##name(PyObject *self, PyObject *const *arguments, Py_ssize_t count);
KERNELS(DECLARE)

#endif
