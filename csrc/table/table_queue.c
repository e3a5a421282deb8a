/* The heap. Each binding knows its place, so it can leave. */
#include "table/table_queue.h"

#include "buffer.h"

static void place(tp_table *t, uint32_t at, tp_queued entry) {
    t->queue[at] = entry;
    entry.binding->queue_at = at + 1;
}

/* Moves an entry towards the first one until its parent is not later. */
static void rise(tp_table *t, uint32_t at) {
    const tp_queued entry = t->queue[at];
    while (at > 0 && t->queue[(at - 1) / 2].ns > entry.ns) {
        place(t, at, t->queue[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    place(t, at, entry);
}

/* Moves an entry away from the first one until no child is earlier. */
static void sink(tp_table *t, uint32_t at) {
    const tp_queued entry = t->queue[at];
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child + 1 < t->queued && t->queue[child + 1].ns < t->queue[child].ns) {
            child++;
        }
        if (child >= t->queued || t->queue[child].ns >= entry.ns) {
            break;
        }
        place(t, at, t->queue[child]);
        at = child;
    }
    place(t, at, entry);
}

tp_result tp_queue_put(tp_table *t, tp_binding *b, uint64_t ns) {
    if (b->queue_at == 0) {
        TP_TRY(tp_buffer_grow(&t->queue, sizeof *t->queue, &t->queue_capacity, t->queued + UINT64_C(1)));
        place(t, t->queued++, (tp_queued){ns, b});
    }
    const uint32_t at = b->queue_at - 1;
    t->queue[at].ns = ns;
    rise(t, at);
    sink(t, b->queue_at - 1);
    return TP_OK;
}

void tp_queue_remove(tp_table *t, tp_binding *b) {
    if (b->queue_at == 0) {
        return;
    }
    const uint32_t at = b->queue_at - 1;
    const tp_queued last = t->queue[--t->queued];
    b->queue_at = 0;
    if (at < t->queued) {
        place(t, at, last);
        rise(t, at);
        sink(t, last.binding->queue_at - 1);
    }
}

tp_binding *tp_queue_take(tp_table *t, uint64_t ns) {
    if (t->queued == 0 || t->queue[0].ns > ns) {
        return NULL;
    }
    tp_binding *b = t->queue[0].binding;
    tp_queue_remove(t, b);
    return b;
}
