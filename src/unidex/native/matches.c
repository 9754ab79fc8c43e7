/* Labels of which a text has every word (unidex.scoring.label_matches). */
#include "kernels.h"

/* A word of a text that labels have. */
typedef struct {
    int64_t column, count, first;
} Occurrence;

static const Occurrence *find_column(const Occurrence *words, int64_t count, int64_t column) {
    int64_t low = 0, high = count;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (words[middle].column < column) low = middle + 1;
        else high = middle;
    }
    return low < count && words[low].column == column ? words + low : NULL;
}

/* The words of a text by ascending column, each once; their number. Room is for twice as many numbers as words. */
static int64_t read_words(const Letters *letters, Keys keys, uint64_t *room, Occurrence *words, int64_t *total) {
    int64_t known = 0, number = 0;
    Span word = {0, 0};
    for (*total = 0; next_word(letters, &word); ++*total) {
        int64_t column = find_key(keys, string_key(letters->terms + word.start, word.end - word.start, WORD_SEED));
        if (column >= 0) room[known++] = (uint64_t)column << 32 | (uint64_t)*total;
    }
    sort_numbers(room, room + known, known);
    for (int64_t at = 0; at < known; at++) {
        int64_t column = (int64_t)(room[at] >> 32);
        if (number && words[number - 1].column == column) words[number - 1].count++;
        else words[number++] = (Occurrence){column, 1, (int64_t)(room[at] & UINT32_MAX)};
    }
    return number;
}

/* Whether all words of a row occur; then the smallest number of occurrences, and the last first one. -1 for a wrong row:
   large files are not read whole when they are opened. */
static int has_words(const Occurrence *words, int64_t number, LabelRows labels, int64_t row, int64_t *count,
                     int64_t *first) {
    if (row < 0 || row >= labels.rows || labels.starts[row] < 0 || labels.starts[row + 1] > labels.entries) return -1;
    *count = INT64_MAX;
    *first = 0;
    for (int64_t at = labels.starts[row]; at < labels.starts[row + 1]; at++) {
        const Occurrence *found = find_column(words, number, labels.columns[at]);
        if (!found) return 0;
        if (found->count < *count) *count = found->count;
        if (found->first > *first) *first = found->first;
    }
    return 1;
}

/* Of two matches of a label, the one with more words comes first, then the more frequent one, then the lower row. */
static int is_before(LabelRows labels, Match one, Match other) {
    if (one.label != other.label) return one.label < other.label;
    int64_t size = labels.starts[one.row + 1] - labels.starts[one.row];
    int64_t other_size = labels.starts[other.row + 1] - labels.starts[other.row];
    if (size != other_size) return size > other_size;
    if (one.count != other.count) return one.count > other.count;
    return one.row < other.row;
}

static void sift(LabelRows labels, Match *matches, int64_t at, int64_t count) {
    for (int64_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && is_before(labels, matches[child], matches[child + 1])) child++;
        if (!is_before(labels, matches[at], matches[child])) return;
        Match other = matches[at];
        matches[at] = matches[child];
        matches[child] = other;
    }
}

static void sort_matches(LabelRows labels, Match *matches, int64_t count) {
    for (int64_t at = count / 2; at-- > 0;) sift(labels, matches, at, count);
    for (int64_t last = count - 1; last > 0; last--) {
        Match other = matches[0];
        matches[0] = matches[last];
        matches[last] = other;
        sift(labels, matches, 0, last);
    }
}

/* The matches of texts, those of a text by ascending label, in a new array; their number. */
int64_t find_matches(Texts texts, CodePoints points, LabelRows labels, int32_t *starts, Match **found) {
    int64_t entries = 0, room = 64;
    Letters letters;
    uint64_t *numbers = malloc(((size_t)texts.longest + 2) * sizeof *numbers);
    Occurrence *words = malloc(((size_t)texts.longest / 2 + 2) * sizeof *words);
    *found = malloc((size_t)room * sizeof **found);
    if (!make_letters(&letters, texts.longest) || !numbers || !words || !*found) entries = NO_MEMORY;
    starts[0] = 0;
    for (int64_t text = 0; text < texts.count && entries >= 0; text++) {
        if (!read_letters(&letters, texts.codes, texts.lengths[text], points)) {
            entries = NOT_FILLED;
            break;
        }
        texts.codes += texts.lengths[text];
        int64_t total, first = entries, number = read_words(&letters, labels.words, numbers, words, &total);
        for (int64_t word = 0; word < number; word++) {
            int64_t column = words[word].column, last = labels.firsts[column + 1];
            if (labels.firsts[column] < 0 || last > labels.sorted) {
                entries = WRONG;
                goto done;
            }
            for (int64_t at = labels.firsts[column]; at < last; at++) {
                int64_t row = labels.by_word[at], count, place;
                int is_match = has_words(words, number, labels, row, &count, &place);
                if (is_match < 0) {
                    entries = WRONG;
                    goto done;
                }
                if (!is_match) continue;
                if (entries == room) {
                    Match *more = realloc(*found, (size_t)(room *= 2) * sizeof *more);
                    if (!more || room > INT32_MAX) {
                        entries = NO_MEMORY;
                        *found = more ? more : *found;
                        goto done;
                    }
                    *found = more;
                }
                float share = (float)((double)place / (double)total);
                int is_name = place + 1 == labels.starts[row + 1] - labels.starts[row];
                (*found)[entries++] = (Match){(int32_t)labels.labels[row], (int32_t)row, (float)count, share, is_name};
            }
        }
        sort_matches(labels, *found + first, entries - first);
        int64_t kept = first;
        for (int64_t at = first; at < entries; at++)
            if (kept == first || (*found)[kept - 1].label != (*found)[at].label) (*found)[kept++] = (*found)[at];
        entries = kept;
        starts[text + 1] = (int32_t)entries;
    }
done:
    free(numbers);
    free(words);
    free_letters(&letters);
    return entries;
}

/* The features of pairs, one column of all pairs after the other: occurrences, first, rate, training texts, words,
   ambiguity, matches of the text; 0 for a wrong number. An id below 0 is as a label 0. */
int describe_matches(const int64_t *ids, int64_t texts, int64_t width, FoundMatches found, MatchedLabels labels,
                     float *columns) {
    int64_t size = texts * width;
    for (int64_t text = 0; text < texts; text++) {
        int32_t first = found.starts[text], end = found.starts[text + 1];
        if (first < 0 || first > end || end > found.starts[texts]) return 0;
        for (int64_t at = text * width; at < (text + 1) * width; at++) {
            int64_t label = ids[at] < 0 ? 0 : ids[at];
            int32_t low = first, high = end;
            if (label >= labels.labels) return 0;
            while (low < high) {
                int32_t middle = low + (high - low) / 2;
                if (found.labels[middle] < label) low = middle + 1;
                else high = middle;
            }
            int is_there = low < end && found.labels[low] == label;
            int64_t place = is_there ? found.places[low] : 0;
            if (is_there && (place < 0 || place >= found.count)) return 0;
            int64_t row = is_there ? found.rows[place] : 0;
            if (is_there && (row < 0 || row >= labels.rows)) return 0;
            columns[at] = is_there ? found.counts[place] : 0;
            columns[size + at] = is_there ? found.firsts[place] : 1;
            columns[2 * size + at] = is_there ? labels.rates[label] : 0;
            columns[3 * size + at] = is_there ? (float)labels.texts[label] : -1;
            columns[4 * size + at] = is_there ? (float)labels.words[row] : 0;
            columns[5 * size + at] = is_there ? (float)labels.ambiguities[row] : 0;
            columns[6 * size + at] = (float)(end - first);
        }
    }
    return 1;
}
