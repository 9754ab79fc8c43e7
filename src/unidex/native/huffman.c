/* Bytes that were compressed by codes of frequent and rare bytes alone (unidex.storage.huffman): blocks of RFC 1951 with
   codes of their own, with the usual codes or with plain bytes, but without copies. One look into a table reads up to three bytes. */
#include "kernels.h"

enum { LOOKED = 11, LONGEST = 15, LITERALS = 256, MOST_CODES = 286, USUAL = 288, MOST_DISTANCES = 30, LENGTHS = 19, AT_ONCE = 3 };

typedef struct {
    const uint8_t *next, *end;
    uint64_t bits; /* the lowest is read first */
    int count;
} Bits;

typedef struct {
    uint8_t bits;  /* of all bytes of the entry; 0 where the first code is longer, or no byte */
    uint8_t count;
    uint8_t bytes[4];
} Entry;

/* Canonical codes: how many have each length, and their symbols in order. */
typedef struct {
    uint16_t counts[LONGEST + 1];
    uint16_t symbols[USUAL];
} Codes;

static void fill(Bits *from) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    if (from->end - from->next >= 8) {
        uint64_t more;
        memcpy(&more, from->next, sizeof more);
        /* Bits above the count are those of the next byte, and come again as the same ones. */
        from->bits |= more << from->count;
        from->next += (63 - from->count) >> 3;
        from->count |= 56;
        return;
    }
#endif
    while (from->count <= 56 && from->next < from->end) {
        from->bits |= (uint64_t)*from->next++ << from->count;
        from->count += 8;
    }
}

/* The next bits as a number; -1 where there are fewer. */
static int take_bits(Bits *from, int count) {
    if (from->count < count) fill(from);
    if (from->count < count) return -1;
    int found = (int)(from->bits & ((1u << count) - 1));
    from->bits >>= count;
    from->count -= count;
    return found;
}

/* Codes of these lengths; 0 where there cannot be so many of them. */
static int order_codes(const uint8_t *lengths, int number, Codes *codes) {
    int starts[LONGEST + 2] = {0}, room = 1;
    memset(codes->counts, 0, sizeof codes->counts);
    for (int symbol = 0; symbol < number; symbol++) codes->counts[lengths[symbol]]++;
    codes->counts[0] = 0;
    for (int length = 1; length <= LONGEST; length++) {
        room = 2 * room - codes->counts[length];
        if (room < 0) return 0;
        starts[length + 1] = starts[length] + codes->counts[length];
    }
    for (int symbol = 0; symbol < number; symbol++)
        if (lengths[symbol]) codes->symbols[starts[lengths[symbol]]++] = (uint16_t)symbol;
    return 1;
}

/* One symbol, bit by bit; -1 where there is none. */
static int read_symbol(Bits *from, const Codes *codes) {
    int code = 0, first = 0, place = 0;
    for (int length = 1; length <= LONGEST; length++) {
        int bit = take_bits(from, 1), number = codes->counts[length];
        if (bit < 0) return -1;
        code |= bit;
        if (code - first < number) return codes->symbols[place + code - first];
        place += number;
        first = (first + number) * 2;
        code *= 2;
    }
    return -1;
}

/* For all of the next LOOKED bits, the bytes that they begin with. */
static void fill_table(const Codes *codes, Entry *table) {
    Entry one[1 << LOOKED];
    int code = 0, place = 0;
    memset(one, 0, sizeof one);
    for (int length = 1; length <= LOOKED; length++, code *= 2) {
        for (int own = 0; own < codes->counts[length]; own++, code++, place++) {
            int turned = 0;
            for (int bit = 0; bit < length; bit++) turned |= (code >> bit & 1) << (length - 1 - bit);
            if (codes->symbols[place] >= LITERALS) continue;
            for (int at = turned; at < 1 << LOOKED; at += 1 << length)
                one[at] = (Entry){(uint8_t)length, 1, {(uint8_t)codes->symbols[place]}};
        }
    }
    for (int at = 0; at < 1 << LOOKED; at++) {
        Entry entry = one[at];
        while (entry.count && entry.count < AT_ONCE) {
            Entry next = one[at >> entry.bits];
            if (!next.count || entry.bits + next.bits > LOOKED) break;
            entry.bytes[entry.count++] = next.bytes[0];
            entry.bits = (uint8_t)(entry.bits + next.bits);
        }
        table[at] = entry;
    }
}

/* The codes of a block; 0 where they are damaged. */
static int read_codes(Bits *from, Codes *codes) {
    static const uint8_t ORDER[LENGTHS] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
    uint8_t lengths[MOST_CODES + MOST_DISTANCES + 2] = {0};
    int number = take_bits(from, 5) + 257, distances = take_bits(from, 5) + 1, given = take_bits(from, 4) + 4;
    if (number < 257 || number > MOST_CODES || distances < 1 || distances > MOST_DISTANCES || given < 4) return 0;
    for (int at = 0; at < given; at++) {
        int length = take_bits(from, 3);
        if (length < 0) return 0;
        lengths[ORDER[at]] = (uint8_t)length;
    }
    if (!order_codes(lengths, LENGTHS, codes)) return 0;
    for (int at = 0; at < number + distances;) {
        int symbol = read_symbol(from, codes), repeated = 1, value = symbol;
        if (symbol < 0) return 0;
        if (symbol >= 16) {
            int more = symbol == 16 ? take_bits(from, 2) : take_bits(from, symbol == 17 ? 3 : 7);
            if (more < 0 || (symbol == 16 && at == 0)) return 0;
            value = symbol == 16 ? lengths[at - 1] : 0;
            repeated = more + (symbol == 18 ? 11 : 3);
        }
        if (at + repeated > number + distances) return 0;
        while (repeated--) lengths[at++] = (uint8_t)value;
    }
    return order_codes(lengths, number, codes);
}

/* The codes of blocks that have none of their own. */
static void usual_codes(Codes *codes) {
    uint8_t lengths[USUAL];
    for (int symbol = 0; symbol < USUAL; symbol++)
        lengths[symbol] = symbol < 144 ? 8 : symbol < 256 ? 9 : symbol < 280 ? 7 : 8;
    order_codes(lengths, USUAL, codes);
}

/* A block of plain bytes; how many, or -1. */
static int64_t copy_plain(Bits *from, uint8_t *bytes, int64_t room) {
    take_bits(from, from->count & 7);
    int length = take_bits(from, 16), turned = take_bits(from, 16);
    if (length < 0 || turned < 0 || (length ^ turned) != 0xFFFF || length > room) return -1;
    for (int at = 0; at < length; at++) {
        int byte = take_bits(from, 8);
        if (byte < 0) return -1;
        bytes[at] = (uint8_t)byte;
    }
    return length;
}

/* Exactly so many bytes; 0 where there are others, where bytes are copied, or where the input is damaged. */
int read_bytes(const uint8_t *input, int64_t length, uint8_t *bytes, int64_t size) {
    Bits from = {input, input + length, 0, 0};
    Codes codes;
    Entry table[1 << LOOKED];
    int64_t at = 0;
    for (int is_last = 0; !is_last;) {
        is_last = take_bits(&from, 1);
        int kind = take_bits(&from, 2);
        if (is_last < 0 || kind < 0 || kind > 2) return 0;
        if (kind == 0) {
            int64_t copied = copy_plain(&from, bytes + at, size - at);
            if (copied < 0) return 0;
            at += copied;
            continue;
        }
        if (kind == 1) usual_codes(&codes);
        else if (!read_codes(&from, &codes)) return 0;
        fill_table(&codes, table);
        for (;;) {
            fill(&from);
            /* Five looks need 55 bits, and write 4 bytes each. */
            if (from.count >= 5 * LOOKED && at + 4 * 5 <= size) {
                int looks = 0;
                for (; looks < 5; looks++) {
                    Entry entry = table[from.bits & ((1 << LOOKED) - 1)];
                    if (!entry.bits) break;
                    memcpy(bytes + at, entry.bytes, sizeof entry.bytes);
                    at += entry.count;
                    from.bits >>= entry.bits;
                    from.count -= entry.bits;
                }
                if (looks) continue;
            }
            int symbol = read_symbol(&from, &codes);
            if (symbol == LITERALS) break;
            if (symbol < 0 || symbol > LITERALS || at >= size) return 0;
            bytes[at++] = (uint8_t)symbol;
        }
    }
    return at == size;
}
