/* Feeds frames. A plain row has one valid token that does not end the request. It is applied here, in a few
 * nanoseconds if its memory is in the cache. All other rows go to table_row.c. */
#include "table/table_feed.h"

#include "table/table.h"
#include "table/table_client.h"
#include "table/table_events.h"
#include "table/table_pace.h"
#include "table/table_park.h"
#include "table/table_row.h"
#include "text/text.h"
#include "wire/step.h"

/* Rows are looked up in blocks, in one pass per pointer, so that the cache misses of a block overlap. */
#define BLOCK 32u

/* A function with the argument `text` is compiled twice, so that tables without a vocabulary are not slower
 * because of text. */
#define WITH_AND_WITHOUT __attribute__((always_inline)) static inline

typedef struct block {
    tp_slot *slots[BLOCK]; /* NULL: the handle of the row does not belong to this rank */
    tp_binding *newest[BLOCK];
} block;

/* Finds the slots and bindings of n rows. token_ids has one token for each row. NULL: not every row has one
 * token. */
WITH_AND_WITHOUT void look_up(const tp_table *t, const tp_rank *rank, const uint8_t *handles,
                              const uint8_t *token_ids, uint32_t n, block *found, int text) {
    const uint32_t words = !text || token_ids == NULL ? 0 : t->vocab->count;
    for (uint32_t i = 0; i < n; i++) {
        const int64_t handle = tp_load_i64(handles + (size_t)i * 8);
        const uint32_t at = TP_HANDLE_SLOT(handle);
        const int good = handle > 0 && TP_HANDLE_DP(handle) == rank->dp && at < t->slots &&
                         TP_HANDLE_GENERATION(handle) != 0;
        found->slots[i] = good ? &rank->slots[at] : NULL;
        if (good) {
            __builtin_prefetch(found->slots[i]);
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        found->newest[i] = found->slots[i] == NULL ? NULL : found->slots[i]->newest;
        __builtin_prefetch(found->newest[i], 1);
    }
    for (uint32_t i = 0; i < n; i++) {
        const tp_binding *b = found->newest[i];
        if (b == NULL) {
            continue;
        }
        /* an address computed as an integer, because the array may be NULL or full */
        __builtin_prefetch((const void *)((uintptr_t)b->tokens + (size_t)b->total * 4), 1);
        if (text && b->flags & TP_B_TEXT) {
            const uint32_t token = words == 0 ? 0 : (uint32_t)tp_load_i32(token_ids + (size_t)i * 4);
            __builtin_prefetch(b->text, 1);
            __builtin_prefetch(b->text->few, 1);
            if (token < words) {
                __builtin_prefetch(&t->vocab->words[token]);
            }
        }
    }
}

/* Where the next row begins in the columns. */
typedef struct cursor {
    const uint8_t *token_ids, *lp_ids, *lp_values, *lp_ranks, *extras;
} cursor;

static inline const uint8_t *skip(const uint8_t *p, uint64_t values) {
    return p == NULL ? NULL : p + values * 4;
}

/* Goes on to the next row. */
static inline void advance(cursor *at, uint32_t count, int32_t k, uint32_t extras) {
    at->token_ids = skip(at->token_ids, count);
    if (k >= 0) {
        at->lp_ids = skip(at->lp_ids, ((uint64_t)k + 1) * count);
        at->lp_values = skip(at->lp_values, ((uint64_t)k + 1) * count);
        at->lp_ranks = skip(at->lp_ranks, count);
    }
    if (extras > 0) {
        at->extras += extras;
    }
}

static inline int is_plain(const tp_table *t, const tp_binding *b, uint32_t position, int32_t token) {
    return tp_binding_is_open(b) && !(b->flags & TP_B_SLOW) && position == b->total - b->base &&
           b->total < b->capacity && b->total + 1 < b->max_tokens && (uint32_t)token < t->vocab_size &&
           !((b->stop_mask >> ((uint32_t)token & 63)) & 1);
}

/* Applies the token of a plain row, with its text. 0: the row is not plain, and nothing has changed. */
WITH_AND_WITHOUT int take_plain(tp_table *t, tp_binding *b, uint32_t position, int32_t token,
                                uint64_t mono_ns, int text) {
    if (!is_plain(t, b, position, token)) {
        return 0;
    }
    tp_client *c = &t->clients[b->client];
    if (text && b->flags & TP_B_TEXT) {
        if (!tp_text_plain(b->text, t->vocab, token)) {
            return 0;
        }
        tp_text_charge(c, b->text);
    }
    b->tokens[b->total++] = token;
    c->tokens++;
    c->mono_ns = mono_ns;
    tp_client_mark(c, b);
    return 1;
}

/* Applies a row that is not plain. b is the newest binding of the slot. */
static void feed_row(tp_table *t, tp_slot *slot, tp_binding *b, int64_t handle, tp_row *row) {
    if (slot == NULL) {
        t->counters.bad_rows++;
        return;
    }
    if (b == NULL || b->handle != handle) {
        b = tp_park_place(t, slot, handle, row->step);
    }
    if (b != NULL) {
        tp_row_apply(t, b, row);
    }
}

WITH_AND_WITHOUT void feed_rows(tp_table *t, tp_rank *rank, const tp_step_view *v, int again, int text) {
    cursor at = {v->token_ids, v->lp_ids, v->lp_values, v->lp_ranks, v->extras};
    block found;
    uint64_t plain = 0;
    for (uint32_t i = 0; i < v->rows; i++) {
        if (i % BLOCK == 0) {
            const uint32_t left = v->rows - i;
            look_up(t, rank, v->handles + (size_t)i * 8, v->counts == NULL ? at.token_ids : NULL,
                    left < BLOCK ? left : BLOCK, &found, text);
        }
        const int64_t handle = tp_load_i64(v->handles + (size_t)i * 8);
        const uint32_t count = v->counts == NULL ? 1 : tp_load_u16(v->counts + (size_t)i * 2);
        const uint32_t position = v->position == NULL ? 0 : tp_load_u32(v->position + (size_t)i * 4);
        const uint8_t status = v->status == NULL ? TP_ROW_OK : v->status[i];
        const int32_t k = v->lp_k == NULL ? -1 : tp_load_i32(v->lp_k + (size_t)i * 4);
        const uint32_t extras = v->extras_bytes == 0 ? 0 : tp_load_u32(v->extras_len + (size_t)i * 4);
        const cursor here = at;
        advance(&at, count, k, extras);
        tp_binding *b = found.newest[i % BLOCK];
        if (b != NULL && b->handle == handle && count == 1 && status == TP_ROW_OK && k < 0 && extras == 0 &&
            !again && take_plain(t, b, position, tp_load_i32(here.token_ids), v->mono_ns, text)) {
            plain++;
            continue;
        }
        tp_row row = {.step = v->step,
                      .mono_ns = v->mono_ns,
                      .token_ids = here.token_ids,
                      .lp_ids = here.lp_ids,
                      .lp_values = here.lp_values,
                      .lp_ranks = here.lp_ranks,
                      .extras = here.extras,
                      .count = count,
                      .position = position,
                      .extras_size = extras,
                      .k = k,
                      .status = status,
                      .again = (uint8_t)again};
        feed_row(t, found.slots[i % BLOCK], b, handle, &row);
    }
    t->counters.tokens += plain;
}

TP_HOT tp_result tp_table_feed(tp_table *t, uint32_t dp, uint32_t tp, const uint8_t *data, size_t size) {
    tp_step_view v;
    t->event_count = 0;
    tp_result result = tp_step_parse(data, size, &v);
    if (result != TP_OK) {
        return result;
    }
    tp_rank *rank = tp_table_rank(t, dp);
    if (rank == NULL || v.dp != dp || v.tp != tp) {
        return TP_E_HEADER;
    }
    const int follows = tp_basis_is_before(&rank->basis, 0, &v); /* it may be a part of the same step */
    result = tp_basis_take(&rank->basis, &v);
    if (result != TP_OK) {
        return result;
    }
    /* a row gives at most three events: parked, an end, and drained */
    result = tp_table_reserve_events(t, (uint64_t)v.rows * 3 + t->client_count);
    if (result != TP_OK) {
        return result;
    }
    const int again = rank->any_step && v.step <= rank->last_step && !(v.step == rank->last_step && follows);
    if (!again) {
        rank->last_step = v.step;
        rank->any_step = 1;
    }
    t->counters.frames++;
    t->counters.rows += v.rows;
    if (tp_is_ahead(t, v.mono_ns)) {
        t->counters.clock_ahead++;
        v.mono_ns = t->now_ns;
    }
    if (t->vocab == NULL) {
        feed_rows(t, rank, &v, again, 0);
    } else {
        feed_rows(t, rank, &v, again, 1);
    }
    tp_basis_keep(&rank->basis, &v);
    tp_clients_crowded(t, v.step);
    return TP_OK;
}
