/* What the C tests share: a check, and random numbers that a seed repeats. */
#ifndef TP_TEST_CHECK_H
#define TP_TEST_CHECK_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                              \
    do {                                                                              \
        if (!(condition)) {                                                           \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                                  \
        }                                                                             \
    } while (0)

/* Returns a number below n, and moves the state on. The state must not be 0. */
static inline uint64_t next_random(uint64_t *state, uint64_t n) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state % n;
}

#endif
