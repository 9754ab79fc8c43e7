/* Numbers in ascending order. */
#include "kernels.h"

enum { FEW = 40, DIGITS = 8, VALUES = 1 << DIGITS };

static void insert_one_by_one(uint64_t *numbers, int64_t count) {
    for (int64_t at = 1; at < count; at++) {
        uint64_t number = numbers[at];
        int64_t place = at;
        for (; place > 0 && numbers[place - 1] > number; place--) numbers[place] = numbers[place - 1];
        numbers[place] = number;
    }
}

/* By digits, lowest first; a digit that all numbers share is passed over. */
void sort_numbers(uint64_t *numbers, uint64_t *room, int64_t count) {
    if (count < FEW) {
        insert_one_by_one(numbers, count);
        return;
    }
    uint64_t all = numbers[0], any = numbers[0];
    for (int64_t at = 1; at < count; at++) {
        all &= numbers[at];
        any |= numbers[at];
    }
    uint64_t *from = numbers, *to = room;
    for (int shift = 0; shift < 64; shift += DIGITS) {
        if (((all ^ any) >> shift & (VALUES - 1)) == 0) continue;
        int64_t places[VALUES] = {0}, first = 0;
        for (int64_t at = 0; at < count; at++) places[from[at] >> shift & (VALUES - 1)]++;
        for (int digit = 0; digit < VALUES; digit++) {
            int64_t number = places[digit];
            places[digit] = first;
            first += number;
        }
        for (int64_t at = 0; at < count; at++) to[places[from[at] >> shift & (VALUES - 1)]++] = from[at];
        uint64_t *other = from;
        from = to;
        to = other;
    }
    if (from != numbers) memcpy(numbers, from, (size_t)count * sizeof *numbers);
}

/* Room for more numbers of 32 bits; 0 without memory. */
int grow(Growing *array, int64_t more) {
    if (array->count + more <= array->room) return 1;
    int64_t room = 2 * array->room > array->count + more ? 2 * array->room : array->count + more + 64;
    void *numbers = realloc(array->numbers, (size_t)room * 4);
    if (!numbers) return 0;
    array->numbers = numbers;
    array->room = room;
    return 1;
}
