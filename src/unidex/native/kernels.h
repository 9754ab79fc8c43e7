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
#else
#define WIDE
#endif

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

/* features.c */
typedef struct {
    const uint64_t *keys; /* ascending */
    const int32_t *ids;
    int64_t size;
    int64_t buckets;
} Vocabulary;
int64_t find_bigrams(const uint64_t *words, const int64_t *counts, int64_t rows, Vocabulary vocabulary, int id_bits,
                     int64_t *found);
int64_t weigh_rows(int64_t *occurrences, int64_t count, int64_t rows, int id_bits, const float *idf, int64_t features,
                   const double *tf_table, int64_t table_size, int64_t *counts, int32_t *ids, float *weights);

/* eight_bits.c */
int sum_rows(Csr texts, const int8_t *codes, const float *scales, int64_t rows, int64_t dim, int64_t block,
             float *sums);

/* sparse.c */
int64_t multiply(Csr left, Csr right, int64_t columns, float **values, int32_t **places, int32_t *starts);
int is_whole(Csr matrix);
float value_at(Csr matrix, int64_t row, int64_t wanted);

/* places.c */
int rank_places(const int64_t *ids, const float *scores, int64_t rows, int64_t width, int64_t k, int64_t *best_ids,
                float *best_scores);
int best_entries(Csr matrix, int64_t k, int64_t *best_ids, float *best_scores);

/* lexical.c */
int64_t weigh_columns(int32_t *columns, const int64_t *counts, int64_t rows, const double *idf,
                      const int32_t *frequencies, int64_t half, int32_t *starts, float *weights);
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
typedef struct {
    const int64_t *features; /* that comparisons read */
    const int64_t *ends;     /* of their thresholds */
    int64_t num_features;
    const float *thresholds;
    const uint16_t *leaves; /* possible between two thresholds, one row of sets each */
    const double *values;
    const int64_t *firsts;
    int64_t trees;
} Trees;
int score_trees(Trees trees, const float *columns, int64_t pairs, double *scores);

#endif
