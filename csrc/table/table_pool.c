/* Allocates bindings. */
#include "table/table_pool.h"

#include <stdlib.h>
#include <string.h>

#include "buffer.h"
#include "table/extras.h"
#include "table/table_queue.h"
#include "table/table_tail.h"
#include "text/text.h"

#define SLAB 256u /* bindings of one allocation */

void tp_binding_free_output(tp_binding *b) {
    free(b->tokens);
    b->tokens = NULL;
    b->capacity = 0;
    tp_tail_free(b);
    tp_text_free(b->text);
    tp_extras_free(b->extras);
    b->text = NULL;
    b->extras = NULL;
    free(b->error_extras);
    b->error_extras = NULL;
    b->flags &= (uint16_t)~(TP_B_TEXT | TP_B_EXTRAS);
}

static void free_owned(tp_binding *b) {
    tp_binding_free_output(b);
    free(b->stop_ids);
    free(b->error);
}

void tp_pool_clear(tp_table *t) {
    for (uint32_t s = 0; s < t->slab_count; s++) {
        for (uint32_t i = 0; i < SLAB; i++) {
            free_owned((tp_binding *)t->slabs[s] + i);
        }
        free(t->slabs[s]);
    }
    free(t->slabs);
    t->slabs = NULL;
    t->slab_count = t->slab_capacity = 0;
    t->pool = NULL;
}

static tp_result more_bindings(tp_table *t) {
    TP_TRY(tp_buffer_grow(&t->slabs, sizeof *t->slabs, &t->slab_capacity, t->slab_count + UINT64_C(1)));
    tp_binding *slab = aligned_alloc(64, SLAB * sizeof *slab);
    if (slab == NULL) {
        return TP_E_MEMORY;
    }
    memset(slab, 0, SLAB * sizeof *slab);
    t->slabs[t->slab_count++] = slab;
    for (uint32_t i = SLAB; i-- > 0;) {
        slab[i].older = t->pool;
        t->pool = &slab[i];
    }
    return TP_OK;
}

tp_binding *tp_binding_new(tp_table *t, tp_slot *slot, int64_t handle) {
    if (t->pool == NULL && more_bindings(t) != TP_OK) {
        return NULL;
    }
    tp_binding *b = t->pool;
    t->pool = b->older;
    memset(b, 0, sizeof *b);
    b->handle = handle;
    b->client = TP_NO_CLIENT;
    b->stop_reason = b->stop_string = TP_NO_STOP;
    t->live++;
    tp_binding **at = &slot->newest; /* the bindings of a slot are in order, newest first */
    while (*at != NULL && (*at)->handle > handle) {
        at = &(*at)->older;
    }
    b->older = *at;
    *at = b;
    return b;
}

tp_result tp_binding_grow(tp_binding *b, uint64_t tokens) {
    return tp_buffer_grow(&b->tokens, sizeof *b->tokens, &b->capacity, tokens);
}

void tp_binding_recycle(tp_table *t, tp_binding *b) {
    if (b->queue_at != 0) {
        tp_queue_remove(t, b);
    }
    free_owned(b);
    memset(b, 0, sizeof *b);
    b->older = t->pool;
    t->pool = b;
    t->live--;
}
