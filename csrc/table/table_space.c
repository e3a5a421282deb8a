/* The arrays that a flush packs into; kept from one to the next. */
#include <stdlib.h>
#include <string.h>

#include "table/table_space.h"

void tp_space_free(tp_space *s) {
    void *arrays[] = {s->keys,        s->counts,     s->offsets,  s->token_ids, s->stop_reason,
                      s->lp_k,        s->lp_ids,     s->lp_ranks, s->finish,    s->error,
                      s->lp_values,   s->error_len,  s->text,     s->text_len,  s->text_offset,
                      s->stop_string, s->cached,     s->annex,    s->annex_len, s->annex_offset,
                      s->error_code,  s->error_field};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        free(arrays[i]);
    }
    memset(s, 0, sizeof *s);
}

static int grow(void *array, uint64_t bytes) {
    void **at = array;
    void *grown = realloc(*at, bytes);
    if (grown == NULL) {
        return 0;
    }
    *at = grown;
    return 1;
}

tp_result tp_space_reserve(tp_space *s, uint64_t rows, uint64_t tokens, uint64_t entries, uint64_t error,
                           uint64_t text, uint64_t annex) {
    if (rows > s->row_capacity) {
        rows += rows / 2;
        s->row_capacity = 0; /* where one fails, all are grown anew the next time */
        if (!grow(&s->keys, rows * 8) || !grow(&s->counts, rows * 4) || !grow(&s->offsets, rows * 4) ||
            !grow(&s->stop_reason, rows * 4) || !grow(&s->lp_k, rows * 4) || !grow(&s->finish, rows) ||
            !grow(&s->error_len, rows * 2) || !grow(&s->text_len, rows * 4) ||
            !grow(&s->text_offset, rows * 4) || !grow(&s->stop_string, rows * 4) ||
            !grow(&s->cached, rows * 4) || !grow(&s->annex_len, rows * 4) ||
            !grow(&s->annex_offset, rows * 8) || !grow(&s->error_code, rows) ||
            !grow(&s->error_field, rows)) {
            return TP_E_MEMORY;
        }
        s->row_capacity = rows;
    }
    if (tokens > s->token_capacity) {
        tokens += tokens / 2;
        s->token_capacity = 0;
        if (!grow(&s->token_ids, tokens * 4) || !grow(&s->lp_ranks, tokens * 4)) {
            return TP_E_MEMORY;
        }
        s->token_capacity = tokens;
    }
    if (entries > s->entry_capacity) {
        s->entry_capacity = 0;
        if (!grow(&s->lp_ids, entries * 4) || !grow(&s->lp_values, entries * 4)) {
            return TP_E_MEMORY;
        }
        s->entry_capacity = entries;
    }
    if (text > s->text_capacity) {
        text += text / 2;
        s->text_capacity = 0;
        if (!grow(&s->text, text)) {
            return TP_E_MEMORY;
        }
        s->text_capacity = text;
    }
    if (annex > s->annex_capacity) {
        annex += annex / 2;
        s->annex_capacity = 0;
        if (!grow(&s->annex, annex)) {
            return TP_E_MEMORY;
        }
        s->annex_capacity = annex;
    }
    if (error > s->error_capacity) {
        s->error_capacity = 0;
        if (!grow(&s->error, error)) {
            return TP_E_MEMORY;
        }
        s->error_capacity = error;
    }
    return TP_OK;
}
