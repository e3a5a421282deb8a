/* Annexes of one request until they are sent: what rows carry beside their tokens. Each is wrapped
 * in [offset, count, skip, size] (u32 each): it came with `count` tokens of the request from token
 * `offset` on, and with `skip` before them that are not its own. What the bytes mean is no business
 * of C; docs/wire.md says it. */
#ifndef TP_ANNEX_H
#define TP_ANNEX_H

#include "wire/layout.h"
#include "wire/result.h"

#define TP_WRAP_BYTES 16u

typedef struct tp_annex {
    uint8_t *buffer; /* wraps that are not sent yet; the first may have been sent in part */
    uint32_t len, capacity;
    uint32_t ready;   /* so much of it may be sent: the rest goes with the next token, or the end */
    uint32_t charged; /* how much of ready its client's account has */
    uint64_t offset;  /* bytes that were sent */
} tp_annex;

typedef struct tp_wrap {
    uint32_t offset, count, skip, size;
} tp_wrap;

tp_annex *tp_annex_new(uint64_t offset); /* NULL: no memory */
void tp_annex_free(tp_annex *a);
/* Takes all of it, or nothing on TP_E_MEMORY. */
tp_result tp_annex_add(tp_annex *a, const tp_wrap *wrap, const uint8_t *data);
/* Nothing was sent, and offsets are counted from 0: they are from `base` on. What stands at or
 * behind token `end` is dropped; what stands before token `total` is ready. */
void tp_annex_rebase(tp_annex *a, uint32_t base, uint64_t end, uint32_t total);
void tp_annex_sent(tp_annex *a, uint32_t bytes);

static inline void tp_annex_settle(tp_annex *a) { a->ready = a->len; }

/* Takes back everything that is not sent. */
static inline void tp_annex_forget(tp_annex *a) { a->len = a->ready = a->charged = 0; }

#endif
