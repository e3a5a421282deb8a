/* Applying one row where anything may be the matter with it. Plain rows are done in table_feed.c. */
#include <stdlib.h>
#include <string.h>

#include "table/table.h"

tp_end tp_row_scan(const tp_table *t, tp_binding *b, const int32_t *tokens, uint32_t n) {
    if (b->text != NULL) {
        return tp_text_scan(t, b, tokens, n);
    }
    for (uint32_t i = 0; i < n; i++) {
        const int32_t token = tokens[i];
        const uint32_t count = b->total + i + 1;
        if ((uint32_t)token >= t->vocab_size) {
            return (tp_end){i, TP_FINISH_NONE, TP_CAUSE_TOKEN, token, -1};
        }
        if (tp_token_stops(b, token, count)) {
            return (tp_end){i + 1, TP_FINISH_STOP, TP_CAUSE_NONE, token, -1};
        }
        if (count >= b->max_tokens) {
            return (tp_end){i + 1, TP_FINISH_LENGTH, TP_CAUSE_NONE, -1, -1};
        }
    }
    return (tp_end){n, TP_FINISH_NONE, TP_CAUSE_NONE, -1, -1};
}

int tp_row_judge(tp_table *t, tp_binding *b, const tp_end *end, uint64_t step) {
    if (end->finish != TP_FINISH_NONE) {
        b->stop_string = end->string;
        tp_binding_finish(t, b, end->finish, end->finish == TP_FINISH_STOP ? end->token : -1);
        tp_table_event(t, TP_EV_FINISHED, b->handle, end->finish, b->stop_reason, step);
        return 0;
    }
    if (end->cause != TP_CAUSE_NONE) {
        tp_row_fail(t, b, end->cause, end->token, step);
        return 0;
    }
    return 1;
}

void tp_row_fail(tp_table *t, tp_binding *b, uint8_t cause, int64_t value, uint64_t step) {
    if (b->state == TP_PARKED) {
        b->park_cause = cause;
        b->park_value = value;
        b->park_step = step;
    } else if (cause == TP_CAUSE_GAP) {
        t->counters.gaps++;
        b->state = TP_LINGERING;
        tp_table_event(t, TP_EV_GAP, b->handle, b->total - b->base, value, step);
    } else if (cause == TP_CAUSE_FINISHED) {
        tp_binding_finish(t, b, TP_FINISH_STOP, -1);
        tp_table_event(t, TP_EV_FINISHED, b->handle, TP_FINISH_STOP, -1, step);
    } else {
        t->counters.bad_rows += cause != TP_CAUSE_RECOVERY_STOP;
        tp_binding_finish(t, b, TP_FINISH_ERROR, -1);
        tp_table_event(t, TP_EV_ROW_ERROR, b->handle, cause, value, step);
    }
}

static void park_charge(tp_table *t, tp_binding *b) {
    const uint64_t entries = b->tail == NULL ? 0 : b->tail->entries;
    const uint64_t bytes = (uint64_t)b->total * 4 + entries * 8 + (entries > 0 ? b->total * 8u : 0) +
                           (b->annex == NULL ? 0 : b->annex->len) +
                           (b->error_extras == NULL ? 0 : b->error_extras->size);
    if (t->park_used - b->park_bytes + bytes > t->park_limit) {
        tp_park_lose(t, b);
        return;
    }
    t->park_used += bytes - b->park_bytes;
    b->park_bytes = (uint32_t)bytes;
}

#define MOST_HELD (1u << 17) /* logprob entries, or 8 bytes of annexes, that wait for an interval */

/* Whether a binding that is not dirty is to be sent now; where only the time is missing, says so. */
static int is_due(tp_table *t, tp_binding *b, uint64_t mono_ns) {
    if ((b->tail != NULL && b->tail->entries >= MOST_HELD) ||
        (b->annex != NULL && b->annex->ready / 8 >= MOST_HELD)) {
        return 1;
    }
    if (b->sent > 0 && b->total - b->sent < b->pace) {
        return 0;
    }
    if (b->sent > 0 && mono_ns < b->next_ns) {
        t->release_ns = t->release_ns == 0 || b->next_ns < t->release_ns ? b->next_ns : t->release_ns;
        return 0;
    }
    b->next_ns = b->pace_ns > 0 ? mono_ns + b->pace_ns : 0;
    return 1;
}

/* Tells the client's account of n more tokens of which the last is tail's last. */
static void charge(tp_table *t, tp_binding *b, uint32_t n, const tp_row *row, int tailed) {
    if (b->flags & TP_B_MUTED) {
        b->sent = b->total;
        tp_annexes_forget(b);
        if (b->text != NULL) {
            tp_text_sent(b->text, b->text->ready);
        }
        return;
    }
    tp_client *c = &t->clients[b->client];
    c->mono_ns = row->mono_ns;
    if (!(b->flags & TP_B_DIRTY) && b->flags & TP_B_PACED) {
        if (is_due(t, b, row->mono_ns)) {
            tp_client_wake(t, b);
        }
        return;
    }
    if (b->text != NULL) {
        tp_text_charge(c, b->text);
    }
    if (b->annex != NULL) {
        tp_annex_charge(c, b->annex);
    }
    c->tokens += n;
    if (tailed && row->k >= 0) {
        c->lp_tokens += n;
        c->lp_entries += (uint64_t)(row->k + 1) * n;
    }
    tp_client_mark(c, b);
}

/* Appends up to n tokens of the row; returns 1 where the request goes on. */
static int append(tp_table *t, tp_binding *b, const tp_row *row, uint32_t n) {
    const int tailed = (row->k >= 0 || b->flags & TP_B_LOGPROBS) && !(b->flags & TP_B_MUTED);
    if (tp_binding_grow(b, (uint64_t)b->total + n) != TP_OK) {
        tp_row_fail(t, b, TP_CAUSE_MEMORY, 0, row->step);
        return 0;
    }
    int32_t *tokens = b->tokens + b->total;
    memcpy(tokens, row->token_ids, (size_t)n * 4);
    const tp_end end = tp_row_scan(t, b, tokens, n);
    if (tailed && tp_tail_add(b, row, end.used) != TP_OK) {
        tp_row_fail(t, b, TP_CAUSE_MEMORY, 0, row->step);
        return 0;
    }
    if (row->annex_size > 0 && end.used > 0 && tp_row_annex(t, b, row, end.used) != TP_OK) {
        tp_row_fail(t, b, TP_CAUSE_MEMORY, 0, row->step);
        return 0;
    }
    b->total += end.used;
    if (end.used > 0 && b->state != TP_PARKED) {
        tp_annexes_settle(b);
    }
    t->counters.tokens += end.used;
    if (b->state == TP_PARKED) {
        b->park_first = b->park_first == 0 ? b->total : b->park_first;
        park_charge(t, b);
    } else if (end.used > 0) {
        charge(t, b, end.used, row, tailed);
    }
    if (b->flags & TP_B_LOST) {
        return 0;
    }
    return tp_row_judge(t, b, &end, row->step);
}

/* Forgets what the binding has already from the row's beginning; returns how many tokens are new. */
static uint32_t trim(tp_table *t, const tp_binding *b, tp_row *row) {
    const uint32_t have = b->total - b->base;
    uint32_t skip = have - row->position;
    if (skip > row->count || row->again) {
        skip = row->count;
    }
    if (skip > 0) {
        t->counters.repeated++;
    }
    if (skip > 0 && skip < row->count) {
        row->skipped = skip;
        row->token_ids += (size_t)skip * 4;
        if (row->k >= 0) {
            row->lp_ids += (size_t)skip * ((size_t)row->k + 1) * 4;
            row->lp_values += (size_t)skip * ((size_t)row->k + 1) * 4;
            row->lp_ranks += (size_t)skip * 4;
        }
    }
    return row->count - skip;
}

/* Keeps what came beside no token; returns 1 where the request goes on. */
static int append_nothing(tp_table *t, tp_binding *b, const tp_row *row) {
    if (row->annex_size == 0 || row->again || row->position < b->total - b->base) {
        return 1;
    }
    const tp_result result = tp_row_annex(t, b, row, 0);
    if (result != TP_OK) {
        tp_row_fail(t, b, result == TP_E_MEMORY ? TP_CAUSE_MEMORY : TP_CAUSE_ANNEX, row->annex_size,
                    row->step);
        return 0;
    }
    if (b->state == TP_PARKED) {
        park_charge(t, b);
    }
    return !(b->flags & TP_B_LOST);
}

/* What a row without tokens, of a status from ERROR on, means for its request. */
static uint8_t cause_of(uint8_t status) {
    switch (status) {
    case TP_ROW_ERROR: return TP_CAUSE_WORKER;
    case TP_ROW_REFUSED: return TP_CAUSE_REFUSED;
    case TP_ROW_BAD_TOKEN: return TP_CAUSE_BAD_TOKEN;
    default: return TP_CAUSE_STATUS;
    }
}

/* Keeps a failed row's extras until somebody asks why; without memory the error has no reason. */
static void keep_error_extras(tp_table *t, tp_binding *b, const tp_row *row) {
    if (row->annex_size == 0 || row->annex_size > TP_MAX_ERROR_EXTRAS) {
        return;
    }
    free(b->error_extras);
    b->error_extras = malloc(sizeof *b->error_extras + row->annex_size);
    if (b->error_extras != NULL) {
        b->error_extras->size = row->annex_size;
        memcpy(b->error_extras->data, row->annex, row->annex_size);
    }
    if (b->state == TP_PARKED) {
        park_charge(t, b);
    }
}

/* A row of a binding that takes rows: its tokens, then what its status says of the request. */
static void take(tp_table *t, tp_binding *b, tp_row *row) {
    /* Before all else: what the row says of its request stands after tokens that never came. */
    if (row->position > b->total - b->base) {
        tp_row_fail(t, b, TP_CAUSE_GAP, row->position, row->step);
        return;
    }
    if (row->status >= TP_ROW_ERROR && row->status != TP_ROW_FINISHED) {
        keep_error_extras(t, b, row);
        if (!(b->flags & TP_B_LOST)) {
            tp_row_fail(t, b, cause_of(row->status), row->status, row->step);
        }
        return;
    }
    const uint32_t fresh = trim(t, b, row);
    if (!(fresh > 0 ? append(t, b, row, fresh) : row->count > 0 || append_nothing(t, b, row))) {
        return;
    }
    if (row->status == TP_ROW_RECOVERY_STOP) {
        tp_row_fail(t, b, TP_CAUSE_RECOVERY_STOP, 0, row->step);
    } else if (row->status == TP_ROW_FINISHED) {
        tp_row_fail(t, b, TP_CAUSE_FINISHED, 0, row->step);
    } else if (fresh > 0 && b->flags & TP_B_PREFILL && b->state != TP_PARKED) {
        b->state = TP_LINGERING;
        tp_table_event(t, TP_EV_PREFILLED, b->handle, 0, 0, row->step);
    }
}

void tp_row_apply(tp_table *t, tp_binding *b, tp_row *row) {
    if (b->flags & TP_B_DRAINED) { /* "no more rows" was said */
        t->counters.stale++;
        return;
    }
    const int open = b->state == TP_RUNNING || b->state == TP_PREEMPTING ||
                     (b->state == TP_PARKED && b->park_cause == TP_CAUSE_NONE);
    if (open && !(b->flags & TP_B_LOST)) {
        take(t, b, row);
    } else if (row->count > 0 || row->status != TP_ROW_DRAINED) {
        t->counters.overrun++;
    }
    if (row->status == TP_ROW_DRAINED) {
        b->flags |= TP_B_DRAINED;
        if (b->state != TP_PARKED) {
            tp_table_event(t, TP_EV_DRAINED, b->handle, 0, 0, row->step);
        }
    }
}

tp_binding *tp_row_place(tp_table *t, tp_slot *slot, int64_t handle, uint64_t step) {
    for (tp_binding *b = slot->newest; b != NULL; b = b->older) {
        if (b->handle == handle) {
            return b;
        }
    }
    if (TP_HANDLE_GENERATION(handle) <= slot->floor) {
        t->counters.stale++;
        t->counters.stale_handle = handle;
        return NULL;
    }
    tp_binding *b = t->parked_now < t->parked_limit ? tp_binding_new(t, slot, handle) : NULL;
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
