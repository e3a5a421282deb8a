/* The extras of one request until they are sent: bytes that came beside its tokens. C does not read them;
 * docs/wire.md explains them. Each piece begins with [offset, count, skip, size] (u32 each): it came with the
 * `count` tokens of the request from token `offset` on. Its row also had `skip` tokens before these, which
 * the request already had. */
#ifndef TP_EXTRAS_H
#define TP_EXTRAS_H

#include "wire/layout.h"
#include "wire/result.h"

#define TP_WRAP_BYTES 16u

typedef struct tp_extras {
    uint8_t *buffer; /* from `head` on: unsent pieces; a part of the first may have been sent */
    uint32_t head, len, capacity;
    uint32_t ready;   /* bytes that may be sent; the rest goes with the next token, or with the end */
    uint32_t charged; /* ready bytes that are on the client's account */
    uint64_t offset;  /* bytes that were sent */
} tp_extras;

typedef struct tp_wrap {
    uint32_t offset, count, skip, size;
} tp_wrap;

tp_extras *tp_extras_new(uint64_t offset); /* NULL: no memory */
void tp_extras_free(tp_extras *e);

/* Makes room for a piece of `size` bytes, so that tp_extras_add cannot fail. */
tp_result tp_extras_reserve(tp_extras *e, uint32_t size);
void tp_extras_add(tp_extras *e, const tp_wrap *wrap, const uint8_t *data);

/* Adds `base` to all offsets, before anything is sent. Drops the pieces that came with token `end` or a later
 * one. Pieces that came with a token before `total` may be sent. */
void tp_extras_rebase(tp_extras *e, uint32_t base, uint64_t end, uint32_t total);
void tp_extras_sent(tp_extras *e, uint32_t bytes);

/* The unsent bytes. */
static inline const uint8_t *tp_extras_bytes(const tp_extras *e) { return e->buffer + e->head; }

static inline void tp_extras_settle(tp_extras *e) { e->ready = e->len; }

/* Drops everything that is not sent. */
static inline void tp_extras_forget(tp_extras *e) { e->head = e->len = e->ready = e->charged = 0; }

#endif
