/* Keeps the clients' accounts. */
#include "table/table_client.h"

#include <stdlib.h>
#include <string.h>

#include "buffer.h"
#include "table/table_events.h"
#include "table/table_queue.h"
#include "table/table_tail.h"

tp_result tp_client_open(tp_table *t, uint32_t client) {
    if (client >= t->client_count) {
        const uint32_t count = client + 1u;
        TP_TRY(tp_buffer_grow(&t->clients, sizeof *t->clients, &t->client_capacity, count));
        memset(t->clients + t->client_count, 0, (count - t->client_count) * sizeof *t->clients);
        t->client_count = count;
    }
    t->clients[client].open = 1;
    return TP_OK;
}

void tp_client_free(tp_client *c) {
    free(c->dirty);
    free(c->kept_events);
    tp_space_free(&c->kept_space);
    memset(c, 0, sizeof *c);
}

tp_result tp_client_reserve(tp_table *t, tp_client *c) {
    return tp_buffer_grow(&c->dirty, sizeof(tp_binding *), &c->dirty_capacity, t->live + UINT64_C(1));
}

void tp_client_urgent(tp_table *t, tp_binding *b) {
    if (!(b->flags & TP_B_URGENT)) {
        b->flags |= TP_B_URGENT;
        t->clients[b->client].urgent++;
    }
}

void tp_client_wake(tp_table *t, tp_binding *b) {
    if (b->flags & (TP_B_DIRTY | TP_B_MUTED)) {
        return;
    }
    tp_queue_remove(t, b);
    tp_client *c = &t->clients[b->client];
    c->tokens += b->total - b->sent;
    if (b->flags & TP_B_LOGPROBS) {
        c->lp_entries += b->tail->entries;
        c->lp_tokens += tp_tail_scored(b->tail);
    }
    if (b->text != NULL) {
        tp_text_charge(c, b->text);
    }
    if (b->extras != NULL) {
        tp_extras_charge(c, b->extras);
    }
    tp_client_mark(c, b);
}

TP_HOT void tp_clients_crowded(tp_table *t, uint64_t step) {
    for (uint32_t i = 0; i < t->client_count; i++) {
        tp_client *c = &t->clients[i];
        if (!c->crowded && tp_client_bytes(c) > t->merge_limit) {
            c->crowded = 1;
            tp_table_event(t, TP_EV_CROWDED, i, 0, 0, step);
        }
    }
}
