/* One call per StepFrame. A plain row (one good token that ends nothing) is done here, in a few
 * nanoseconds when it is in cache; all others in table_row.c. */
#include "table/table.h"

/* Rows are looked up in blocks, a pass per pointer, so that the misses of a block overlap. */
#define BLOCK 32u

/* What has `text` is compiled twice, so that tables without a vocabulary pay nothing for it. */
#define WITH_AND_WITHOUT __attribute__((always_inline)) static inline

typedef struct block {
    tp_slot *slots[BLOCK]; /* NULL: the row names no place of this rank */
    tp_binding *newest[BLOCK];
} block;

/* token_ids: of these rows, where each has one; else NULL. */
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
        /* as a number: it may have no array, and one that is full is looked for in vain */
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

/* Where the next row's tokens and logprobs begin. */
typedef struct cursor {
    const uint8_t *token_ids, *lp_ids, *lp_values, *lp_ranks;
} cursor;

static inline const uint8_t *skip(const uint8_t *p, uint64_t values) {
    return p == NULL ? NULL : p + values * 4;
}

static inline int is_plain(const tp_table *t, const tp_binding *b, uint32_t position, int32_t token) {
    return (b->state == TP_RUNNING || b->state == TP_PREEMPTING) && !(b->flags & TP_B_SLOW) &&
           position == b->total - b->base && b->total < b->capacity && b->total + 1 < b->max_tokens &&
           (uint32_t)token < t->vocab_size && !((b->stop_mask >> ((uint32_t)token & 63)) & 1);
}

/* Takes the one token of a row that is plain, text included; 0: it is not, and nothing happened. */
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

WITH_AND_WITHOUT void feed_rows(tp_table *t, tp_rank *rank, const tp_step_view *v, int again, int text) {
    cursor at = {v->token_ids, v->lp_ids, v->lp_values, v->lp_ranks};
    const uint8_t *annex = v->annex;
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
        tp_slot *slot = found.slots[i % BLOCK];
        tp_binding *b = found.newest[i % BLOCK];
        const cursor here = at;
        at.token_ids = skip(at.token_ids, count);
        if (k >= 0) {
            at.lp_ids = skip(at.lp_ids, ((uint64_t)k + 1) * count);
            at.lp_values = skip(at.lp_values, ((uint64_t)k + 1) * count);
            at.lp_ranks = skip(at.lp_ranks, count);
        }
        uint32_t size = 0;
        if (v->annex_bytes > 0) {
            size = tp_load_u32(v->annex_len + (size_t)i * 4);
            annex += size;
        }
        if (b != NULL && b->handle == handle && count == 1 && status == TP_ROW_OK && k < 0 && size == 0 &&
            !again && take_plain(t, b, position, tp_load_i32(here.token_ids), v->mono_ns, text)) {
            plain++;
            continue;
        }
        if (slot == NULL) {
            t->counters.bad_rows++;
            continue;
        }
        if (b == NULL || b->handle != handle) {
            b = tp_row_place(t, slot, handle, v->step);
        }
        if (b != NULL) {
            tp_row row = {.step = v->step,
                          .mono_ns = v->mono_ns,
                          .token_ids = here.token_ids,
                          .lp_ids = here.lp_ids,
                          .lp_values = here.lp_values,
                          .lp_ranks = here.lp_ranks,
                          .annex = size > 0 ? annex - size : NULL,
                          .count = count,
                          .position = position,
                          .annex_size = size,
                          .k = k,
                          .status = status,
                          .again = (uint8_t)again};
            tp_row_apply(t, b, &row);
        }
    }
    t->counters.tokens += plain;
}

void tp_table_crowded(tp_table *t, uint64_t step) {
    for (uint32_t i = 0; i < t->client_count; i++) {
        tp_client *c = &t->clients[i];
        if (!c->crowded && tp_client_bytes(c) > t->merge_limit) {
            c->crowded = 1;
            tp_table_event(t, TP_EV_CROWDED, i, 0, 0, step);
        }
    }
}

tp_result tp_table_feed(tp_table *t, uint32_t dp, uint32_t tp, const uint8_t *data, size_t size) {
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
    result = tp_basis_take(&rank->basis, &v);
    if (result != TP_OK) {
        return result;
    }
    /* parked, an end and a marker: no row has more events than that */
    result = tp_table_reserve_events(t, (uint64_t)v.rows * 3 + t->client_count);
    if (result != TP_OK) {
        return result;
    }
    const int again = rank->any_step && v.step <= rank->last_step;
    if (!again) {
        rank->last_step = v.step;
        rank->any_step = 1;
    }
    t->counters.frames++;
    t->counters.rows += v.rows;
    if (t->vocab == NULL) {
        feed_rows(t, rank, &v, again, 0);
    } else {
        feed_rows(t, rank, &v, again, 1);
    }
    tp_basis_keep(&rank->basis, &v);
    tp_table_crowded(t, v.step);
    return TP_OK;
}
