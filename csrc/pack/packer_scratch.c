/* The packer's memory, and its words for what is wrong. */
#include "pack/packer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

int tp_fault_set(tp_fault *fault, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(fault->text, sizeof fault->text, format, args);
    va_end(args);
    return -1;
}

static int grow(void *pointer, size_t bytes) {
    void *grown = realloc(*(void **)pointer, bytes);
    if (grown == NULL) {
        return -1;
    }
    *(void **)pointer = grown;
    return 0;
}

static size_t roomier(size_t have, size_t need) { return need > 2 * have ? need : 2 * have; }

int tp_scratch_reserve(tp_scratch *s, size_t rows, size_t tokens, size_t entries) {
    if (rows > s->rows) {
        const size_t n = roomier(s->rows, rows);
        if (grow(&s->handles, n * sizeof *s->handles) < 0 || grow(&s->again, n * sizeof *s->again) < 0 ||
            grow(&s->counts, n * sizeof *s->counts) < 0 || grow(&s->status, n * sizeof *s->status) < 0 ||
            grow(&s->position, n * sizeof *s->position) < 0 || grow(&s->lp_k, n * sizeof *s->lp_k) < 0 ||
            grow(&s->annex_len, n * sizeof *s->annex_len) < 0 ||
            grow(&s->replaced, n * sizeof *s->replaced) < 0) {
            return -1;
        }
        s->rows = n;
    }
    if (tokens > s->tokens) {
        const size_t n = roomier(s->tokens, tokens);
        if (grow(&s->token_ids, n * sizeof *s->token_ids) < 0 ||
            grow(&s->lp_ranks, n * sizeof *s->lp_ranks) < 0) {
            return -1;
        }
        s->tokens = n;
    }
    if (entries > s->entries) {
        const size_t n = roomier(s->entries, entries);
        if (grow(&s->lp_ids, n * sizeof *s->lp_ids) < 0 ||
            grow(&s->lp_values, n * sizeof *s->lp_values) < 0) {
            return -1;
        }
        s->entries = n;
    }
    return 0;
}

void tp_scratch_free(tp_scratch *s) {
    free(s->handles);
    free(s->again);
    free(s->counts);
    free(s->status);
    free(s->position);
    free(s->lp_k);
    free(s->annex_len);
    free(s->replaced);
    free(s->token_ids);
    free(s->lp_ranks);
    free(s->lp_ids);
    free(s->lp_values);
}
