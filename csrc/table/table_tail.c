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

static void slide(void *array, uint32_t head, uint32_t n) {
    uint8_t *bytes = array;
    if (head > 0 && n > 0) {
        memmove(bytes, bytes + (size_t)head * 4, (size_t)n * 4);
    }
}

/* Both make room for a number of tokens or entries, sent ones not counted. The data is moved only if as much
 * was sent before it. */
static tp_result reserve_tokens(tp_tail *tail, uint64_t need) {
    if (tail->token_head + need > tail->token_capacity && tail->token_head >= tail->tokens) {
        slide(tail->k, tail->token_head, tail->tokens);
        slide(tail->ranks, tail->token_head, tail->tokens);
        tail->token_head = 0;
    }
    const tp_growing by_token[] = BY_TOKEN(tail);
    return tp_buffers_grow(by_token, 2, &tail->token_capacity, tail->token_head + need);
}

static tp_result reserve_entries(tp_tail *tail, uint64_t need) {
    if (tail->entry_head + need > tail->entry_capacity && tail->entry_head >= tail->entries) {
        slide(tail->ids, tail->entry_head, tail->entries);
        slide(tail->values, tail->entry_head, tail->entries);
        tail->entry_head = 0;
    }
    const tp_growing by_entry[] = BY_ENTRY(tail);
    return tp_buffers_grow(by_entry, 2, &tail->entry_capacity, tail->entry_head + need);
}

tp_result tp_tail_reserve(tp_binding *b, const tp_row *row, uint32_t n) {
    if (b->tail == NULL && (b->tail = calloc(1, sizeof *b->tail)) == NULL) {
        return TP_E_MEMORY;
    }
    tp_tail *tail = b->tail;
    TP_TRY(reserve_tokens(tail, (uint64_t)tail->tokens + missing(b) + n));
    return reserve_entries(tail, tail->entries + entries_of(row, n));
}

static void add_without(tp_tail *tail, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t at = tail->token_head + tail->tokens++;
        tail->k[at] = -1;
        tail->ranks[at] = 0;
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
    const uint32_t token = tail->token_head + tail->tokens, entry = tail->entry_head + tail->entries;
    if (n > 0) {
        memcpy(tail->ids + entry, row->lp_ids, entries * 4);
        memcpy(tail->values + entry, row->lp_values, entries * 4);
        memcpy(tail->ranks + token, row->lp_ranks, (size_t)n * 4);
    }
    for (uint32_t i = 0; i < n; i++) {
        tail->k[token + i] = row->k;
    }
    tail->tokens += n;
    tail->entries += (uint32_t)entries;
}

uint32_t tp_tail_scored(const tp_tail *tail) {
    uint32_t scored = 0;
    for (uint32_t i = 0; i < tail->tokens; i++) {
        scored += tail->k[tail->token_head + i] >= 0;
    }
    return scored;
}

void tp_tail_cut(tp_tail *tail, uint32_t keep) {
    for (uint32_t i = keep; i < tail->tokens; i++) {
        tail->entries -= (uint32_t)(tail->k[tail->token_head + i] + 1);
    }
    tail->tokens = keep < tail->tokens ? keep : tail->tokens;
}

void tp_tail_shift(tp_tail *tail, uint32_t tokens, uint32_t entries) {
    tail->tokens -= tokens;
    tail->entries -= entries;
    tail->token_head = tail->tokens == 0 ? 0 : tail->token_head + tokens;
    tail->entry_head = tail->entries == 0 ? 0 : tail->entry_head + entries;
}
