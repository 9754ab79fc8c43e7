/* The function that searches labels. */
#include "bindings.h"

/* Whether a matrix has one row per text. */
static int has_rows(Csr matrix, Buffers *buffers, int at, int64_t rows) {
    return is_matrix(matrix, buffers, at) && matrix.rows == rows && is_whole(matrix);
}

/* search_labels(found ids, queries, rows, head_columns, head_weights, shares' values, columns, starts, nearest, words'
   values, columns, starts, searched words' values, columns, starts, match scores, starts, labels, places, counts,
   firsts, rows, num_words, ambiguities, rates, texts, positives' values, columns, starts, by_word's values, columns,
   starts, weights, priors, frequencies, idf, labels' values, columns, starts, label_words, label_norms, trees' features,
   ends, thresholds, trees, leaves, values, firsts, rarities, rows of features' values, columns, starts, linear weights'
   values, columns, starts, biases, score of none, links' values, columns, starts, best_ids, best_scores, num_index,
   num_knn, num_lexical, num_matches, num_links, num_columns) -> whether it could. Without links or a linear part, the texts have no
   rows of them. */
PyObject *py_search_labels(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    enum { READ = 60, WRITTEN = 2, ALL = READ + WRITTEN };
    Buffers buffers;
    void *p[ALL];
    if (count != ALL + 6) return PyErr_Format(PyExc_TypeError, "search_labels takes %d arguments", ALL + 6);
    if (!take_all(&buffers, arguments, READ, WRITTEN, p)) return NULL;
    Search search = {.found_ids = p[0], .queries = p[1], .rows = p[2], .head_columns = p[3], .head_weights = p[4],
                     .num_heads = numbers(&buffers, 4, 4), .shares = matrix(&buffers, p, 5), .nearest = p[8],
                     .words = matrix(&buffers, p, 9), .searched = matrix(&buffers, p, 12),
                     .positives = matrix(&buffers, p, 26), .by_word = matrix(&buffers, p, 29), .weights = p[32],
                     .priors = p[33], .frequencies = p[34], .idf = p[35], .half = numbers(&buffers, 35, 8) / 2,
                     .label_words = {matrix(&buffers, p, 36), p[39], p[40]}, .rarities = p[48],
                     .num_rarities = numbers(&buffers, 48, 8), .num_index = whole(arguments[ALL]),
                     .num_knn = whole(arguments[ALL + 1]), .num_lexical = whole(arguments[ALL + 2]),
                     .num_matches = whole(arguments[ALL + 3]), .num_links = whole(arguments[ALL + 4]),
                     .num_columns = whole(arguments[ALL + 5])};
    int64_t texts = search.words.rows, labels = search.labels = search.label_words.rows.rows;
    int fits = texts > 0 && labels > 0 && search.num_index > 0 && search.num_knn >= 0 && search.num_lexical >= 0;
    fits = fits && search.num_matches >= 0 && numbers(&buffers, 8, 4) == texts;
    fits = fits && has_rows(search.words, &buffers, 9, texts) && has_rows(search.searched, &buffers, 12, texts);
    fits = fits && has_rows(search.shares, &buffers, 5, texts) && is_matrix(search.positives, &buffers, 26);
    fits = fits && is_matrix(search.by_word, &buffers, 29) && is_matrix(search.label_words.rows, &buffers, 36);
    fits = fits && take_matches(&buffers, p, 16, &search.found, &search.matched) && numbers(&buffers, 16, 4) == texts + 1;
    fits = fits && numbers(&buffers, 56, 4) == 1 && take_linear(&buffers, p, 49, &search.linear);
    if (!fits) return finish(&buffers, NULL, SIZES);
    search.has_linear = search.linear.rows.rows == texts;
    search.links = matrix(&buffers, p, 57);
    search.has_links = search.links.rows == texts;
    fits = search.has_links ? has_rows(search.links, &buffers, 57, texts) && search.num_links >= 0 : !search.num_links;
    if (!fits) return finish(&buffers, NULL, SIZES);
    search.match_scores = (Csr){p[15], search.found.labels, search.found.starts, texts, numbers(&buffers, 17, 4)};
    search.dim = numbers(&buffers, 1, 4) / texts;
    search.num_found = numbers(&buffers, 0, 8) / texts;
    search.width = search.num_index + search.num_knn + search.num_lexical + search.num_matches + search.num_links;
    int64_t k = numbers(&buffers, READ, 8) / texts;
    fits = numbers(&buffers, 15, 4) == search.match_scores.entries && is_whole(search.match_scores);
    fits = fits && search.num_found >= search.num_index && numbers(&buffers, 0, 8) == texts * search.num_found;
    fits = fits && numbers(&buffers, READ, 8) == texts * k && numbers(&buffers, READ + 1, 4) == texts * k;
    fits = fits && numbers(&buffers, 1, 4) == texts * search.dim && numbers(&buffers, 2, 4) == labels * search.dim;
    fits = fits && search.dim > 0 && search.num_heads > 0 && numbers(&buffers, 3, 8) == 2 * search.num_heads;
    for (int64_t head = 0; fits && head < search.num_heads; head++) {
        int64_t first = search.head_columns[2 * head], number = search.head_columns[2 * head + 1];
        fits = first >= 0 && number > 0 && first + number <= search.dim;
    }
    fits = fits && numbers(&buffers, 32, 4) == search.num_heads + 2 && numbers(&buffers, 33, 4) == labels;
    fits = fits && numbers(&buffers, 34, 8) == labels && numbers(&buffers, 39, 8) == labels;
    fits = fits && numbers(&buffers, 40, 8) == labels;
    fits = fits && search.num_columns == 3 * search.num_heads + 24 + search.has_links + 3 * search.has_linear;
    fits = fits && take_trees(&buffers, p, 41, search.num_columns, &search.trees);
    if (!fits) return finish(&buffers, NULL, SIZES);
    int64_t done;
    Py_BEGIN_ALLOW_THREADS
    done = search_labels(search, k, p[READ], p[READ + 1]);
    Py_END_ALLOW_THREADS
    return unless_wrong(&buffers, done == 1 || done == NOT_FILLED ? PyBool_FromLong(done == 1) : NULL, done);
}
