/* Token ids to text, one token at a time. Each character is written once, as a whole. It is never taken back.
 * Bytes that cannot become a character are written as U+FFFD. The state is plain data, so a copy of it is
 * enough to roll back. */
#ifndef TP_DETOK_H
#define TP_DETOK_H

#include "text/vocab.h"

typedef struct tp_detok {
    uint8_t pending[3], count; /* the first bytes of a character */
    uint8_t begun;             /* a token came before, or the first token has the same text as later ones */
    uint8_t strip;             /* leading spaces that are still to be removed */
    uint8_t added;             /* the last token was an added token */
    uint8_t skip_special, spaces;
} tp_detok;

/* spaces 0: an added token that directly follows another one is written raw. */
void tp_detok_init(tp_detok *d, const tp_vocab *v, int skip_special, int spaces);

/* The text so far was not shown. The next token is not the first one, and nothing is stripped. */
static inline void tp_detok_continue(tp_detok *d) {
    d->begun = 1;
    d->strip = 0;
}

/* Whether the text of a TP_WORD_PLAIN word is its bytes now. Then only `added` changes in the state. */
static inline int tp_detok_plain(const tp_detok *d) { return d->begun && !(d->count | d->strip); }

/* Returns the most bytes that this token, and an end after it, may write. */
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
    return 3 * (size + 3); /* each byte may become a U+FFFD, also the pending ones */
}

/* Both return the number of bytes that they write to out. */
size_t tp_detok_step(tp_detok *d, const tp_vocab *v, int32_t token, uint8_t *out);
size_t tp_detok_end(tp_detok *d, const tp_vocab *v, uint8_t *out);

#endif
