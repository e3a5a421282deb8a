/* Stop strings: the automaton finds what a search byte by byte finds, its memory is that of the strings, and
 * equal ones are shared. */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "text/stops.h"

enum { ROUNDS = 4000, TEXT = 60, STOPS = 12, BIG = TP_MAX_STOP_BYTES };

/* ---- the memory that is in use; the linker puts these in place of the real functions ---- */

static size_t allocated, calls;

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_malloc(size_t size) {
    allocated += size;
    calls++;
    return __real_malloc(size);
}
void *__wrap_calloc(size_t n, size_t size) {
    allocated += n * size;
    calls++;
    return __real_calloc(n, size);
}

/* ---- a search byte by byte ---- */

typedef struct strings {
    uint8_t text[STOPS * 8];
    uint32_t sizes[STOPS], count;
} strings;

static strings random_stops(uint64_t *random) {
    strings s = {.count = (uint32_t)next_random(random, STOPS) + 1};
    uint32_t at = 0;
    for (uint32_t i = 0; i < s.count; i++) {
        s.sizes[i] = (uint32_t)next_random(random, 7) + 1;
        for (uint32_t j = 0; j < s.sizes[i]; j++) {
            s.text[at++] = (uint8_t)('a' + next_random(random, 3));
        }
    }
    return s;
}

/* Returns the longest stop that ends with the text, or -1. */
static int32_t ends_with(const strings *s, const uint8_t *text, uint32_t size) {
    int32_t best = -1;
    uint32_t at = 0;
    for (uint32_t i = 0; i < s->count; at += s->sizes[i++]) {
        if (s->sizes[i] <= size && memcmp(text + size - s->sizes[i], s->text + at, s->sizes[i]) == 0 &&
            (best < 0 || s->sizes[i] > s->sizes[best])) {
            best = (int32_t)i;
        }
    }
    return best;
}

/* Returns how many of the last bytes begin a stop that is not complete. */
static uint32_t held_of(const strings *s, const uint8_t *text, uint32_t size) {
    uint32_t best = 0, at = 0;
    for (uint32_t i = 0; i < s->count; at += s->sizes[i++]) {
        for (uint32_t n = best + 1; n < s->sizes[i] && n <= size; n++) {
            if (memcmp(text + size - n, s->text + at, n) == 0) {
                best = n;
            }
        }
    }
    return best;
}

static void compare_with_search(void) {
    uint64_t random = 7;
    for (int round = 0; round < ROUNDS; round++) {
        const strings s = random_stops(&random);
        tp_stops *made;
        CHECK(tp_stops_get(NULL, s.text, s.sizes, s.count, &made) == TP_OK);
        uint8_t text[TEXT];
        uint32_t state = 0;
        for (uint32_t i = 0; i < TEXT; i++) {
            int32_t found;
            text[i] = (uint8_t)('a' + next_random(&random, 4));
            CHECK(tp_stops_scan(made, &state, text + i, 1, &found) == 1);
            CHECK(found == ends_with(&s, text, i + 1));
            CHECK(tp_stops_held(made, state) == held_of(&s, text, i + 1));
        }
        tp_stops_put(made);
    }
}

/* ---- long and many stops ---- */

static uint8_t big[BIG];

static void fill_big(void) {
    uint64_t random = 9;
    for (uint32_t i = 0; i < BIG; i++) {
        big[i] = (uint8_t)next_random(&random, 256);
    }
}

static void check_memory(void) {
    const uint32_t sizes[] = {BIG};
    tp_stops *made;
    allocated = 0;
    CHECK(tp_stops_get(NULL, big, sizes, 1, &made) == TP_OK);
    CHECK(allocated < 40u * BIG); /* with a table for each state it was 16 MB */
    uint32_t state = 0;
    int32_t found;
    CHECK(tp_stops_scan(made, &state, big, BIG - 1, &found) == BIG - 1 && found == -1);
    CHECK(tp_stops_held(made, state) == BIG - 1);
    CHECK(tp_stops_scan(made, &state, big + BIG - 1, 1, &found) == 1 && found == 0);
    tp_stops_put(made);
}

/* Each byte is a stop, and so is each byte behind an 'a': a node with many children. */
static void check_many_children(void) {
    uint8_t text[256 * 3];
    uint32_t sizes[512], at = 0;
    for (uint32_t i = 0; i < 256; i++) {
        text[at++] = (uint8_t)i;
        sizes[i] = 1;
    }
    for (uint32_t i = 0; i < 256; i++) {
        text[at++] = 'a';
        text[at++] = (uint8_t)i;
        sizes[256 + i] = 2;
    }
    tp_stops *made;
    CHECK(tp_stops_get(NULL, text, sizes, 512, &made) == TP_OK);
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t state = 0;
        int32_t found;
        const uint8_t both[2] = {'a', (uint8_t)i};
        CHECK(tp_stops_scan(made, &state, both, 2, &found) == 1 && found == 'a');
        CHECK(tp_stops_scan(made, &state, both + 1, 1, &found) == 1 && found == (int32_t)(256 + i));
    }
    tp_stops_put(made);
}

static void check_sharing(void) {
    static tp_stops_pool pool;
    const uint32_t one[] = {BIG}, two[] = {1, BIG - 1}, none[] = {1, 0}, large[] = {BIG, 1};
    tp_stops *made[128], *other;
    CHECK(tp_stops_get(&pool, big, one, 1, &made[0]) == TP_OK);
    calls = 0;
    for (int i = 1; i < 128; i++) {
        CHECK(tp_stops_get(&pool, big, one, 1, &made[i]) == TP_OK && made[i] == made[0]);
    }
    CHECK(calls == 0);
    CHECK(tp_stops_get(&pool, big, two, 2, &other) == TP_OK && other != made[0]);
    for (int i = 0; i < 128; i++) {
        tp_stops_put(made[i]);
    }
    tp_stops_put(other);
    for (int i = 0; i < 256; i++) {
        CHECK(pool.buckets[i] == NULL);
    }
    CHECK(tp_stops_get(&pool, big, none, 2, &other) == TP_E_LIMIT);
    CHECK(tp_stops_get(&pool, big, large, 2, &other) == TP_E_LIMIT);
}

int main(void) {
    fill_big();
    compare_with_search();
    check_memory();
    check_many_children();
    check_sharing();
    puts("ok");
    return 0;
}
