/* Packs the rows of an OutputFrame into the table's space. The functions that most rows need are inline. */
#ifndef TP_TABLE_PACK_H
#define TP_TABLE_PACK_H

#include <string.h>

#include "table/table_client.h"
#include "table/table_types.h"

/* The state of a frame while it is packed: its sizes, and the columns that are not all default. */
typedef struct tp_packed {
    tp_space *s;
    tp_client *client;
    uint64_t bytes, limit, most; /* most: rows that the frame may have */
    uint32_t rows, tokens, entries, scored, error_bytes, text_bytes, extras_bytes;
    int counted, finished, stopped, with_k, with_text, strings, cached, erred, coded, blamed, with_extras;
} tp_packed;

/* Fills a column with its default, which is a repeated byte. This is done before the first other value is
 * written, so a column in which all rows have the default costs nothing. */
static inline void tp_pack_begin(const tp_packed *p, int *begun, void *column, int fill, size_t width) {
    if (!*begun) {
        memset(column, fill, p->most * width);
        *begun = 1;
    }
}

/* Fills counts with 1. */
void tp_pack_counts(tp_packed *p);
/* Makes the last row that was packed the final row of its request. */
void tp_pack_end(tp_packed *p, const tp_binding *b);
/* Packs the unsent tokens of a binding with logprobs: one row for each series of tokens with the same k. */
void tp_pack_runs(tp_packed *p, tp_binding *b);

static inline void tp_pack_begin_text(tp_packed *p) {
    if (!p->with_text) {
        memset(p->s->text_len, 0, p->most * sizeof *p->s->text_len);
        memset(p->s->text_offset, 0, p->most * sizeof *p->s->text_offset);
        p->with_text = 1;
    }
}

/* Packs a row with the next n tokens of a binding. */
static inline void tp_pack_row(tp_packed *p, tp_binding *b, uint32_t n) {
    tp_space *s = p->s;
    const uint32_t row = p->rows++;
    s->keys[row] = b->key;
    s->offsets[row] = b->sent;
    if (n == 1) {
        s->token_ids[p->tokens] = b->tokens[b->sent];
    } else if (n > 0) {
        memcpy(s->token_ids + p->tokens, b->tokens + b->sent, (size_t)n * 4);
    }
    if (n != 1 && !p->counted) {
        tp_pack_counts(p);
    }
    if (n != 1) {
        s->counts[row] = n;
    }
    p->tokens += n;
    p->bytes += TP_ROW_BYTES + (uint64_t)n * 4;
    b->sent += n;
}

/* Whether a row with one token and this many logprob entries still fits. The first row always fits. */
static inline int tp_pack_fits(const tp_packed *p, uint64_t entries) {
    return p->rows == 0 || p->bytes + TP_ROW_BYTES + 4 + entries * 8 + 4 <= p->limit;
}

/* Returns how many of these tokens fit: at least 1. Each has this many logprob entries. */
static inline uint32_t tp_pack_affordable(const tp_packed *p, uint32_t tokens, uint64_t entries) {
    const uint64_t each = entries == 0 ? 4 : 8 + entries * 8;
    const uint64_t left = p->bytes + TP_ROW_BYTES < p->limit ? p->limit - p->bytes - TP_ROW_BYTES : 0;
    const uint64_t n = left / each == 0 ? 1 : left / each;
    return n < tokens ? (uint32_t)n : tokens;
}

#endif
