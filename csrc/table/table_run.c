/* Feeds runs: several frames that continue one another, all at once. tp_table_feed, called for each frame,
 * has the same result. */
#include "table/table_run.h"

#include "table/table.h"
#include "table/table_client.h"
#include "table/table_events.h"
#include "table/table_pace.h"
#include "table/table_pool.h"
#include "table/table_scan.h"
#include "wire/step.h"

/* The frames of a run. */
typedef struct run {
    const uint8_t *token_ids[TP_RUN_MOST];
    uint64_t steps[TP_RUN_MOST], mono_ns[TP_RUN_MOST];
    uint32_t frames;
} run;

/* Collects the frames that continue the last applied frame (the basis). Each has one token per row and
 * nothing else. */
static void collect(const tp_table *t, const tp_rank *rank, const tp_bytes *frames, uint32_t n, run *r) {
    uint64_t step = rank->last_step;
    r->frames = 0;
    while (r->frames < n && r->frames < TP_RUN_MOST) {
        tp_step_view v;
        const uint32_t at = r->frames;
        if (tp_step_parse(frames[at].data, frames[at].size, &v) != TP_OK || v.dp != rank->dp || v.tp != 0 ||
            v.step <= step || !v.continues || !tp_basis_leads_to(&rank->basis, at, &v) || v.counts != NULL ||
            v.status != NULL || v.lp_k != NULL || v.extras_bytes > 0 || tp_is_ahead(t, v.mono_ns)) {
            return;
        }
        r->token_ids[at] = v.token_ids;
        r->steps[at] = step = v.step;
        r->mono_ns[at] = v.mono_ns;
        r->frames++;
    }
}

/* Whether a token is in the vocabulary and does not end the request. */
static int goes_on(const tp_table *t, const tp_binding *b, int32_t token, uint32_t count) {
    return (uint32_t)token < t->vocab_size && !tp_token_stops(b, token, count);
}

/* Writes the next n tokens of a row after the tokens of its binding, without counting them. Returns how many
 * of them, from the first on, are plain. */
static uint32_t write_tokens(const tp_table *t, tp_binding *b, const run *r, size_t row, uint32_t n) {
    int32_t *tokens = b->tokens + b->total;
    const uint64_t mask = b->stop_mask;
    uint32_t top = 0;
    uint64_t stops = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t token = (uint32_t)tp_load_i32(r->token_ids[i] + row * 4);
        tokens[i] = (int32_t)token;
        top = token > top ? token : top;
        stops |= mask >> (token & 63);
    }
    if (top < t->vocab_size && !(stops & 1)) {
        return n;
    }
    uint32_t plain = 0;
    while (plain < n && goes_on(t, b, tokens[plain], b->total + plain + 1)) {
        plain++;
    }
    return plain;
}

/* Returns the binding of a row. NULL: the binding has no plain rows. */
static tp_binding *find(const tp_table *t, const tp_rank *rank, uint32_t row) {
    const tp_basis *basis = &rank->basis;
    const int64_t handle = basis->handles[row];
    tp_binding *b = basis->bindings[row]; /* from the last run: it may have another handle now */
    if (b == NULL || b->handle != handle) {
        const uint32_t at = TP_HANDLE_SLOT(handle);
        b = handle > 0 && TP_HANDLE_DP(handle) == rank->dp && at < t->slots ? rank->slots[at].newest : NULL;
        basis->bindings[row] = b;
    }
    const int open = b != NULL && b->handle == handle && tp_binding_is_open(b) &&
                     !(b->flags & (TP_B_SLOW | TP_B_TEXT | TP_B_IN_RUN)) &&
                     basis->position[row] == b->total - b->base;
    return open ? b : NULL;
}

/* Writes the tokens of all rows. Returns the number of frames in which every row is plain. Marks the bindings
 * of the first *rows rows with TP_B_IN_RUN. If a binding has two rows, it returns 0. */
static uint32_t write_rows(tp_table *t, const tp_rank *rank, const run *r, uint32_t *rows) {
    const tp_basis *basis = &rank->basis;
    uint32_t n = r->frames;
    for (*rows = 0; *rows < basis->rows && n > 0; ++*rows) {
        tp_binding *b = find(t, rank, *rows);
        if (b == NULL || b->total >= b->max_tokens || tp_binding_grow(b, (uint64_t)b->total + n) != TP_OK) {
            return 0;
        }
        const uint32_t left =
            b->max_tokens - b->total - 1; /* the last token ends the request, so it is not plain */
        n = write_tokens(t, b, r, *rows, left < n ? left : n);
        b->flags |= TP_B_IN_RUN;
    }
    return n;
}

/* Counts n more tokens of each of these rows, and removes their marks. */
static void commit(tp_table *t, const tp_rank *rank, uint32_t rows, uint32_t n, uint64_t mono_ns) {
    for (uint32_t i = 0; i < rows; i++) {
        tp_binding *b = rank->basis.bindings[i];
        b->flags &= (uint16_t)~TP_B_IN_RUN;
        if (n > 0) {
            tp_client *c = &t->clients[b->client];
            b->total += n;
            c->tokens += n;
            c->mono_ns = mono_ns;
            tp_client_mark(c, b);
        }
    }
}

uint32_t tp_table_feed_run(tp_table *t, uint32_t dp, const tp_bytes *frames, uint32_t n) {
    tp_rank *rank = tp_table_rank(t, dp);
    run r;
    uint32_t rows;
    t->event_count = 0;
    if (rank == NULL || !rank->any_step || rank->basis.rows == 0 || rank->basis.mixed) {
        return 0;
    }
    collect(t, rank, frames, n, &r);
    if (r.frames == 0 || tp_table_reserve_events(t, t->client_count) != TP_OK) {
        return 0;
    }
    n = write_rows(t, rank, &r, &rows);
    commit(t, rank, rows, n, n > 0 ? r.mono_ns[n - 1] : 0);
    rank->basis.mixed = n == 0;
    if (n > 0) {
        rank->last_step = r.steps[n - 1];
        t->counters.frames += n;
        t->counters.rows += (uint64_t)n * rows;
        t->counters.tokens += (uint64_t)n * rows;
        tp_basis_advance(&rank->basis, n);
        tp_clients_crowded(t, rank->last_step);
    }
    return n;
}
