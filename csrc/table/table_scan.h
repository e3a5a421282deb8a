/* Finds the token that ends a request. */
#ifndef TP_TABLE_SCAN_H
#define TP_TABLE_SCAN_H

#include "table/table_types.h"

/* The end of a request in tokens[0..n). They follow the b->total tokens that the binding has. */
typedef struct tp_end {
    uint32_t used;  /* tokens up to the end, or n */
    uint8_t finish; /* enum tp_finish; TP_FINISH_NONE: the request goes on */
    uint8_t cause;  /* enum tp_row_error; if not TP_CAUSE_NONE, the token after the used ones is wrong */
    int32_t token;  /* the stop token, or the wrong one */
    int32_t string; /* the stop string that ended it, or TP_NO_STOP */
} tp_end;

/* Scans tokens, and reads their text if text is wanted. So each token must be scanned exactly once. The
 * earliest token that ends the request counts. If one token ends it for several reasons, the stop string
 * comes first, then the stop token, then the length. */
tp_end tp_binding_scan(const tp_table *t, tp_binding *b, const int32_t *tokens, uint32_t n);

/* Whether a token is a stop token. It is number `count` of the request, from 1. */
static inline int tp_token_stops(const tp_binding *b, int32_t token, uint32_t count) {
    if (!((b->stop_mask >> ((uint32_t)token & 63)) & 1) || count < b->min_tokens) {
        return 0;
    }
    for (uint32_t i = 0; i < b->stop_count; i++) {
        if (b->stop_ids[i] == token) {
            return 1;
        }
    }
    return 0;
}

#endif
