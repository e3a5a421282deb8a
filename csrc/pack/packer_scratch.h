/* The packer's arrays. They stay allocated, so that a step allocates nothing. */
#ifndef TP_PACKER_SCRATCH_H
#define TP_PACKER_SCRATCH_H

#include "wire/layout.h"
#include "wire/result.h"

/* The newest handle of a slot, and the number of its tokens so far. */
typedef struct tp_position {
    int64_t handle;
    uint32_t count;
} tp_position;

/* The earlier values of a slot in which a row began a newer handle. */
typedef struct tp_replaced {
    size_t row;
    tp_position before;
} tp_replaced;

typedef struct tp_scratch {
    uint32_t rows, tokens, entries; /* capacities */
    int64_t *handles, *again;
    uint16_t *counts;
    uint8_t *status;
    uint32_t *position;
    int32_t *lp_k;
    uint32_t *extras_len;
    tp_replaced *replaced;
    int32_t *token_ids, *lp_ranks;
    int32_t *lp_ids;
    float *lp_values;
} tp_scratch;

/* Makes room for this many rows, tokens and logprob entries. */
tp_result tp_scratch_reserve(tp_scratch *s, size_t rows, size_t tokens, size_t entries);
void tp_scratch_free(tp_scratch *s);

#endif
