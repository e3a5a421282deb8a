/* Token ids to text, a token at a time. A character is written once, whole, and never taken back;
 * bytes that can become none are written as U+FFFD. The state is plain data: copy it to go back. */
#ifndef TP_DETOK_H
#define TP_DETOK_H

#include "text/vocab.h"

typedef struct tp_detok {
    uint8_t pending[3], count; /* the beginning of a character */
    uint8_t begun;             /* the next token is not the first, or reads the same if it is */
    uint8_t strip;             /* leading spaces that are still to be cut off */
    uint8_t added;             /* the last token was an added one */
    uint8_t skip_special, spaces;
} tp_detok;

/* spaces 0: an added token right behind another is written raw. */
void tp_detok_init(tp_detok *d, const tp_vocab *v, int skip_special, int spaces);

/* Behind text that is not shown: the first token has been, and nothing is stripped. */
static inline void tp_detok_continue(tp_detok *d) {
    d->begun = 1;
    d->strip = 0;
}

/* Whether a word that is TP_WORD_PLAIN reads as its bytes now, and nothing else of the state but
 * `added` changes with it. */
static inline int tp_detok_plain(const tp_detok *d) { return d->begun && !(d->count | d->strip); }

/* The most bytes that a step with this token, and an end behind it, may write. */
static inline size_t tp_detok_room(const tp_vocab *v, int32_t token) {
    size_t size = 0;
    if (token >= 0 && (uint32_t)token < v->count) {
        size = v->words[token].size;
        if (v->first != NULL && v->first[token].size > size) {
            size = v->first[token].size;
        }
        if (v->raw != NULL && v->raw[token].size > size) {
            size = v->raw[token].size;
        }
    }
    return 3 * (size + 3); /* each byte, and each that was pending, may be a U+FFFD */
}

/* Both return the bytes written to out. */
size_t tp_detok_step(tp_detok *d, const tp_vocab *v, int32_t token, uint8_t *out);
size_t tp_detok_end(tp_detok *d, const tp_vocab *v, uint8_t *out);

#endif
