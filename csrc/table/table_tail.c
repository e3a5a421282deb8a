/* Logprobs of tokens that are not sent yet. */
#include <stdlib.h>
#include <string.h>

#include "table/table.h"

void tp_tail_free(tp_binding *b) {
    if (b->tail != NULL) {
        free(b->tail->k);
        free(b->tail->ranks);
        free(b->tail->ids);
        free(b->tail->values);
        free(b->tail);
        b->tail = NULL;
    }
    b->flags &= (uint16_t)~TP_B_LOGPROBS;
}

static int grow(void *array, uint64_t count) { /* array: address of a pointer to 4-byte values */
    void **at = array;
    void *grown = realloc(*at, count * 4);
    if (grown == NULL) {
        return 0;
    }
    *at = grown;
    return 1;
}

static tp_result reserve(tp_tail *tail, uint64_t tokens, uint64_t entries) {
    tokens += tail->tokens;
    entries += tail->entries;
    if (tokens > UINT32_MAX / 2 || entries > UINT32_MAX / 2) {
        return TP_E_MEMORY;
    }
    if (tokens > tail->token_capacity) {
        tokens += tokens / 2;
        if (!grow(&tail->k, tokens) || !grow(&tail->ranks, tokens)) {
            return TP_E_MEMORY;
        }
        tail->token_capacity = (uint32_t)tokens;
    }
    if (entries > tail->entry_capacity) {
        entries += entries / 2;
        if (!grow(&tail->ids, entries) || !grow(&tail->values, entries)) {
            return TP_E_MEMORY;
        }
        tail->entry_capacity = (uint32_t)entries;
    }
    return TP_OK;
}

static void add_plain(tp_tail *tail, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        tail->k[tail->tokens] = -1;
        tail->ranks[tail->tokens++] = 0;
    }
}

tp_result tp_tail_add(tp_binding *b, const tp_row *row, uint32_t n) {
    if (b->tail == NULL) {
        b->tail = calloc(1, sizeof *b->tail);
        if (b->tail == NULL) {
            return TP_E_MEMORY;
        }
    }
    tp_tail *tail = b->tail;
    const uint32_t before = b->total - b->sent - tail->tokens; /* unsent ones without an entry */
    const uint64_t each = row->k < 0 ? 0 : (uint64_t)row->k + 1;
    if (reserve(tail, (uint64_t)before + n, each * n) != TP_OK) {
        return TP_E_MEMORY;
    }
    b->flags |= TP_B_LOGPROBS;
    add_plain(tail, before);
    if (row->k < 0) {
        add_plain(tail, n);
        return TP_OK;
    }
    if (n > 0) {
        memcpy(tail->ids + tail->entries, row->lp_ids, each * n * 4);
        memcpy(tail->values + tail->entries, row->lp_values, each * n * 4);
        memcpy(tail->ranks + tail->tokens, row->lp_ranks, (size_t)n * 4);
    }
    for (uint32_t i = 0; i < n; i++) {
        tail->k[tail->tokens + i] = row->k;
    }
    tail->tokens += n;
    tail->entries += (uint32_t)(each * n);
    return TP_OK;
}

uint32_t tp_tail_entries(const tp_tail *tail, uint32_t from, uint32_t to) {
    uint32_t entries = 0;
    for (uint32_t i = from; i < to; i++) {
        entries += (uint32_t)(tail->k[i] + 1);
    }
    return entries;
}

uint32_t tp_tail_scored(const tp_tail *tail) {
    uint32_t scored = 0;
    for (uint32_t i = 0; i < tail->tokens; i++) {
        scored += tail->k[i] >= 0;
    }
    return scored;
}

void tp_tail_cut(tp_tail *tail, uint32_t keep) {
    if (keep < tail->tokens) {
        tail->entries -= tp_tail_entries(tail, keep, tail->tokens);
        tail->tokens = keep;
    }
}

void tp_tail_shift(tp_tail *tail, uint32_t tokens, uint32_t entries) {
    tail->tokens -= tokens;
    tail->entries -= entries;
    memmove(tail->k, tail->k + tokens, (size_t)tail->tokens * 4);
    memmove(tail->ranks, tail->ranks + tokens, (size_t)tail->tokens * 4);
    if (tail->entries > 0) { /* ids and values are NULL where no token had any */
        memmove(tail->ids, tail->ids + entries, (size_t)tail->entries * 4);
        memmove(tail->values, tail->values + entries, (size_t)tail->entries * 4);
    }
}
