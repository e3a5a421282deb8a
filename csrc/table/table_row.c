/* Applies rows one by one. */
#include "table/table_row.h"

#include <stdlib.h>
#include <string.h>

#include "table/table_client.h"
#include "table/table_events.h"
#include "table/table_extras.h"
#include "table/table_finish.h"
#include "table/table_pace.h"
#include "table/table_park.h"
#include "table/table_pool.h"
#include "table/table_tail.h"

TP_HOT int tp_row_judge(tp_table *t, tp_binding *b, const tp_end *end, uint64_t step) {
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

/* Puts n more tokens on the client's account. tailed: the binding's tail has their logprobs. */
static void charge(tp_table *t, tp_binding *b, uint32_t n, const tp_row *row, int tailed) {
    if (b->flags & TP_B_MUTED) {
        b->sent = b->total;
        tp_binding_extras_forget(b);
        if (b->text != NULL) {
            tp_text_sent(b->text, b->text->ready);
        }
        return;
    }
    tp_client *c = &t->clients[b->client];
    c->mono_ns = row->mono_ns;
    if (!(b->flags & TP_B_DIRTY) && b->flags & TP_B_PACED) {
        if (tp_pace_is_due(t, b, row->mono_ns)) {
            tp_client_wake(t, b);
        }
        return;
    }
    if (b->text != NULL) {
        tp_text_charge(c, b->text);
    }
    if (b->extras != NULL) {
        tp_extras_charge(c, b->extras);
    }
    c->tokens += n;
    if (tailed && row->k >= 0) {
        c->lp_tokens += n;
        c->lp_entries += (uint64_t)(row->k + 1) * n;
    }
    tp_client_mark(c, b);
}

/* Makes room for n tokens of the row and their data, so that appending them cannot fail. */
static tp_result reserve(tp_binding *b, const tp_row *row, uint32_t n, int tailed) {
    TP_TRY(tp_binding_grow(b, (uint64_t)b->total + n));
    if (tailed) {
        TP_TRY(tp_tail_reserve(b, row, n));
    }
    return row->extras_size > 0 ? tp_binding_extras_reserve(b, row) : TP_OK;
}

/* Appends up to n tokens of the row. Returns whether the request goes on. */
static int append(tp_table *t, tp_binding *b, const tp_row *row, uint32_t n) {
    const int tailed = (row->k >= 0 || b->flags & TP_B_LOGPROBS) && !(b->flags & TP_B_MUTED);
    if (reserve(b, row, n, tailed) != TP_OK) {
        tp_row_fail(t, b, TP_CAUSE_MEMORY, 0, row->step);
        return 0;
    }
    int32_t *tokens = b->tokens + b->total;
    memcpy(tokens, row->token_ids, (size_t)n * 4);
    const tp_end end = tp_binding_scan(t, b, tokens, n);
    if (tailed) {
        tp_tail_add(b, row, end.used);
    }
    if (row->extras_size > 0 && end.used > 0) {
        tp_binding_extras_add(b, row, end.used);
    }
    b->total += end.used;
    if (end.used > 0 && b->state != TP_PARKED) {
        tp_binding_extras_settle(b);
    }
    t->counters.tokens += end.used;
    if (b->state == TP_PARKED) {
        b->park_first = b->park_first == 0 ? b->total : b->park_first;
        tp_park_charge(t, b);
    } else if (end.used > 0) {
        charge(t, b, end.used, row, tailed);
    }
    return b->flags & TP_B_LOST ? 0 : tp_row_judge(t, b, &end, row->step);
}

/* Cuts off the tokens that the binding already has. Returns how many are new. */
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

/* Keeps the extras of a row without tokens. Returns whether the request goes on. */
static int append_nothing(tp_table *t, tp_binding *b, const tp_row *row) {
    if (row->extras_size == 0 || row->again || row->position < b->total - b->base) {
        return 1;
    }
    const int too_many = tp_binding_extras_too_many(t, b, row);
    if (too_many || tp_binding_extras_reserve(b, row) != TP_OK) {
        tp_row_fail(t, b, too_many ? TP_CAUSE_EXTRAS : TP_CAUSE_MEMORY, row->extras_size, row->step);
        return 0;
    }
    tp_binding_extras_add(b, row, 0);
    if (b->state == TP_PARKED) {
        tp_park_charge(t, b);
    }
    return !(b->flags & TP_B_LOST);
}

/* Returns the cause for a status that is ERROR or above. */
static uint8_t cause_of(uint8_t status) {
    switch (status) {
    case TP_ROW_ERROR: return TP_CAUSE_WORKER;
    case TP_ROW_REFUSED: return TP_CAUSE_REFUSED;
    case TP_ROW_BAD_TOKEN: return TP_CAUSE_BAD_TOKEN;
    default: return TP_CAUSE_STATUS;
    }
}

/* Keeps the extras of a row that fails its request, so that the caller can read them. If there is no memory,
 * the error has no reason. */
static void keep_error_extras(tp_table *t, tp_binding *b, const tp_row *row) {
    if (row->extras_size == 0 || row->extras_size > TP_MAX_ERROR_EXTRAS) {
        return;
    }
    free(b->error_extras);
    b->error_extras = malloc(sizeof *b->error_extras + row->extras_size);
    if (b->error_extras != NULL) {
        b->error_extras->size = row->extras_size;
        memcpy(b->error_extras->data, row->extras, row->extras_size);
    }
    if (b->state == TP_PARKED) {
        tp_park_charge(t, b);
    }
}

/* Applies a row of a binding that takes rows: its tokens first, then its status. */
static void take(tp_table *t, tp_binding *b, tp_row *row) {
    /* A gap is checked first, because the row's status comes after tokens that did not arrive. */
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

TP_HOT void tp_row_apply(tp_table *t, tp_binding *b, tp_row *row) {
    if (b->flags & TP_B_DRAINED) { /* its worker said that no row follows */
        t->counters.stale++;
        return;
    }
    const int open = tp_binding_is_open(b) || (b->state == TP_PARKED && b->park_cause == TP_CAUSE_NONE);
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
