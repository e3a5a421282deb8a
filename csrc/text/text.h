/* The text of one request: detokenized, searched for stop strings, and kept until it is sent. The state
 * after n tokens depends only on these n tokens, and so does the part of the text that may be sent. */
#ifndef TP_TEXT_H
#define TP_TEXT_H

#include <string.h>

#include "text/detok.h"
#include "text/stops.h"

/* A plain token touches only the first 64 bytes, and the few bytes that are not sent yet. */
typedef struct tp_text {
    _Alignas(64) uint8_t *buffer; /* text that is not sent yet; TP_WORD_SHORT bytes at least */
    tp_stops *stops;              /* NULL: none; perhaps shared */
    uint64_t stop_first;          /* stops->first, or 0 */
    uint32_t len, capacity;
    uint32_t ready;   /* bytes that may be sent; the rest may be the beginning of a stop */
    uint32_t offset;  /* bytes of text that were sent */
    uint32_t charged; /* ready bytes that are on the client's account */
    uint32_t state;   /* of stops */
    tp_detok detok;
    uint8_t include_stop; /* a stop string, or the text of a stop token, is part of the text */
    uint8_t ended;

    /* The second cache line. */
    _Alignas(64) uint8_t few[40]; /* the buffer, until it is too small */
    const tp_vocab *vocab;
    void *stream;     /* of vocab->foreign */
    uint32_t shifted; /* bytes of the allocation before the buffer */
} tp_text;

_Static_assert(offsetof(tp_text, few) == 64 && sizeof(tp_text) == 128, "two cache lines");

/* How a request wants its text. */
typedef struct tp_text_options {
    uint8_t skip_special, spaces, include_stop;
    const uint8_t *stops; /* stop strings, one after another */
    const uint32_t *stop_sizes;
    uint32_t stop_count;
    tp_stops_pool *pool;   /* shares the automata of the stops; NULL: they are not shared */
    const int32_t *prompt; /* the last token ids of the prompt, which are not shown */
    uint32_t prompt_count;
    uint8_t prompt_cut; /* the prompt has more tokens before them */
} tp_text_options;

/* Makes a text, and sets *made. If a foreign decoder fails on the prompt, the text begins without the prompt.
 * TP_E_MEMORY, TP_E_LIMIT (see tp_stops_get), TP_E_FOREIGN: *made is NULL. */
tp_result tp_text_new(const tp_vocab *vocab, const tp_text_options *options, tp_text **made);
void tp_text_free(tp_text *t);

/* A saved state. The text of a stop token is not shown, so it is rolled back. */
typedef struct tp_text_mark {
    void *stream;
    tp_detok detok;
    uint32_t len, state;
} tp_text_mark;

/* Marks the present state. Each mark is either rolled back to or dropped. */
tp_result tp_text_set_mark(const tp_text *t, tp_text_mark *mark);
void tp_text_roll_back(tp_text *t, tp_text_mark *mark);
void tp_text_drop_mark(tp_text *t, tp_text_mark *mark);

/* Reads a token. If `counts` is set and a stop string is complete, the text ends there and *stop is this
 * string. Else *stop is -1. The caller must call tp_text_settle before it sends anything. */
tp_result tp_text_step(tp_text *t, int32_t token, int counts, int32_t *stop);

static inline void tp_text_settle(tp_text *t) {
    if (!t->ended) {
        t->ready = t->stops == NULL ? t->len : t->len - tp_stops_held(t->stops, t->state);
    }
}

/* Reads a token that adds a few whole characters and ends no stop, as nearly all tokens do. 1: the token
 * is read, and needs no tp_text_settle. 0: it is another kind of token, or there is no room. Then nothing has
 * changed. */
static inline int tp_text_plain(tp_text *t, const tp_vocab *v, int32_t token) {
    if ((uint32_t)token >= v->count || v->foreign != NULL) {
        return 0;
    }
    const tp_word *word = &v->words[token];
    if (!(word->flags & TP_WORD_PLAIN) || !tp_detok_plain(&t->detok) || t->ended ||
        t->len + TP_WORD_SHORT > t->capacity) {
        return 0;
    }
    uint32_t state = t->state, held = 0;
    if (state != 0 || word->seen & t->stop_first) {
        int32_t found;
        tp_stops_scan(t->stops, &state, word->text, word->size, &found);
        if (found >= 0) {
            return 0;
        }
        held = tp_stops_held(t->stops, state);
    }
    memcpy(t->buffer + t->len, word->text, TP_WORD_SHORT); /* a copy of constant size is faster */
    t->len += word->size;
    t->ready = t->len - held;
    t->state = state;
    t->detok.added = 0;
    return 1;
}

/* No token follows. Held bytes become text, and so do bytes that did not become a character. */
void tp_text_end(tp_text *t);

/* Returns how many bytes tp_text_end would add. Writes them to `out` if they fit. */
size_t tp_text_tail(const tp_text *t, uint8_t *out, size_t room);

/* Drops all text that is not sent. */
static inline void tp_text_forget(tp_text *t) {
    t->len = t->ready = t->charged = 0;
    t->ended = 1;
}

/* Makes the byte at `bytes` of the buffer its first one. */
void tp_text_shift(tp_text *t, uint32_t bytes);

static inline void tp_text_sent(tp_text *t, uint32_t bytes) {
    t->offset += bytes;
    t->len -= bytes;
    t->ready -= bytes;
    if (t->len > 0 && bytes > 0) {
        tp_text_shift(t, bytes);
    }
}

#endif
