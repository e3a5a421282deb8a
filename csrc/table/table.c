/* Making a table; finding, making and dropping bindings. */
#include <stdlib.h>
#include <string.h>

#include "table/table.h"

#define SLAB 256u /* bindings allocated at once */

tp_result tp_table_init(tp_table *t, const tp_table_config *config) {
    memset(t, 0, sizeof *t);
    t->processor = config->processor;
    t->slots = config->slots;
    t->vocab_size = config->vocab_size;
    t->park_limit = config->park_limit < UINT32_MAX ? config->park_limit : UINT32_MAX;
    t->merge_limit = config->merge_limit;
    t->vocab = config->vocab;
    t->parked_limit = (uint64_t)config->rank_count * config->slots * 2 + 64;
    t->ranks = calloc(config->rank_count + 1u, sizeof *t->ranks);
    t->eos = calloc(config->eos_count + 1u, sizeof *t->eos);
    if (t->ranks == NULL || t->eos == NULL) {
        return TP_E_MEMORY;
    }
    if (config->eos_count > 0) {
        memcpy(t->eos, config->eos, config->eos_count * sizeof *t->eos);
    }
    t->eos_count = config->eos_count;
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

void tp_binding_free_output(tp_binding *b) {
    free(b->tokens);
    b->tokens = NULL;
    b->capacity = 0;
    tp_tail_free(b);
    tp_text_free(b->text);
    tp_annex_free(b->annex);
    free(b->error_extras);
    b->error_extras = NULL;
    b->text = NULL;
    b->annex = NULL;
    b->flags &= (uint16_t)~(TP_B_TEXT | TP_B_ANNEX);
}

static void free_owned(tp_binding *b) {
    tp_binding_free_output(b);
    free(b->stop_ids);
    free(b->error);
}

void tp_table_clear(tp_table *t) {
    for (uint32_t s = 0; s < t->slab_count; s++) {
        for (uint32_t i = 0; i < SLAB; i++) {
            free_owned((tp_binding *)t->slabs[s] + i);
        }
        free(t->slabs[s]);
    }
    for (uint32_t i = 0; i < t->rank_count; i++) {
        free(t->ranks[i].slots);
        tp_basis_free(&t->ranks[i].basis);
    }
    for (uint32_t i = 0; i < t->client_count; i++) {
        free(t->clients[i].dirty);
    }
    tp_space_free(&t->space);
    free(t->slabs);
    free(t->ranks);
    free(t->eos);
    free(t->clients);
    free(t->events);
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

static tp_result more_bindings(tp_table *t) {
    void **slabs = realloc(t->slabs, (t->slab_count + 1u) * sizeof *slabs);
    if (slabs == NULL) {
        return TP_E_MEMORY;
    }
    t->slabs = slabs;
    tp_binding *slab = aligned_alloc(64, SLAB * sizeof *slab);
    if (slab == NULL) {
        return TP_E_MEMORY;
    }
    memset(slab, 0, SLAB * sizeof *slab);
    t->slabs[t->slab_count++] = slab;
    for (uint32_t i = SLAB; i-- > 0;) {
        slab[i].older = t->pool;
        t->pool = &slab[i];
    }
    return TP_OK;
}

tp_binding *tp_binding_new(tp_table *t, tp_slot *slot, int64_t handle) {
    if (t->pool == NULL && more_bindings(t) != TP_OK) {
        return NULL;
    }
    tp_binding *b = t->pool;
    t->pool = b->older;
    memset(b, 0, sizeof *b);
    b->handle = handle;
    b->client = TP_NO_CLIENT;
    b->stop_reason = b->stop_string = TP_NO_STOP;
    t->live++;
    tp_binding **at = &slot->newest; /* newest first */
    while (*at != NULL && (*at)->handle > handle) {
        at = &(*at)->older;
    }
    b->older = *at;
    *at = b;
    return b;
}

tp_result tp_binding_grow(tp_binding *b, uint64_t tokens) {
    if (tokens <= b->capacity) {
        return TP_OK;
    }
    uint64_t capacity = (uint64_t)b->capacity * 2 < 32 ? 32 : (uint64_t)b->capacity * 2;
    if (capacity < tokens) {
        capacity = tokens;
    }
    int32_t *grown = capacity > UINT32_MAX ? NULL : realloc(b->tokens, capacity * sizeof *grown);
    if (grown == NULL) {
        return TP_E_MEMORY;
    }
    b->tokens = grown;
    b->capacity = (uint32_t)capacity;
    return TP_OK;
}

void tp_binding_recycle(tp_table *t, tp_binding *b) {
    free_owned(b);
    memset(b, 0, sizeof *b);
    b->older = t->pool;
    t->pool = b;
    t->live--;
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
    }
    b->state = TP_GONE;
    if (!(b->flags & TP_B_DIRTY)) {
        tp_binding_recycle(t, b);
    }
}

tp_result tp_table_reserve_events(tp_table *t, uint64_t extra) {
    const uint64_t need = t->event_count + extra;
    if (need <= t->event_capacity) {
        return TP_OK;
    }
    tp_event *events = need > UINT32_MAX / 2 ? NULL : realloc(t->events, need * sizeof *events);
    if (events == NULL) {
        return TP_E_MEMORY;
    }
    t->events = events;
    t->event_capacity = (uint32_t)need;
    return TP_OK;
}
