/* Makes a table, and finds and drops bindings. */
#include "table/table.h"

#include <stdlib.h>
#include <string.h>

#include "table/table_client.h"
#include "table/table_pool.h"

static tp_result make_ranks(tp_table *t, const tp_table_config *config) {
    t->ranks = calloc(config->rank_count + 1u, sizeof *t->ranks);
    if (t->ranks == NULL) {
        return TP_E_MEMORY;
    }
    for (uint32_t i = 0; i < config->rank_count; i++) {
        t->ranks[i].dp = config->ranks[i];
        t->ranks[i].slots = calloc(config->slots, sizeof *t->ranks[i].slots);
        if (t->ranks[i].slots == NULL) {
            return TP_E_MEMORY;
        }
        t->rank_count++;
    }
    return TP_OK;
}

tp_result tp_table_init(tp_table *t, const tp_table_config *config) {
    memset(t, 0, sizeof *t);
    t->processor = config->processor;
    t->slots = config->slots;
    t->vocab_size = config->vocab_size;
    t->park_limit = config->park_limit < UINT32_MAX ? config->park_limit : UINT32_MAX;
    t->merge_limit = config->merge_limit;
    t->vocab = config->vocab;
    t->now_ns = UINT64_MAX;
    t->parked_limit = (uint64_t)config->rank_count * config->slots * 2 + 64;
    t->eos = calloc(config->eos_count + 1u, sizeof *t->eos);
    if (t->eos == NULL) {
        return TP_E_MEMORY;
    }
    if (config->eos_count > 0) {
        memcpy(t->eos, config->eos, config->eos_count * sizeof *t->eos);
    }
    t->eos_count = config->eos_count;
    return make_ranks(t, config);
}

void tp_table_clear(tp_table *t) {
    tp_pool_clear(t);
    for (uint32_t i = 0; i < t->rank_count; i++) {
        free(t->ranks[i].slots);
        tp_basis_free(&t->ranks[i].basis);
    }
    for (uint32_t i = 0; i < t->client_count; i++) {
        tp_client_free(&t->clients[i]);
    }
    tp_space_free(&t->space);
    free(t->ranks);
    free(t->eos);
    free(t->clients);
    free(t->events);
    free(t->queue);
    memset(t, 0, sizeof *t);
}

tp_rank *tp_table_rank(const tp_table *t, uint32_t dp) {
    for (uint32_t i = 0; i < t->rank_count; i++) {
        if (t->ranks[i].dp == dp) {
            return &t->ranks[i];
        }
    }
    return NULL;
}

tp_slot *tp_table_slot(const tp_table *t, int64_t handle) {
    if (handle <= 0 || TP_HANDLE_GENERATION(handle) == 0 || TP_HANDLE_SLOT(handle) >= t->slots) {
        return NULL;
    }
    tp_rank *rank = tp_table_rank(t, TP_HANDLE_DP(handle));
    return rank == NULL ? NULL : &rank->slots[TP_HANDLE_SLOT(handle)];
}

tp_binding *tp_table_find(const tp_table *t, int64_t handle) {
    const tp_slot *slot = tp_table_slot(t, handle);
    tp_binding *b = slot == NULL ? NULL : slot->newest;
    while (b != NULL && b->handle != handle) {
        b = b->older;
    }
    return b;
}

void tp_table_drop(tp_table *t, tp_binding *b) {
    tp_slot *slot = tp_table_slot(t, b->handle);
    tp_binding **at = &slot->newest;
    while (*at != b) {
        at = &(*at)->older;
    }
    *at = b->older;
    if (b->state == TP_PARKED) {
        t->parked_now--;
        t->park_used -= b->park_bytes;
        b->park_bytes = 0; /* it is no place in the queue */
    }
    b->state = TP_GONE;
    if (!(b->flags & TP_B_DIRTY)) { /* else the flush that sends its last row frees it */
        tp_binding_recycle(t, b);
    }
}
