/* The text of one request: detokenized, searched for stop strings, kept until it is sent.
 * After n tokens its state, and what of it may be sent, follow from these n tokens alone. */
#ifndef TP_TEXT_H
#define TP_TEXT_H

#include "detok.h"
#include "stops.h"

typedef struct tp_text {
    const tp_vocab *vocab;
    void *stream;    /* of vocab->foreign */
    tp_stops *stops; /* NULL: none */
    uint8_t *buffer; /* text that is not sent yet */
    uint32_t len, capacity;
    uint32_t ready;  /* so much of it may be sent: the rest may turn out to begin a stop */
    uint32_t offset; /* bytes of text that were sent */
    uint32_t charged; /* how much of ready its client's account has */
    uint32_t state;  /* of stops */
    tp_detok detok;
    uint8_t include_stop; /* a stop string, or the text of a stop token, is part of the text */
    uint8_t ended;
} tp_text;

typedef struct tp_text_wish {
    uint8_t skip_special, spaces, include_stop;
    const uint8_t *stops; /* stop strings, one after another */
    const uint32_t *stop_sizes;
    uint32_t stop_count;
    const int32_t *prompt; /* the last ids of the prompt, which are not shown */
    uint32_t prompt_count;
    uint8_t prompt_cut;    /* there were more before them */
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

/* No token follows: what was held back, and what never became a character, is text. */
void tp_text_end(tp_text *t);

/* What an end would bring, without ending. Returns how many bytes; written only if they have room. */
size_t tp_text_tail(const tp_text *t, uint8_t *out, size_t room);

/* Takes back everything that is not sent. */
static inline void tp_text_forget(tp_text *t) {
    t->len = t->ready = t->charged = 0;
    t->ended = 1;
}

void tp_text_sent(tp_text *t, uint32_t bytes);

#endif
