/* Keeps logprobs until they are sent. */
#include "table/table_tail.h"

#include <stdlib.h>
#include <string.h>

#include "buffer.h"

#define BY_TOKEN(tail) {TP_GROWING((tail)->k), TP_GROWING((tail)->ranks)}
#define BY_ENTRY(tail) {TP_GROWING((tail)->ids), TP_GROWING((tail)->values)}

void tp_tail_free(tp_binding *b) {
    if (b->tail != NULL) {
        const tp_growing by_token[] = BY_TOKEN(b->tail), by_entry[] = BY_ENTRY(b->tail);
        tp_buffers_free(by_token, 2);
        tp_buffers_free(by_entry, 2);
        free(b->tail);
        b->tail = NULL;
    }
    b->flags &= (uint16_t)~TP_B_LOGPROBS;
}

/* Returns how many unsent tokens came before the first one with logprobs. */
static inline uint32_t missing(const tp_binding *b) { return b->total - b->sent - b->tail->tokens; }

static inline uint64_t entries_of(const tp_row *row, uint32_t n) {
    return row->k < 0 ? 0 : ((uint64_t)row->k + 1) * n;
}

tp_result tp_tail_reserve(tp_binding *b, const tp_row *row, uint32_t n) {
    if (b->tail == NULL && (b->tail = calloc(1, sizeof *b->tail)) == NULL) {
        return TP_E_MEMORY;
    }
    tp_tail *tail = b->tail;
    const tp_growing by_token[] = BY_TOKEN(tail), by_entry[] = BY_ENTRY(tail);
    const uint64_t tokens = (uint64_t)tail->tokens + missing(b) + n;
    TP_TRY(tp_buffers_grow(by_token, 2, &tail->token_capacity, tokens));
    return tp_buffers_grow(by_entry, 2, &tail->entry_capacity, tail->entries + entries_of(row, n));
}

static void add_without(tp_tail *tail, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        tail->k[tail->tokens] = -1;
        tail->ranks[tail->tokens++] = 0;
    }
}

void tp_tail_add(tp_binding *b, const tp_row *row, uint32_t n) {
    tp_tail *tail = b->tail;
    b->flags |= TP_B_LOGPROBS;
    add_without(tail, missing(b));
    if (row->k < 0) {
        add_without(tail, n);
        return;
    }
    const uint64_t entries = entries_of(row, n);
    if (n > 0) {
        memcpy(tail->ids + tail->entries, row->lp_ids, entries * 4);
        memcpy(tail->values + tail->entries, row->lp_values, entries * 4);
        memcpy(tail->ranks + tail->tokens, row->lp_ranks, (size_t)n * 4);
    }
    for (uint32_t i = 0; i < n; i++) {
        tail->k[tail->tokens + i] = row->k;
    }
    tail->tokens += n;
    tail->entries += (uint32_t)entries;
}

uint32_t tp_tail_scored(const tp_tail *tail) {
    uint32_t scored = 0;
    for (uint32_t i = 0; i < tail->tokens; i++) {
        scored += tail->k[i] >= 0;
    }
    return scored;
}

void tp_tail_cut(tp_tail *tail, uint32_t keep) {
    for (uint32_t i = keep; i < tail->tokens; i++) {
        tail->entries -= (uint32_t)(tail->k[i] + 1);
    }
    tail->tokens = keep < tail->tokens ? keep : tail->tokens;
}

void tp_tail_shift(tp_tail *tail, uint32_t tokens, uint32_t entries) {
    tail->tokens -= tokens;
    tail->entries -= entries;
    memmove(tail->k, tail->k + tokens, (size_t)tail->tokens * 4);
    memmove(tail->ranks, tail->ranks + tokens, (size_t)tail->tokens * 4);
    if (tail->entries > 0) { /* without entries, ids and values may be NULL */
        memmove(tail->ids, tail->ids + entries, (size_t)tail->entries * 4);
        memmove(tail->values, tail->values + entries, (size_t)tail->entries * 4);
    }
}
