/* Decides when paced output is sent. */
#include "table/table_pace.h"

#include "table/extras.h"
#include "table/table_client.h"
#include "table/table_queue.h"
#include "table/table_tail.h"

#define MOST_HELD (1u << 17) /* logprob entries, or 8 bytes of extras each, that may wait for a pace */

int tp_pace_is_due(tp_table *t, tp_binding *b, uint64_t mono_ns) {
    if ((b->tail != NULL && b->tail->entries >= MOST_HELD) ||
        (b->extras != NULL && b->extras->ready / 8 >= MOST_HELD)) {
        return 1;
    }
    if (b->sent > 0 && b->total - b->sent < b->pace) {
        return 0;
    }
    if (mono_ns > t->now_ns) { /* the clock of another process must not decide when output is sent */
        mono_ns = t->now_ns;
    }
    if (b->sent > 0 && mono_ns < b->next_ns) {
        return tp_queue_put(t, b, b->next_ns) != TP_OK; /* without memory it is sent too early */
    }
    b->next_ns = b->pace_ns > 0 ? mono_ns + b->pace_ns : 0;
    return 1;
}

/* Whether a binding is not sent only because its time has not come. */
static int waits_for_time(const tp_binding *b) {
    return b->flags & TP_B_PACED && !(b->flags & (TP_B_DIRTY | TP_B_MUTED)) && b->next_ns > 0 &&
           tp_binding_is_open(b) && b->total - b->sent >= b->pace;
}

void tp_table_release(tp_table *t, uint64_t now_ns) {
    for (tp_binding *b; (b = tp_queue_take(t, now_ns)) != NULL;) {
        if (waits_for_time(b)) {
            b->next_ns = now_ns + b->pace_ns;
            tp_client_wake(t, b);
        }
    }
}
