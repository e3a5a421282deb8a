/* Stop strings as one automaton over the bytes of the text (Aho and Corasick). A byte costs one
 * transition. The number of strings does not matter, and strings that begin and do not go on cost nothing. */
#ifndef TP_STOPS_H
#define TP_STOPS_H

#include "wire/layout.h"
#include "wire/result.h"

#define TP_MAX_STOP_BYTES 16384u /* of all stop strings of a request */

typedef struct tp_stops {
    uint32_t count;
    uint32_t classes; /* one for each byte that occurs in a stop, and one for all others */
    uint64_t first;   /* bit c % 64 of every byte c that begins a stop */
    uint32_t *rows;   /* a row for each state: next state of each class, held bytes, stop that ends */
    uint32_t *sizes;  /* of each stop, in bytes */
    uint8_t class_of[256];
} tp_stops;

/* `text` has the strings one after another. TP_E_LIMIT: a size is 0, or the sizes sum to more than
 * TP_MAX_STOP_BYTES. */
tp_result tp_stops_init(tp_stops *s, const uint8_t *text, const uint32_t *sizes, uint32_t count);
void tp_stops_clear(tp_stops *s);

/* Reads text. *state is 0 at the beginning, and is updated. Returns how many bytes it read. If no stop ends
 * in the text, it reads all and sets *found to -1. Else it reads up to the end of the first stop and sets
 * *found to it. If several stops end there, *found is the longest. */
size_t tp_stops_scan(const tp_stops *s, uint32_t *state, const uint8_t *text, size_t size, int32_t *found);

/* Returns how many of the last bytes are the beginning of a stop that is not complete. */
uint32_t tp_stops_held(const tp_stops *s, uint32_t state);

#endif
