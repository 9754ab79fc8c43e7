/* Functions that read texts. */
#include "bindings.h"

/* text_rows(texts, leads, classes, folded, filled, keys, starts, ids, idf, tf_table, buckets, is_parted, has_bigrams,
   shortest, longest, lead_weight) -> counts, ids, weights; None where the tables lack a code point */
PyObject *py_text_rows(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    Buffers buffers;
    void *p[8];
    if (count != 16) return PyErr_Format(PyExc_TypeError, "text_rows takes 16 arguments");
    if (!take_all(&buffers, arguments + 2, 8, 0, p)) return NULL;
    CodePoints points;
    Vocabulary vocabulary = {.ids = p[5], .idf = p[6], .features = numbers(&buffers, 6, 4), .tf_table = p[7],
                             .table_size = numbers(&buffers, 7, 8), .buckets = whole(arguments[10]),
                             .is_parted = (int)whole(arguments[11]), .has_bigrams = (int)whole(arguments[12]),
                             .shortest = whole(arguments[13]), .longest = whole(arguments[14])};
    if (!vocabulary.table_size) vocabulary.tf_table = NULL;
    float lead_weight = (float)PyFloat_AsDouble(arguments[15]);
    if (!take_points(&buffers, p, 0, &points) || !take_keys(&buffers, p, 3, &vocabulary.keys) ||
        numbers(&buffers, 5, 4) != vocabulary.keys.size || vocabulary.longest < 0 || vocabulary.buckets < 0)
        return finish(&buffers, NULL, SIZES);
    Texts texts, leads;
    void *memory = take_texts(arguments[0], &texts), *lead_memory = memory ? take_texts(arguments[1], &leads) : NULL;
    PyObject *result = NULL;
    if (memory && lead_memory && leads.count && leads.count != texts.count) PyErr_SetString(PyExc_ValueError, SIZES);
    else if (memory && lead_memory) {
        Growing ids = {0}, weights = {0};
        int64_t *counts = malloc(((size_t)texts.count + 1) * sizeof *counts), entries = NO_MEMORY;
        Py_BEGIN_ALLOW_THREADS
        if (counts) entries = text_rows(texts, leads, lead_weight, points, vocabulary, counts, &ids, &weights);
        Py_END_ALLOW_THREADS
        if (entries == NOT_FILLED) result = Py_NewRef(Py_None);
        else if (entries >= 0)
            result = tuple_of(3, (PyObject *[]){bytes_of(counts, texts.count * 8), bytes_of(ids.numbers, entries * 4),
                                                bytes_of(weights.numbers, entries * 4)});
        else PyErr_SetString(PyExc_ValueError, entries == WRONG ? NUMBERS : MEMORY);
        free(counts);
        free(ids.numbers);
        free(weights.numbers);
    }
    free(memory);
    free(lead_memory);
    return finish(&buffers, result, NULL);
}

/* weigh_rows(idf, tf_table, occurrences, counts, ids, weights, id_bits) -> number of entries */
PyObject *py_weigh_rows(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
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

/* lexical_rows(texts, classes, folded, filled, idf, frequencies, beginning) -> starts, columns, weights; None where the
   tables lack a code point */
PyObject *py_lexical_rows(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    Buffers buffers;
    void *p[5];
    if (count != 7) return PyErr_Format(PyExc_TypeError, "lexical_rows takes 7 arguments");
    if (!take_all(&buffers, arguments + 1, 5, 0, p)) return NULL;
    CodePoints points;
    int64_t all = numbers(&buffers, 3, 8), beginning = whole(arguments[6]), entries = NO_MEMORY;
    if (!take_points(&buffers, p, 0, &points) || all < 2 || numbers(&buffers, 4, 4) != all || beginning < 0)
        return finish(&buffers, NULL, SIZES);
    Texts texts;
    void *memory = take_texts(arguments[0], &texts);
    if (!memory) return finish(&buffers, NULL, NULL);
    Growing columns = {0}, weights = {0};
    int32_t *starts = malloc(((size_t)texts.count + 1) * sizeof *starts);
    Py_BEGIN_ALLOW_THREADS
    if (starts) entries = lexical_rows(texts, points, beginning, p[3], p[4], all / 2, starts, &columns, &weights);
    Py_END_ALLOW_THREADS
    PyObject *result = entries == NOT_FILLED ? Py_NewRef(Py_None) : NULL;
    if (entries >= 0)
        result = tuple_of(3, (PyObject *[]){bytes_of(starts, (texts.count + 1) * 4), bytes_of(columns.numbers, entries * 4),
                                            bytes_of(weights.numbers, entries * 4)});
    free(memory);
    free(starts);
    free(columns.numbers);
    free(weights.numbers);
    return unless_wrong(&buffers, result, entries);
}

/* share_columns(values, columns, starts, idf, values, columns, starts, label_words, label_norms, pair_texts,
   pair_labels, found); pairs of one text follow each other */
PyObject *py_share_columns(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
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

/* find_matches(texts, classes, folded, filled, keys, starts, columns, row_starts, labels, by_word, firsts) -> starts,
   labels, rows, counts, firsts, names; None where the tables lack a code point */
PyObject *py_find_matches(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    Buffers buffers;
    void *p[10];
    if (count != 11) return PyErr_Format(PyExc_TypeError, "find_matches takes 11 arguments");
    if (!take_all(&buffers, arguments + 1, 10, 0, p)) return NULL;
    CodePoints points;
    LabelRows labels = {.columns = p[5], .starts = p[6], .labels = p[7], .by_word = p[8], .firsts = p[9],
                        .rows = numbers(&buffers, 7, 4), .sorted = numbers(&buffers, 8, 4),
                        .entries = numbers(&buffers, 5, 4)};
    if (!take_points(&buffers, p, 0, &points) || !take_keys(&buffers, p, 3, &labels.words) ||
        numbers(&buffers, 6, 8) != labels.rows + 1 || labels.starts[labels.rows] != labels.entries ||
        numbers(&buffers, 9, 8) != labels.words.size + 1 || labels.firsts[labels.words.size] != labels.sorted)
        return finish(&buffers, NULL, SIZES);
    Texts texts;
    void *memory = take_texts(arguments[0], &texts);
    if (!memory) return finish(&buffers, NULL, NULL);
    Match *found = NULL;
    int64_t entries = NO_MEMORY;
    int32_t *starts = malloc(((size_t)texts.count + 1) * sizeof *starts);
    Py_BEGIN_ALLOW_THREADS
    if (starts) entries = find_matches(texts, points, labels, starts, &found);
    Py_END_ALLOW_THREADS
    PyObject *result = entries == NOT_FILLED ? Py_NewRef(Py_None) : NULL;
    if (entries >= 0) {
        PyObject *parts[6] = {bytes_of(starts, (texts.count + 1) * 4)};
        for (int part = 1; part < 5; part++) parts[part] = bytes_of(NULL, entries * 4);
        parts[5] = bytes_of(NULL, entries);
        result = tuple_of(6, parts);
        if (result) {
            int32_t *columns[2] = {(int32_t *)PyByteArray_AsString(parts[1]), (int32_t *)PyByteArray_AsString(parts[2])};
            float *values[2] = {(float *)PyByteArray_AsString(parts[3]), (float *)PyByteArray_AsString(parts[4])};
            uint8_t *names = (uint8_t *)PyByteArray_AsString(parts[5]);
            for (int64_t at = 0; at < entries; at++) {
                columns[0][at] = found[at].label;
                columns[1][at] = found[at].row;
                values[0][at] = found[at].count;
                values[1][at] = found[at].first;
                names[at] = (uint8_t)found[at].is_name;
            }
        }
    }
    free(memory);
    free(starts);
    free(found);
    return unless_wrong(&buffers, result, entries);
}
