/* Texts cut into words, their parts and n-grams (unidex.features.words), and keys of strings (hash_keys). */
#include "kernels.h"

enum { OUTSIDE, OTHER, LOWER, UPPER, DIGIT, UNDERSCORE, MARK = '#' };
static const uint64_t P = 0x9E6C63D0876A9A47u;

uint64_t mix(uint64_t value) {
    value ^= value >> 30;
    value *= 0xBF58476D1CE4E5B9u;
    value ^= value >> 27;
    value *= 0x94D049BB133111EBu;
    return value ^ value >> 31;
}

uint64_t pair_key(uint64_t left, uint64_t right) { return mix(left * P + mix(right + 0x9E3779B97F4A7C15u)); }

uint64_t string_key(const uint64_t *terms, int64_t length, uint64_t seed) {
    uint64_t sum = seed, power = 1;
    for (int64_t at = 0; at < length; at++, power *= P) sum += terms[at] * power;
    return mix(sum);
}

int64_t find_key(Keys keys, uint64_t key) {
    uint64_t bucket = key >> keys.shift;
    for (uint32_t at = keys.starts[bucket]; at < keys.starts[bucket + 1] && at < keys.size; at++)
        if (keys.keys[at] == key) return at;
    return -1;
}

/* Room for the letters of texts of at most so many code points; 0 without memory. */
int make_letters(Letters *letters, int64_t most) {
    letters->length = 0;
    letters->terms = malloc((size_t)(most + 2) * sizeof *letters->terms);
    letters->classes = malloc((size_t)most + 2);
    return letters->terms && letters->classes;
}

void free_letters(Letters *letters) {
    free(letters->terms);
    free(letters->classes);
}

/* Read a text, with a mark in place of every code point outside words; 0 where the tables lack one. */
int read_letters(Letters *letters, const uint32_t *codes, int64_t length, CodePoints points) {
    uint64_t *terms = letters->terms;
    uint8_t *classes = letters->classes;
    letters->length = length + 2;
    terms[0] = terms[length + 1] = MARK + 1;
    classes[0] = classes[length + 1] = OUTSIDE;
    for (int64_t at = 0; at < length; at++) {
        uint32_t code = codes[at];
        if (!points.filled[code >> 8]) return 0;
        uint8_t class = points.classes[code];
        classes[at + 1] = class;
        terms[at + 1] = class == OUTSIDE ? MARK + 1 : (uint64_t)points.folded[code] + 1;
    }
    return 1;
}

/* The next word behind an end; 0 without one. */
int next_word(const Letters *letters, Span *word) {
    int64_t at = word->end;
    while (at < letters->length && letters->classes[at] == OUTSIDE) at++;
    if (at == letters->length) return 0;
    word->start = at;
    while (letters->classes[at] != OUTSIDE) at++;
    word->end = at;
    return 1;
}

static int is_cut(const uint8_t *class) {
    if (class[0] == UNDERSCORE || class[-1] == UNDERSCORE || class[-1] == OUTSIDE) return 1;
    if ((class[0] == DIGIT) != (class[-1] == DIGIT)) return 1;
    if (class[0] != UPPER) return 0;
    return class[-1] != UPPER || class[1] == LOWER;
}

/* The next part of a word behind an end, which is the start of the word at first; 0 without one. A word that is one
   part from end to end has none. */
int next_part(const Letters *letters, Span word, Span *part) {
    int64_t at = part->end;
    while (at < word.end && letters->classes[at] == UNDERSCORE) at++;
    if (at == word.end) return 0;
    part->start = at++;
    while (at < word.end && !is_cut(letters->classes + at)) at++;
    part->end = at;
    return part->end - part->start < word.end - word.start;
}

/* The keys of the n-grams of a word with a mark at its two ends, but for all of that; their number. */
int64_t ngram_keys(const Letters *letters, Span word, int64_t shortest, int64_t longest, uint64_t *keys) {
    int64_t number = 0, whole = word.end - word.start + 2;
    for (int64_t start = word.start - 1; start <= word.end; start++) {
        uint64_t sum = NGRAM_SEED, power = 1;
        for (int64_t size = 1; size <= longest && start + size <= word.end + 1; size++, power *= P) {
            sum += letters->terms[start + size - 1] * power;
            if (size >= shortest && size != whole) keys[number++] = mix(sum);
        }
    }
    return number;
}
