/* Ends the requests of a client. */
#include "table/table_shed.h"

#include <stdlib.h>
#include <string.h>

#include "table/table_client.h"
#include "table/table_events.h"
#include "table/table_extras.h"
#include "table/table_finish.h"
#include "table/table_pool.h"
#include "table/table_tail.h"

/* Calls a function for every binding of a client, also for bindings that have left their slot. */
static void each(tp_table *t, uint32_t client, void (*call)(tp_table *, tp_binding *, void *), void *with) {
    for (uint32_t r = 0; r < t->rank_count; r++) {
        for (uint32_t s = 0; s < t->slots; s++) {
            for (tp_binding *b = t->ranks[r].slots[s].newest; b != NULL; b = b->older) {
                if (b->client == client) {
                    call(t, b, with);
                }
            }
        }
    }
    tp_client *c = &t->clients[client];
    for (uint32_t i = 0; i < c->dirty_count; i++) {
        if (c->dirty[i]->state == TP_GONE) {
            call(t, c->dirty[i], with);
        }
    }
}

/* Nobody reads the binding any more. */
static void mute(tp_table *t, tp_binding *b, void *with) {
    (void)with;
    if (b->flags & TP_B_HOLD) {
        tp_table_event(t, TP_EV_SENT, b->handle, 0, 0, 0);
    }
    b->flags &= (uint16_t)~(TP_B_HOLD | TP_B_URGENT | TP_B_DIRTY);
    b->flags |= TP_B_MUTED;
    b->sent = b->total;
    tp_tail_free(b);
    tp_binding_extras_forget(b);
    if (b->text != NULL) {
        b->text->charged = 0;
        tp_text_sent(b->text, b->text->ready);
    }
}

tp_result tp_client_close(tp_table *t, uint32_t client) {
    t->event_count = 0;
    if (client >= t->client_count || !t->clients[client].open) {
        return TP_OK;
    }
    tp_client *c = &t->clients[client];
    const uint32_t kept = c->kept.rows > 0 ? c->kept_event_count : 0;
    TP_TRY(tp_table_reserve_events(t, c->urgent + (uint64_t)kept));
    for (uint32_t i = 0; i < kept; i++) {
        t->events[t->event_count++] = c->kept_events[i];
    }
    each(t, client, mute, NULL);
    for (uint32_t i = 0; i < c->dirty_count; i++) {
        c->dirty[i]->client = TP_NO_CLIENT;
        if (c->dirty[i]->state == TP_GONE) {
            tp_binding_recycle(t, c->dirty[i]);
        }
    }
    for (uint32_t r = 0; r < t->rank_count; r++) {
        for (uint32_t s = 0; s < t->slots; s++) {
            for (tp_binding *b = t->ranks[r].slots[s].newest; b != NULL; b = b->older) {
                b->client = b->client == client ? TP_NO_CLIENT : b->client;
            }
        }
    }
    tp_client_free(c);
    return TP_OK;
}

/* The error for a client's requests, and whether a request did not get it. */
typedef struct tp_shed_error {
    const tp_error_text *text;
    int failed;
} tp_shed_error;

/* Drops a binding's unsent output, also from its client's account. */
static void drop_unsent(tp_client *c, tp_binding *b) {
    c->tokens -= b->total - b->sent;
    if (b->flags & TP_B_LOGPROBS) {
        c->lp_entries -= b->tail->entries;
        c->lp_tokens -= tp_tail_scored(b->tail);
    }
    b->total = b->sent;
    tp_tail_free(b);
    if (b->extras != NULL) {
        c->extras_bytes -= b->extras->charged;
        tp_binding_extras_forget(b);
    }
    if (b->text != NULL) {
        c->text_bytes -= b->text->charged;
        tp_text_forget(b->text);
    }
}

/* Ends a request that runs or has unsent output. */
static void shed(tp_table *t, tp_binding *b, void *with) {
    tp_shed_error *error = with;
    const int live = tp_binding_is_open(b);
    if (!live && !(b->flags & TP_B_DIRTY)) {
        return;
    }
    if (b->total > b->sent) {
        tp_client_wake(t, b);
    }
    if (tp_binding_set_error(t, b, error->text) != TP_OK) {
        error->failed = 1;
        return;
    }
    tp_client *c = &t->clients[b->client];
    const uint8_t before = b->state;
    const int held = (b->flags & TP_B_HOLD) != 0;
    drop_unsent(c, b);
    b->flags &= (uint16_t)~TP_B_HOLD;
    if (!(b->flags & TP_B_DIRTY)) {
        c->error_bytes += b->error_size;
    }
    tp_binding_finish(t, b, TP_FINISH_ERROR, TP_NO_STOP);
    b->state = live ? TP_LINGERING : before;
    if (live || held) {
        tp_table_event(t, TP_EV_SHED, b->handle, before, held, b->total);
    }
}

tp_result tp_client_shed(tp_table *t, uint32_t client, const tp_error_text *text) {
    t->event_count = 0;
    if (client >= t->client_count || !t->clients[client].open) {
        return TP_OK;
    }
    if (tp_table_reserve_events(t, t->live) != TP_OK) {
        return TP_E_MEMORY;
    }
    tp_client *c = &t->clients[client];
    tp_shed_error error = {text, 0};
    each(t, client, shed, &error);
    c->crowded = 0;
    return error.failed ? TP_E_MEMORY : TP_OK;
}
