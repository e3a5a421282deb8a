/* Runs a fuzz target where there is no libFuzzer: `driver SEED INPUTS SECONDS FOLDER FILE...`. It runs the
 * files, then inputs that it makes of them. An input that reaches new code joins them, and is written to
 * FOLDER unless that is "-". The sources of csrc/ call __sanitizer_cov_trace_pc; this file is compiled
 * without that. An input that fails is written to the file `failed-input`. */
#include "input.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MOST = 4096, SIZE = 4096, PLACES = 1 << 16, KEPT = 20000 };

typedef struct kept {
    uint8_t *data;
    size_t size;
} kept;

static kept corpus[KEPT];
static size_t corpus_size;
static uint64_t state;
static uint8_t seen[PLACES], reached[PLACES];
static uint32_t touched[PLACES], touched_count;
static uint8_t now[SIZE];
static size_t now_size;
static int finished;

void __sanitizer_cov_trace_pc(void);
void __sanitizer_set_death_callback(void (*callback)(void));

void __sanitizer_cov_trace_pc(void) {
    const uintptr_t here = (uintptr_t)__builtin_return_address(0);
    const uint32_t place = (uint32_t)((here * UINT64_C(0x9E3779B97F4A7C15)) >> 48);
    if (!reached[place]) {
        reached[place] = 1;
        touched[touched_count++] = place;
    }
}

static void write_file(const char *path, const uint8_t *data, size_t size) {
    FILE *file = fopen(path, "wb");
    if (file != NULL) {
        fwrite(data, 1, size, file);
        fclose(file);
    }
}

static void write_failed(void) {
    if (!finished) {
        write_file("failed-input", now, now_size);
    }
}

/* Runs the present input. Returns whether it reached new code. */
static int run_now(void) {
    uint8_t *exact = malloc(now_size + (now_size == 0)); /* so that a read past its end is seen */
    CHECK(exact != NULL);
    memcpy(exact, now, now_size);
    touched_count = 0;
    (void)LLVMFuzzerTestOneInput(exact, now_size);
    free(exact);
    int fresh = 0;
    for (uint32_t i = 0; i < touched_count; i++) {
        fresh |= !seen[touched[i]];
        seen[touched[i]] = 1;
        reached[touched[i]] = 0;
    }
    return fresh;
}

static void keep(void) {
    if (corpus_size < KEPT) {
        uint8_t *copy = malloc(now_size + 1);
        CHECK(copy != NULL);
        memcpy(copy, now, now_size);
        corpus[corpus_size++] = (kept){copy, now_size};
    }
}

static size_t chance(size_t n) { return (size_t)next_random(&state, n); }

static void change_once(void) {
    const size_t at = chance(now_size + 1);
    const kept *other = &corpus[chance(corpus_size)];
    switch (chance(6)) {
    case 0:
        if (at < now_size) {
            now[at] = (uint8_t)chance(256);
        }
        break;
    case 1:
        if (at < now_size) {
            now[at] ^= (uint8_t)(1u << chance(8));
        }
        break;
    case 2: /* takes some bytes out */
        if (at < now_size) {
            const size_t n = 1 + chance(now_size - at < 16 ? now_size - at : 16);
            memmove(now + at, now + at + n, now_size - at - n);
            now_size -= n;
        }
        break;
    case 3: /* puts some in */
        for (size_t n = 1 + chance(16); n > 0 && now_size < SIZE; n--) {
            memmove(now + at + 1, now + at, now_size - at);
            now[at] = (uint8_t)chance(256);
            now_size++;
        }
        break;
    case 4: /* goes on as another input does */
        if (other->size > 0) {
            const size_t from = chance(other->size);
            const size_t n = other->size - from < SIZE - at ? other->size - from : SIZE - at;
            memcpy(now + at, other->data + from, n);
            now_size = at + n;
        }
        break;
    default: /* says something twice */
        if (at < now_size) {
            const size_t n = 1 + chance(now_size - at < 64 ? now_size - at : 64);
            if (now_size + n <= SIZE) {
                memmove(now + at + n, now + at, now_size - at);
                now_size += n;
            }
        }
    }
}

static void make_next(void) {
    const kept *base = &corpus[chance(corpus_size)];
    memcpy(now, base->data, base->size);
    now_size = base->size;
    for (size_t n = 1 + chance(8); n > 0; n--) {
        change_once();
    }
}

static void read_corpus(char **files, int count) {
    now_size = 0;
    keep();
    for (int i = 0; i < count; i++) {
        FILE *file = fopen(files[i], "rb");
        CHECK(file != NULL);
        now_size = fread(now, 1, SIZE, file);
        fclose(file);
        (void)run_now();
        keep();
    }
}

int main(int argc, char **argv) {
    CHECK(argc >= 5);
    state = strtoull(argv[1], NULL, 10) * 2 + 1;
    const long inputs = strtol(argv[2], NULL, 10);
    const time_t end = time(NULL) + strtol(argv[3], NULL, 10);
    __sanitizer_set_death_callback(write_failed);
    atexit(write_failed);
    read_corpus(argv + 5, argc - 5);
    long done = 0;
    for (; (inputs == 0 || done < inputs) && (done % 256 != 0 || time(NULL) <= end); done++) {
        make_next();
        if (run_now()) {
            keep();
            if (strcmp(argv[4], "-") != 0) {
                char path[MOST];
                snprintf(path, sizeof path, "%s/%08lx.bin", argv[4], done);
                write_file(path, now, now_size);
            }
        }
    }
    finished = 1;
    printf("%ld inputs, %zu kept\n", done, corpus_size);
    return 0;
}
