/* Clients: what each has unsent, and what becomes of it when it goes or cannot keep up. */
#include <stdlib.h>
#include <string.h>

#include "table/table.h"

tp_result tp_client_open(tp_table *t, uint32_t client) {
    if (client >= t->client_count) {
        tp_client *more = realloc(t->clients, (client + 1u) * sizeof *more);
        if (more == NULL) {
            return TP_E_MEMORY;
        }
        memset(more + t->client_count, 0, (client + 1u - t->client_count) * sizeof *more);
        t->clients = more;
        t->client_count = client + 1u;
    }
    t->clients[client].open = 1;
    return TP_OK;
}

tp_result tp_client_reserve(tp_table *t, tp_client *c) {
    if (c->dirty_capacity > t->live) {
        return TP_OK;
    }
    const uint64_t capacity = (uint64_t)t->live * 2 + 16;
    tp_binding **dirty = realloc(c->dirty, capacity * sizeof *dirty);
    if (dirty == NULL) {
        return TP_E_MEMORY;
    }
    c->dirty = dirty;
    c->dirty_capacity = (uint32_t)capacity;
    return TP_OK;
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
    tp_client *c = &t->clients[b->client];
    c->tokens += b->total - b->sent;
    if (b->flags & TP_B_LOGPROBS) {
        c->lp_entries += b->tail->entries;
        c->lp_tokens += tp_tail_scored(b->tail);
    }
    if (b->text != NULL) {
        tp_text_charge(c, b->text);
    }
    if (b->annex != NULL) {
        tp_annex_charge(c, b->annex);
    }
    tp_client_mark(c, b);
}

static int waits(const tp_binding *b) {
    return b->flags & TP_B_PACED && !(b->flags & (TP_B_DIRTY | TP_B_MUTED)) && b->next_ns > 0 &&
           (b->state == TP_RUNNING || b->state == TP_PREEMPTING) && b->total - b->sent >= b->pace;
}

void tp_table_release(tp_table *t, uint64_t now_ns) {
    t->release_ns = 0;
    for (uint32_t r = 0; r < t->rank_count; r++) {
        for (uint32_t s = 0; s < t->slots; s++) {
            for (tp_binding *b = t->ranks[r].slots[s].newest; b != NULL; b = b->older) {
                if (!waits(b)) {
                    continue;
                }
                if (b->next_ns <= now_ns) {
                    b->next_ns = now_ns + b->pace_ns;
                    tp_client_wake(t, b);
                } else if (t->release_ns == 0 || b->next_ns < t->release_ns) {
                    t->release_ns = b->next_ns;
                }
            }
        }
    }
}

/* Calls what for every binding that belongs to the client, those without a slot included. */
static void each(tp_table *t, uint32_t client, void (*what)(tp_table *, tp_binding *, void *), void *with) {
    for (uint32_t r = 0; r < t->rank_count; r++) {
        for (uint32_t s = 0; s < t->slots; s++) {
            for (tp_binding *b = t->ranks[r].slots[s].newest; b != NULL; b = b->older) {
                if (b->client == client) {
                    what(t, b, with);
                }
            }
        }
    }
    tp_client *c = &t->clients[client];
    for (uint32_t i = 0; i < c->dirty_count; i++) {
        if (c->dirty[i]->state == TP_GONE) {
            what(t, c->dirty[i], with);
        }
    }
}

static void mute(tp_table *t, tp_binding *b, void *with) {
    (void)with;
    if (b->flags & TP_B_HOLD) {
        tp_table_event(t, TP_EV_SENT, b->handle, 0, 0, 0);
    }
    b->flags &= (uint16_t)~(TP_B_HOLD | TP_B_URGENT | TP_B_DIRTY);
    b->flags |= TP_B_MUTED;
    b->sent = b->total;
    tp_tail_free(b);
    tp_annexes_forget(b);
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
    if (tp_table_reserve_events(t, c->urgent) != TP_OK) {
        return TP_E_MEMORY;
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
    free(c->dirty);
    memset(c, 0, sizeof *c);
    return TP_OK;
}

typedef struct words {
    const tp_error_text *error;
    int failed;
} words;

/* Ends what still runs or is not sent yet; what was sent stays as it is. */
static void shed(tp_table *t, tp_binding *b, void *with) {
    words *error = with;
    const int live = b->state == TP_RUNNING || b->state == TP_PREEMPTING;
    if (!live && !(b->flags & TP_B_DIRTY)) {
        return;
    }
    if (b->total > b->sent) {
        tp_client_wake(t, b);
    }
    if (tp_binding_set_error(t, b, error->error) != TP_OK) {
        error->failed = 1;
        return;
    }
    tp_client *c = &t->clients[b->client];
    const uint8_t was = b->state;
    const int held = (b->flags & TP_B_HOLD) != 0;
    c->tokens -= b->total - b->sent;
    if (b->flags & TP_B_LOGPROBS) {
        c->lp_entries -= b->tail->entries;
        c->lp_tokens -= tp_tail_scored(b->tail);
    }
    b->total = b->sent;
    tp_tail_free(b);
    if (b->annex != NULL) {
        c->annex_bytes -= b->annex->charged;
        tp_annexes_forget(b);
    }
    if (b->text != NULL) {
        c->text_bytes -= b->text->charged;
        tp_text_forget(b->text);
    }
    b->flags &= (uint16_t)~TP_B_HOLD;
    if (!(b->flags & TP_B_DIRTY)) {
        c->error_bytes += b->error_size;
    }
    tp_binding_finish(t, b, TP_FINISH_ERROR, -1);
    b->state = live ? TP_LINGERING : was;
    if (live || held) {
        tp_table_event(t, TP_EV_SHED, b->handle, was, held, b->total);
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
    words error = {text, 0};
    each(t, client, shed, &error);
    c->crowded = 0;
    return error.failed ? TP_E_MEMORY : TP_OK;
}
