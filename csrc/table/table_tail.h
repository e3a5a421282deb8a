/* The tail of a binding: the logprobs of its unsent tokens, in their order. */
#ifndef TP_TABLE_TAIL_H
#define TP_TABLE_TAIL_H

#include "table/table_types.h"
#include "wire/result.h"

typedef struct tp_tail {
    int32_t *k, *ranks; /* per token; if a token has no logprobs, k is -1 and rank 0 */
    int32_t *ids;       /* 1 + k per token with logprobs */
    float *values;
    uint32_t token_head, tokens, token_capacity; /* the unsent tokens begin at token_head */
    uint32_t entry_head, entries, entry_capacity;
} tp_tail;

/* Makes room for n tokens of a row, so that tp_tail_add cannot fail. Makes the tail if there is none. */
tp_result tp_tail_reserve(tp_binding *b, const tp_row *row, uint32_t n);
/* Adds n tokens of the row, which come after the b->total tokens of the binding. */
void tp_tail_add(tp_binding *b, const tp_row *row, uint32_t n);
void tp_tail_free(tp_binding *b);

/* Returns how many tokens have logprobs. */
uint32_t tp_tail_scored(const tp_tail *tail);
/* Keeps only the first tokens. */
void tp_tail_cut(tp_tail *tail, uint32_t keep);
/* Drops the first tokens. They have this many logprob entries. */
void tp_tail_shift(tp_tail *tail, uint32_t tokens, uint32_t entries);

#endif
