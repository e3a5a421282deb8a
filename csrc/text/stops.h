/* Stop strings as one automaton over the bytes of the text (Aho and Corasick). A byte costs one
 * transition on average. The number of strings does not matter, and strings that begin and do not go on cost
 * nothing. */
#ifndef TP_STOPS_H
#define TP_STOPS_H

#include "wire/layout.h"
#include "wire/result.h"

#define TP_MAX_STOP_BYTES 16384u /* of all stop strings of a request */

/* A state: the text ends with this beginning of a stop. Its children stand side by side, by label. */
typedef struct tp_stop_node {
    uint16_t fail;  /* the longest shorter beginning with which the text ends too */
    uint16_t child; /* its first child */
    uint16_t held;  /* bytes that are the beginning of a stop that is not complete */
    uint16_t stop;  /* 1 + the stop that ends here, or 0 */
    uint16_t children;
    uint8_t label; /* its last byte */
} tp_stop_node;

typedef struct tp_stops {
    uint32_t count;
    uint64_t first;      /* bit c % 64 of every byte c that begins a stop */
    uint16_t root[256];  /* the state after each byte if nothing came before */
    tp_stop_node *nodes; /* node 0 is the root */
    uint32_t *sizes;     /* of each stop, in bytes */

    /* Of a shared automaton. */
    struct tp_stops *next, **at; /* in its bucket; at NULL: it is in no pool */
    uint64_t hash;
    uint8_t *text; /* the strings, one after another */
    uint32_t total, users;
} tp_stops;

/* The automata that are in use, so that the samples of one request share one. All zero: empty. */
typedef struct tp_stops_pool {
    tp_stops *buckets[256];
} tp_stops_pool;

/* Makes an automaton, or shares an equal one of the pool. `text` has the strings one after another. The pool
 * may be NULL, and must outlive the automaton. TP_E_LIMIT: a size is 0, or the sizes sum to more than
 * TP_MAX_STOP_BYTES. */
tp_result tp_stops_get(tp_stops_pool *pool, const uint8_t *text, const uint32_t *sizes, uint32_t count,
                       tp_stops **stops);
/* Gives an automaton back. NULL is allowed. */
void tp_stops_put(tp_stops *s);

/* Reads text. *state is 0 at the beginning, and is updated. Returns how many bytes it read. If no stop ends
 * in the text, it reads all and sets *found to -1. Else it reads up to the end of the first stop and sets
 * *found to it. If several stops end there, *found is the longest. */
size_t tp_stops_scan(const tp_stops *s, uint32_t *state, const uint8_t *text, size_t size, int32_t *found);

/* Returns how many of the last bytes are the beginning of a stop that is not complete. */
static inline uint32_t tp_stops_held(const tp_stops *s, uint32_t state) { return s->nodes[state].held; }

#endif
