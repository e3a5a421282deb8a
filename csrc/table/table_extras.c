/* Adds extras to bindings. */
#include "table/table_extras.h"

tp_result tp_binding_extras_reserve(tp_binding *b, const tp_row *row) {
    if (b->flags & TP_B_MUTED) {
        return TP_OK;
    }
    if (b->extras == NULL && (b->extras = tp_extras_new(b->extras_offset)) == NULL) {
        return TP_E_MEMORY;
    }
    return tp_extras_reserve(b->extras, row->extras_size);
}

void tp_binding_extras_add(tp_binding *b, const tp_row *row, uint32_t n) {
    if (!(b->flags & TP_B_MUTED)) {
        const tp_wrap wrap = {b->total, n, row->skipped, row->extras_size};
        tp_extras_add(b->extras, &wrap, row->extras);
        b->flags |= TP_B_EXTRAS;
    }
}

int tp_binding_extras_too_many(const tp_table *t, const tp_binding *b, const tp_row *row) {
    const uint64_t waiting = b->extras == NULL ? 0 : (uint64_t)b->extras->len - b->extras->ready;
    return !(b->flags & TP_B_MUTED) && waiting + row->extras_size > t->merge_limit;
}

static void unflag_empty(tp_binding *b) {
    if (b->extras->len == 0) {
        b->flags &= (uint16_t)~TP_B_EXTRAS;
    }
}

void tp_binding_extras_begin(tp_binding *b, uint64_t end) {
    if (b->extras != NULL) {
        b->extras->offset = b->extras_offset;
        tp_extras_rebase(b->extras, b->base, end, b->total);
        unflag_empty(b);
    }
}

void tp_binding_extras_forget(tp_binding *b) {
    if (b->extras != NULL) {
        tp_extras_forget(b->extras);
        unflag_empty(b);
    }
}
