/* Parks bindings. */
#include "table/table_park.h"

#include "table/extras.h"
#include "table/table.h"
#include "table/table_events.h"
#include "table/table_pool.h"
#include "table/table_tail.h"

tp_binding *tp_park_place(tp_table *t, tp_slot *slot, int64_t handle, uint64_t step) {
    uint32_t others = 0;
    for (tp_binding *b = slot->newest; b != NULL; b = b->older, others++) {
        if (b->handle == handle) {
            return b;
        }
    }
    if (TP_HANDLE_GENERATION(handle) <= slot->floor) {
        t->counters.stale++;
        t->counters.stale_handle = handle;
        return NULL;
    }
    const int fits = others < TP_SLOT_BINDINGS && t->parked_now < t->parked_limit;
    tp_binding *b = fits ? tp_binding_new(t, slot, handle) : NULL;
    if (b == NULL) {
        t->counters.park_lost++;
        t->counters.park_lost_handle = handle;
        return NULL;
    }
    b->state = TP_PARKED;
    b->max_tokens = UINT32_MAX;
    t->parked_now++;
    t->counters.parked++;
    tp_table_event(t, TP_EV_PARKED, handle, 0, 0, step);
    return b;
}

void tp_park_charge(tp_table *t, tp_binding *b) {
    const uint64_t entries = b->tail == NULL ? 0 : b->tail->entries;
    const uint64_t bytes = (uint64_t)b->total * 4 + entries * 8 + (entries > 0 ? b->total * 8u : 0) +
                           (b->extras == NULL ? 0 : b->extras->len) +
                           (b->error_extras == NULL ? 0 : b->error_extras->size);
    if (t->park_used - b->park_bytes + bytes > t->park_limit) {
        tp_park_lose(t, b);
        return;
    }
    t->park_used += bytes - b->park_bytes;
    b->park_bytes = (uint32_t)bytes;
}

void tp_park_lose(tp_table *t, tp_binding *b) {
    t->park_used -= b->park_bytes;
    b->park_bytes = 0;
    tp_binding_free_output(b);
    b->total = 0;
    b->park_cause = TP_CAUSE_NONE;
    if (!(b->flags & TP_B_LOST)) {
        b->flags |= TP_B_LOST;
        t->counters.park_lost++;
        t->counters.park_lost_handle = b->handle;
    }
}

void tp_table_raise_floor(tp_table *t, tp_slot *slot, uint64_t generation) {
    if (generation <= slot->floor) {
        return;
    }
    slot->floor = generation;
    for (tp_binding *b = slot->newest, *older; b != NULL; b = older) {
        older = b->older;
        if (b->state == TP_PARKED && TP_HANDLE_GENERATION(b->handle) <= generation) {
            t->counters.stale++;
            tp_table_drop(t, b);
        }
    }
}
