/* Where the columns of an OutputFrame are put together; kept from one to the next. */
#ifndef TP_TABLE_SPACE_H
#define TP_TABLE_SPACE_H

#include "wire/layout.h"
#include "wire/result.h"

typedef struct tp_space {
    uint64_t *keys;
    uint32_t *counts, *offsets;
    int32_t *token_ids, *stop_reason, *stop_string, *lp_k, *lp_ids, *lp_ranks;
    float *lp_values;
    uint8_t *finish, *error_code, *error_field, *error, *text, *annex;
    uint16_t *error_len;
    uint32_t *text_len, *text_offset, *cached, *annex_len;
    uint64_t *annex_offset;
    uint64_t row_capacity, token_capacity, entry_capacity, error_capacity, text_capacity;
    uint64_t annex_capacity;
} tp_space;

void tp_space_free(tp_space *s);
tp_result tp_space_reserve(tp_space *s, uint64_t rows, uint64_t tokens, uint64_t entries, uint64_t error,
                           uint64_t text, uint64_t annex);

#endif
