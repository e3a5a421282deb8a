/* Stop strings as one automaton over the bytes of the text (Aho and Corasick): a byte costs one step,
 * however many strings there are and however often they begin and come to nothing. */
#ifndef TP_STOPS_H
#define TP_STOPS_H

#include "wire/layout.h"
#include "wire/result.h"

#define TP_MAX_STOP_BYTES 16384u /* of all stop strings of a request */

typedef struct tp_stops {
    uint32_t count;
    uint32_t classes; /* bytes that occur in a stop, and one for all others */
    uint64_t first;   /* bit c % 64 of every byte c that begins a stop */
    uint32_t *rows;   /* a row a state: where each class leads, what is held, which ends */
    uint32_t *sizes;  /* of each stop, in bytes */
    uint8_t class_of[256];
} tp_stops;

/* The strings lie one after another in text. Sizes must be 1 or more, and sum to at most
 * TP_MAX_STOP_BYTES: else TP_E_LIMIT. */
tp_result tp_stops_init(tp_stops *s, const uint8_t *text, const uint32_t *sizes, uint32_t count);
void tp_stops_clear(tp_stops *s);

/* Reads text from *state on (0 at the beginning). Returns how many bytes were read: all, or, with
 * *found >= 0, up to and with the last byte of that stop. The longest of those that end there. */
size_t tp_stops_scan(const tp_stops *s, uint32_t *state, const uint8_t *text, size_t size, int32_t *found);

/* How many bytes at the end of what was read are the beginning of a stop and not all of it. */
uint32_t tp_stops_held(const tp_stops *s, uint32_t state);

#endif
