/* What the kernels share. Each computes what a function of NumPy or SciPy in the package computes, bit for bit: sums have
   the same order, and products are rounded before they are added (-ffp-contract=off). */
#ifndef UNIDEX_KERNELS_H
#define UNIDEX_KERNELS_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The same code for processors with wider registers, chosen when the module is loaded. */
#if defined(__x86_64__) && defined(__linux__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#define WIDE __attribute__((target_clones("avx2", "default")))
/* Where a processor computes more than it reads. */
#define WIDEST __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDE
#define WIDEST
#endif

/* A hint that memory will be read; never a fault. */
#if defined(__GNUC__)
#define PREFETCH(address) __builtin_prefetch(address)
#else
#define PREFETCH(address) ((void)(address))
#endif

typedef float Floats __attribute__((vector_size(8 * sizeof(float))));

/* A sparse matrix whose columns ascend in each row. */
typedef struct {
    const float *values;
    const int32_t *columns;
    const int32_t *starts;
    int64_t rows;
    int64_t entries;
} Csr;

/* Ascending, with room for as many numbers. */
void sort_numbers(uint64_t *numbers, uint64_t *room, int64_t count);

/* words.c */
#define WORD_SEED 0x51ED270B27B4C1E9u
#define NGRAM_SEED 0xA3B195354A39B70Du
typedef struct {
    const uint32_t *codes; /* of all texts, one after the other */
    const int64_t *lengths;
    int64_t count;
    int64_t longest;
} Texts;
typedef struct {
    const uint8_t *classes;
    const uint32_t *folded;
    const uint8_t *filled; /* per block of 256 code points */
} CodePoints;
typedef struct {
    uint64_t *terms; /* code points without case, plus 1 */
    uint8_t *classes;
    int64_t length; /* with a mark before and behind the text */
} Letters;
typedef struct {
    int64_t start, end;
} Span;
typedef struct {
    const uint64_t *keys;   /* ascending */
    const uint32_t *starts; /* of the keys with the same first bits */
    int64_t size;
    int shift;
} Keys;
uint64_t mix(uint64_t value);
uint64_t pair_key(uint64_t left, uint64_t right);
uint64_t string_key(const uint64_t *terms, int64_t length, uint64_t seed);
int64_t find_key(Keys keys, uint64_t key);
int make_letters(Letters *letters, int64_t most);
void free_letters(Letters *letters);
int read_letters(Letters *letters, const uint32_t *codes, int64_t length, CodePoints points);
int next_word(const Letters *letters, Span *word);
int next_part(const Letters *letters, Span word, Span *part);
int64_t ngram_keys(const Letters *letters, Span word, int64_t shortest, int64_t longest, uint64_t *keys);

/* What a kernel returns in place of a number of entries. */
enum { WRONG = -1, NO_MEMORY = -2, NOT_FILLED = -3 };
/* An array that grows; of 32-bit numbers. */
typedef struct {
    void *numbers;
    int64_t count, room;
} Growing;
int grow(Growing *array, int64_t more);

/* features.c */
typedef struct {
    Keys keys;
    const int32_t *ids;
    int64_t buckets;
    const float *idf;
    int64_t features;
    const double *tf_table;
    int64_t table_size;
    int is_parted, has_bigrams;
    int64_t shortest, longest; /* n-grams; 0 for none */
} Vocabulary;
int64_t weigh_rows(int64_t *occurrences, int64_t count, int64_t rows, int id_bits, const float *idf, int64_t features,
                   const double *tf_table, int64_t table_size, int64_t *counts, int32_t *ids, float *weights);
int64_t text_rows(Texts texts, Texts leads, float lead_weight, CodePoints points, Vocabulary vocabulary,
                  int64_t *counts, Growing *ids, Growing *weights);

/* eight_bits.c */
int sum_rows(Csr texts, const int8_t *codes, const float *scales, int64_t rows, int64_t dim, int64_t block,
             float *sums);

/* huffman.c */
int read_bytes(const uint8_t *input, int64_t length, uint8_t *bytes, int64_t size);

/* products.c */
int inner_products(const float *queries, int64_t texts, int64_t columns, const float *rows, int64_t num_rows,
                   int64_t dim, int64_t first, const int64_t *ids, int64_t width, float *found);
void unit_rows(const float *rows, int64_t count, int64_t dim, float shortest, float *lengths, float *found);
void unit_gradient(const float *gradient, const float *unit, const float *lengths, int64_t count, int64_t dim,
                   float *found);

/* softmax.c */
void highest(const float *scores, int64_t rows, int64_t columns, int64_t stride, float *of_rows, float *of_columns);
void exponentials(float *scores, int64_t rows, int64_t columns, int64_t stride, float top, float lowest,
                  const float *factors, int64_t at_once, float *of_rows, float *of_blocks, float *room);
void multiply_pushes(float *scores, int64_t rows, int64_t columns, int64_t stride, const float *of_rows,
                     const float *factors, const float *of_columns);

/* sparse.c */
int64_t multiply(Csr left, Csr right, int64_t columns, float **values, int32_t **places, int32_t *starts);
int is_whole(Csr matrix);
float value_at(Csr matrix, int64_t row, int64_t wanted);

/* places.c */
int rank_places(const int64_t *ids, const float *scores, int64_t rows, int64_t width, int64_t k, int64_t *best_ids,
                float *best_scores);
int best_entries(Csr matrix, int64_t k, int64_t *best_ids, float *best_scores);

/* lexical.c */
int64_t lexical_rows(Texts texts, CodePoints points, int64_t beginning, const double *idf, const int32_t *frequencies,
                     int64_t half, int32_t *starts, Growing *columns, Growing *weights);
typedef struct {
    Csr rows;
    const int64_t *words; /* per row, before its n-grams */
    const double *norms;  /* of the words; 1 without any */
} LabelWords;
typedef struct TextWords TextWords;
TextWords *text_words(Csr texts, const double *idf, int64_t half);
int read_text(TextWords *words, int64_t text);
int share_words(const TextWords *words, LabelWords labels, int64_t label, double *found);
void free_words(TextWords *words);

/* matches.c */
typedef struct {
    Keys words;              /* of labels */
    const int32_t *columns;  /* of the words of each row */
    const int64_t *starts;   /* of rows */
    const int32_t *labels;   /* of rows */
    const int32_t *by_word;  /* rows by their rarest word */
    const int64_t *firsts;   /* of the rows of a word */
    int64_t rows, sorted, entries; /* all rows, those by word, and the words of all */
} LabelRows;
typedef struct {
    int32_t label, row;
    float count, first;
    int is_name; /* the text begins with all of its words and no others */
} Match;
int64_t find_matches(Texts texts, CodePoints points, LabelRows labels, int32_t *starts, Match **found);
typedef struct {
    const int32_t *starts; /* of texts */
    const int32_t *labels; /* ascending in a text */
    const int64_t *places; /* in the arrays that follow */
    const float *counts, *firsts;
    const int32_t *rows;
    int64_t count;
} FoundMatches;
typedef struct {
    const int64_t *words, *ambiguities; /* of rows */
    int64_t rows;
    const float *rates; /* of labels */
    const int64_t *texts;
    int64_t labels;
} MatchedLabels;
int describe_matches(const int64_t *ids, int64_t texts, int64_t width, FoundMatches found, MatchedLabels labels,
                     float *columns);

/* ranking.c */
typedef struct {
    const int64_t *ids; /* texts x width; -1 for none */
    int64_t texts;
    int64_t width;
    const float *heads;     /* heads x texts x width */
    const float *weights;   /* of the heads, of kNN scores and of label priors in the sum; 0 leaves the last two out */
    int64_t num_heads;
    Csr knn;                /* texts x labels */
    const float *nearest;   /* per text */
    const float *priors;    /* per label */
    const int64_t *frequencies;
    int64_t labels;
    LabelWords label_words;
    Csr words; /* of the texts */
} Pairs;
int describe_pairs(Pairs pairs, TextWords *words, float *columns);
int compare_candidates(const int64_t *ids, int64_t texts, int64_t width, float *column);
typedef struct {
    const int64_t *features; /* that comparisons read */
    const int64_t *ends;     /* of their nodes */
    int64_t num_features;
    const float *thresholds; /* of nodes, ascending for a feature */
    const int32_t *owners;   /* the tree of a node */
    const uint32_t *leaves;  /* of the tree that are possible above the threshold */
    const double *values;
    const int64_t *firsts;
    int64_t trees;
} Trees;
int score_trees(Trees trees, const float *columns, int64_t pairs, double *scores);

/* classifiers.c */
typedef struct {
    float cost;      /* of an example on the wrong side */
    float tolerance; /* a pass whose largest slope is below it is the last one */
    float least;     /* smaller weights are left out */
    int64_t passes;
} Descent;
int64_t fit_classifiers(Csr texts, Csr examples, int64_t features, Descent descent, float **values, int32_t **columns,
                        int32_t *starts, float *biases);
typedef struct {
    Csr rows;    /* of the texts, of length 1 */
    Csr weights; /* features x labels */
    const float *biases;
    int64_t labels; /* with a classifier; the others have the score of none */
    float none;
} Linear;
int64_t score_linear(Linear linear, const int64_t *ids, int64_t width, float *scores);

/* steps.c */
int64_t used_columns(Csr rows, int64_t columns, int64_t *ids, float *values, int32_t *places, int32_t *starts);
int adagrad_rows(const int64_t *ids, const float *gradient, int64_t count, int64_t dim, float rate, float *sums,
                 float *table, int64_t rows);

/* search.c */
typedef struct {
    const int64_t *found_ids; /* texts x num_found, of the index; where these are more than it gives, the best count */
    int64_t num_found;
    int64_t num_index, num_knn, num_lexical, num_matches, num_links;
    int64_t width; /* candidates of a text from all parts together */
    const float *queries; /* texts x dim */
    int64_t dim;
    const float *rows; /* labels x dim */
    int64_t labels;
    const int64_t *head_columns; /* the first and the number of each head */
    const float *head_weights;   /* that rows of labels are multiplied with */
    int64_t num_heads;
    Csr shares, positives;   /* texts x training texts, training texts x labels */
    Csr searched, by_word;   /* texts x words, words x labels */
    Csr words;               /* all of the texts */
    Csr match_scores;        /* texts x labels */
    const float *nearest;
    FoundMatches found;
    MatchedLabels matched;
    const float *weights; /* as those of pairs */
    const float *priors;
    const int64_t *frequencies;
    const double *idf;
    int64_t half;
    LabelWords label_words;
    Trees trees;
    int64_t num_columns;    /* features of a pair */
    const double *rarities; /* what is added to a score, by the frequency of the label */
    int64_t num_rarities;
    Csr links; /* texts x labels */
    int has_links;
    Linear linear;
    int has_linear;
} Search;
int64_t search_labels(Search search, int64_t k, int64_t *best_ids, float *best_scores);

#endif
