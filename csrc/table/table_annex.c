/* The annexes of bindings: with which tokens they came, and when they go. They go with the next token
 * of their request, or its end: so what a client was sent after n tokens follows from what came up to
 * the n-th, and what no token of a binding follows before it is handed back is never sent. */
#include "table/table.h"

tp_result tp_row_annex(tp_table *t, tp_binding *b, const tp_row *row, uint32_t n) {
    if (b->flags & TP_B_MUTED) {
        return TP_OK;
    }
    if (b->annex == NULL && (b->annex = tp_annex_new(b->annex_offset)) == NULL) {
        return TP_E_MEMORY;
    }
    if (n == 0 && (uint64_t)b->annex->len - b->annex->ready + row->annex_size > t->merge_limit) {
        return TP_E_LIMIT;
    }
    const tp_wrap wrap = {b->total, n, row->skipped, row->annex_size};
    const tp_result result = tp_annex_add(b->annex, &wrap, row->annex);
    if (result == TP_OK) {
        b->flags |= TP_B_ANNEX;
    }
    return result;
}

static void unflag(tp_binding *b) {
    if (b->annex->len == 0) {
        b->flags &= (uint16_t)~TP_B_ANNEX;
    }
}

void tp_annexes_begin(tp_binding *b, uint64_t end) {
    if (b->annex != NULL) {
        b->annex->offset = b->annex_offset;
        tp_annex_rebase(b->annex, b->base, end, b->total);
        unflag(b);
    }
}

void tp_annexes_forget(tp_binding *b) {
    if (b->annex != NULL) {
        tp_annex_forget(b->annex);
        unflag(b);
    }
}
