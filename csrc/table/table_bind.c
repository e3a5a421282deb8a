/* Binds handles. */
#include "table/table_bind.h"

#include <stdlib.h>
#include <string.h>

#include "table/table.h"
#include "table/table_client.h"
#include "table/table_events.h"
#include "table/table_extras.h"
#include "table/table_finish.h"
#include "table/table_park.h"
#include "table/table_pool.h"
#include "table/table_row.h"
#include "table/table_scan.h"
#include "table/table_tail.h"

/* All memory that a bind needs. It is allocated before the table changes. */
typedef struct fresh {
    int32_t *tokens, *stop_ids;
    uint64_t capacity;
    uint32_t stop_count;
    tp_text *text;
    int no_text; /* the foreign decoder failed, so the request cannot have its text */
} fresh;

static void discard(fresh *f) {
    free(f->tokens);
    free(f->stop_ids);
    tp_text_free(f->text);
}

/* Makes the text of a request, and reads all output that the request already has. */
static tp_result make_text(tp_table *t, const tp_bind *bind, tp_text **made) {
    tp_text *text = NULL;
    tp_text_options options = *bind->text;
    options.pool = &t->stops;
    tp_result result = tp_text_new(t->vocab, &options, &text);
    for (uint32_t i = 0; result == TP_OK && i < bind->output_count; i++) {
        int32_t stop; /* the binding that made these tokens has scanned them */
        result = tp_text_step(text, bind->output_ids[i], 0, &stop);
    }
    if (result != TP_OK) {
        tp_text_free(text);
        return result;
    }
    tp_text_settle(text);
    tp_text_sent(text, text->ready);
    *made = text;
    return TP_OK;
}

static tp_result allocate(tp_table *t, const tp_bind *bind, const tp_binding *parked, fresh *f) {
    const uint64_t have = (uint64_t)bind->output_count + (parked == NULL ? 0 : parked->total);
    const uint64_t more = bind->max_tokens > have ? bind->max_tokens - have : 0;
    f->capacity = have + (more < 32 ? more : 32) + 1;
    f->tokens = f->capacity > UINT32_MAX ? NULL : malloc(f->capacity * sizeof *f->tokens);
    const uint32_t eos_count = bind->ignore_eos ? 0 : t->eos_count;
    f->stop_count = bind->stop_count + eos_count;
    f->stop_ids = malloc(((size_t)f->stop_count + 1) * sizeof *f->stop_ids);
    f->text = NULL;
    const tp_result text = bind->text == NULL || t->vocab == NULL ? TP_OK : make_text(t, bind, &f->text);
    f->no_text = text == TP_E_FOREIGN;
    if (f->tokens == NULL || f->stop_ids == NULL || (text != TP_OK && !f->no_text)) {
        discard(f);
        return TP_E_MEMORY;
    }
    if (bind->output_count > 0) {
        memcpy(f->tokens, bind->output_ids, bind->output_count * sizeof *f->tokens);
    }
    if (bind->stop_count > 0) {
        memcpy(f->stop_ids, bind->stop_ids, bind->stop_count * sizeof *f->stop_ids);
    }
    if (eos_count > 0) {
        memcpy(f->stop_ids + bind->stop_count, t->eos, eos_count * sizeof *f->stop_ids);
    }
    if (parked != NULL && parked->total > 0) {
        memcpy(f->tokens + bind->output_count, parked->tokens, parked->total * sizeof *f->tokens);
    }
    return TP_OK;
}

/* Sets the values of a binding from its bind. */
static void set_up(const tp_table *t, tp_binding *b, const tp_bind *bind, const fresh *f) {
    b->key = bind->key;
    b->base = b->sent = bind->output_count;
    b->min_tokens = bind->min_tokens;
    b->max_tokens = bind->max_tokens;
    b->stop_count = f->stop_count;
    b->stop_ids = f->stop_ids;
    free(b->tokens);
    b->tokens = f->tokens;
    b->capacity = (uint32_t)f->capacity;
    b->flags |= bind->prefill ? TP_B_PREFILL : 0;
    b->pace = bind->pace;
    b->cached = bind->cached;
    b->extras_offset = bind->extras_offset;
    b->pace_ns = bind->pace_ms * UINT64_C(1000000);
    b->flags |= bind->pace > 1 || bind->pace_ms > 0 ? TP_B_PACED : 0;
    b->text = f->text;
    b->flags |= f->text != NULL ? TP_B_TEXT : 0;
    b->stop_mask = 0;
    for (uint32_t i = 0; i < b->stop_count; i++) {
        b->stop_mask |= UINT64_C(1) << ((uint32_t)b->stop_ids[i] & 63);
    }
    if (bind->client < t->client_count && t->clients[bind->client].open) {
        b->client = bind->client;
    } else {
        b->flags |= TP_B_MUTED;
    }
}

/* Puts the unsent output on the client's account, or drops it if there is no client. */
static void charge(tp_table *t, tp_binding *b) {
    if (b->flags & TP_B_MUTED) {
        b->sent = b->total;
        tp_tail_free(b);
        tp_binding_extras_forget(b);
        if (b->text != NULL) {
            tp_text_sent(b->text, b->text->ready);
        }
    } else if (b->total > b->sent) {
        tp_client_wake(t, b);
    }
}

/* Drops the rows that came before the bind. */
static void drop_parked(tp_binding *b) {
    b->total = b->base;
    tp_tail_free(b);
    tp_binding_extras_forget(b);
}

/* Applies the tokens that came before the bind, as if they came now. `parked` is their number. */
static void replay(tp_table *t, tp_binding *b, uint32_t parked) {
    b->total = b->base;
    if (b->base >= b->max_tokens) {
        drop_parked(b);
        tp_binding_finish(t, b, TP_FINISH_LENGTH, -1);
        tp_table_event(t, TP_EV_FINISHED, b->handle, TP_FINISH_LENGTH, -1, b->park_step);
        return;
    }
    const int prefilled = b->flags & TP_B_PREFILL && parked > 0;
    const uint32_t n = prefilled ? b->park_first : parked;
    const tp_end end = tp_binding_scan(t, b, b->tokens + b->total, n);
    b->total += end.used;
    if (b->tail != NULL) {
        tp_tail_cut(b->tail, end.used);
    }
    const int over = prefilled || end.finish != TP_FINISH_NONE || end.cause != TP_CAUSE_NONE;
    tp_binding_extras_begin(b, over ? b->total : UINT64_MAX);
    charge(t, b);
    if (!tp_row_judge(t, b, &end, b->park_step)) {
        return;
    }
    if (prefilled && (parked > n || b->park_cause == TP_CAUSE_NONE)) {
        b->state = TP_LINGERING;
        tp_table_event(t, TP_EV_PREFILLED, b->handle, 0, 0, b->park_step);
    } else if (b->park_cause != TP_CAUSE_NONE) {
        tp_row_fail(t, b, b->park_cause, b->park_value, b->park_step);
    }
}

tp_result tp_table_bind(tp_table *t, const tp_bind *bind) {
    tp_slot *slot = tp_table_slot(t, bind->handle);
    tp_binding *b = tp_table_find(t, bind->handle);
    fresh f;
    t->event_count = 0;
    if (tp_table_reserve_events(t, 3) != TP_OK || allocate(t, bind, b, &f) != TP_OK) {
        return TP_E_MEMORY;
    }
    const int fits = bind->client < t->client_count && t->clients[bind->client].open;
    if ((fits && tp_client_reserve(t, &t->clients[bind->client]) != TP_OK) ||
        (b == NULL && (b = tp_binding_new(t, slot, bind->handle)) == NULL)) {
        discard(&f);
        return TP_E_MEMORY;
    }
    const uint32_t parked = b->total;
    if (b->state == TP_PARKED) {
        t->parked_now--;
        t->park_used -= b->park_bytes;
        b->park_bytes = 0;
    }
    b->state = TP_RUNNING;
    tp_table_raise_floor(t, slot, TP_HANDLE_GENERATION(bind->handle));
    set_up(t, b, bind, &f);
    if (b->flags & TP_B_LOST) {
        b->total = b->base;
        b->state = TP_LINGERING;
        tp_table_event(t, TP_EV_PARK_LOST, b->handle, 0, 0, 0);
    } else if (f.no_text) {
        drop_parked(b);
        tp_row_fail(t, b, TP_CAUSE_TEXT, TP_NO_TOKEN, b->park_step);
    } else {
        replay(t, b, parked);
    }
    if (b->flags & TP_B_DRAINED) {
        tp_table_event(t, TP_EV_DRAINED, b->handle, 0, 0, 0);
    }
    return TP_OK;
}
