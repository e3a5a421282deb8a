/* Counts the tokens of each handle. */
#include "pack/packer_positions.h"

void tp_packer_roll_back(tp_packer *p) {
    const tp_scratch *s = &p->scratch; /* still has the rows of the last pack */
    while (p->counted > 0) {
        const size_t i = --p->counted;
        tp_position *at = &p->at[tp_packer_slot(p, s->handles[i])];
        if (p->replaced > 0 && s->replaced[p->replaced - 1].row == i) {
            *at = s->replaced[--p->replaced].before;
        } else if (at->handle == s->handles[i]) {
            at->count -= p->counts == NULL ? 1 : p->counts[i];
        }
    }
    p->pending_bad = 0;
}

void tp_packer_commit(tp_packer *p) {
    p->bad_tokens += p->pending_bad;
    p->pending_bad = 0;
    p->counted = p->replaced = 0;
}

/* Begins a newer handle of a slot. A row of an older generation is not counted, because the processor
 * drops it. -1: the handle does not belong to this rank. */
static int begin(tp_packer *p, size_t row, int64_t handle, uint32_t count) {
    const uint64_t slot = tp_packer_slot(p, handle);
    if (slot >= p->slots || TP_HANDLE_GENERATION(handle) == 0) {
        return -1;
    }
    tp_position *at = &p->at[slot];
    if (handle > at->handle) {
        p->scratch.replaced[p->replaced++] = (tp_replaced){row, *at};
        *at = (tp_position){handle, count};
    }
    return 0;
}

/* Counts the rows in one pass. Returns the index of the first row whose handle does not belong to this
 * rank, or n. A second copy is compiled for counts that are all 1. */
static inline size_t count_rows(tp_packer *p, size_t n, const uint16_t *counts, uint32_t *any) {
    const int64_t *restrict handles = p->scratch.handles;
    uint32_t *restrict position = p->scratch.position;
    tp_position *restrict table = p->at;
    const uint64_t slots = p->slots;
    const uint64_t base = (uint64_t)p->dp << (TP_SLOT_BITS + TP_GENERATION_BITS);
    for (size_t i = 0; i < n; i++) {
        const int64_t handle = handles[i];
        const uint64_t slot = ((uint64_t)handle - base) >> TP_GENERATION_BITS;
        const uint32_t count = counts == NULL ? 1 : counts[i];
        uint32_t before = 0;
        if (__builtin_expect(slot < slots && table[slot].handle == handle, 1)) {
            before = table[slot].count;
            table[slot].count = before + count;
        } else if (begin(p, i, handle, count) < 0) {
            return i;
        }
        position[i] = before;
        *any |= before;
    }
    return n;
}

int tp_packer_count(tp_packer *p, tp_step_rows *rows, tp_fault *fault) {
    const size_t n = rows->rows;
    uint32_t any = 0;
    p->counts = rows->counts;
    p->counted = rows->counts == NULL ? count_rows(p, n, NULL, &any) : count_rows(p, n, rows->counts, &any);
    if (p->counted < n) {
        const size_t row = p->counted;
        tp_packer_roll_back(p);
        return tp_fault_set(fault, "row %zu: %lld is not a handle of dp %u with %u slots", row,
                            (long long)p->scratch.handles[row], p->dp, p->slots);
    }
    rows->position = any ? p->scratch.position : NULL;
    return 0;
}
