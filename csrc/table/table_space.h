/* The arrays in which a flush builds an OutputFrame. They stay allocated. */
#ifndef TP_TABLE_SPACE_H
#define TP_TABLE_SPACE_H

#include "wire/layout.h"
#include "wire/result.h"

typedef struct tp_space {
    uint64_t *keys, *extras_offset;
    uint32_t *counts, *offsets;
    int32_t *token_ids, *stop_reason, *stop_string, *lp_k, *lp_ids, *lp_ranks;
    float *lp_values;
    uint8_t *finish, *error_code, *error_field, *error, *text, *extras;
    uint16_t *error_len;
    uint32_t *text_len, *text_offset, *cached, *extras_len;
    uint32_t row_capacity, token_capacity, entry_capacity, error_capacity, text_capacity, extras_capacity;
} tp_space;

/* The room that a frame needs: rows, tokens, logprob entries, and bytes of three kinds. */
typedef struct tp_space_need {
    uint64_t rows, tokens, entries, error, text, extras;
} tp_space_need;

tp_result tp_space_reserve(tp_space *s, const tp_space_need *need);
void tp_space_free(tp_space *s);

#endif
