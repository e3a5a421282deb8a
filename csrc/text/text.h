/* The text of one request: detokenized, searched for stop strings, kept until it is sent.
 * After n tokens its state, and what of it may be sent, follow from these n tokens alone. */
#ifndef TP_TEXT_H
#define TP_TEXT_H

#include <string.h>

#include "text/detok.h"
#include "text/stops.h"

/* The first 64 bytes, and the few that are not sent yet, are all that a plain token touches. */
typedef struct tp_text {
    _Alignas(64) uint8_t *buffer; /* text that is not sent yet; TP_WORD_SHORT bytes at least */
    tp_stops *stops;              /* NULL: none */
    uint64_t stop_first;          /* theirs, or 0 */
    uint32_t len, capacity;
    uint32_t ready;   /* so much of it may be sent: the rest may turn out to begin a stop */
    uint32_t offset;  /* bytes of text that were sent */
    uint32_t charged; /* how much of ready its client's account has */
    uint32_t state;   /* of stops */
    tp_detok detok;
    uint8_t include_stop; /* a stop string, or the text of a stop token, is part of the text */
    uint8_t ended;

    /* ---- */
    _Alignas(64) uint8_t few[48]; /* the buffer, until that is too small */
    const tp_vocab *vocab;
    void *stream; /* of vocab->foreign */
} tp_text;

_Static_assert(offsetof(tp_text, few) == 64 && sizeof(tp_text) == 128, "two cache lines");

typedef struct tp_text_wish {
    uint8_t skip_special, spaces, include_stop;
    const uint8_t *stops; /* stop strings, one after another */
    const uint32_t *stop_sizes;
    uint32_t stop_count;
    const int32_t *prompt; /* the last ids of the prompt, which are not shown */
    uint32_t prompt_count;
    uint8_t prompt_cut; /* there were more before them */
} tp_text_wish;

/* NULL: no memory, stops that tp_stops_init refuses, or a foreign decoder that fails. */
tp_text *tp_text_new(const tp_vocab *vocab, const tp_text_wish *wish);
void tp_text_free(tp_text *t);

/* To go back to where it was before a token whose text is not shown. */
typedef struct tp_text_mark {
    void *stream;
    tp_detok detok;
    uint32_t len, state;
} tp_text_mark;

tp_result tp_text_here(const tp_text *t, tp_text_mark *mark);
void tp_text_back(tp_text *t, tp_text_mark *mark);   /* uses the mark up */
void tp_text_unmark(tp_text *t, tp_text_mark *mark); /* it is not needed */

/* Reads a token. Where `counts`, *stop is the stop string that is complete with it, and the text
 * ends there; else -1. tp_text_settle must follow before anything is sent. */
tp_result tp_text_step(tp_text *t, int32_t token, int counts, int32_t *stop);

static inline void tp_text_settle(tp_text *t) {
    if (!t->ended) {
        t->ready = t->stops == NULL ? t->len : t->len - tp_stops_held(t->stops, t->state);
    }
}

/* Reads a token that adds a few whole characters and ends no stop: nearly each one. 0: it is none
 * of these, or there is no room, and nothing happened. No step or settle is needed where it returns 1. */
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
    memcpy(t->buffer + t->len, word->text, TP_WORD_SHORT); /* more than it has costs less */
    t->len += word->size;
    t->ready = t->len - held;
    t->state = state;
    t->detok.added = 0;
    return 1;
}

/* No token follows: what was held back, and what never became a character, is text. */
void tp_text_end(tp_text *t);

/* What an end would bring, without ending. Returns how many bytes; written only if they have room. */
size_t tp_text_tail(const tp_text *t, uint8_t *out, size_t room);

/* Takes back everything that is not sent. */
static inline void tp_text_forget(tp_text *t) {
    t->len = t->ready = t->charged = 0;
    t->ended = 1;
}

static inline void tp_text_sent(tp_text *t, uint32_t bytes) {
    t->offset += bytes;
    t->len -= bytes;
    t->ready -= bytes;
    if (t->len > 0 && bytes > 0) {
        memmove(t->buffer, t->buffer + bytes, t->len);
    }
}

#endif
