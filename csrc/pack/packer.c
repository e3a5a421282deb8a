/* Positions: how many tokens each handle had produced before a row. */
#include "pack/packer.h"

#include <stdlib.h>
#include <string.h>

int tp_packer_init(tp_packer *p, uint32_t dp, uint32_t tp, uint32_t slots, uint32_t vocab_size) {
    memset(p, 0, sizeof *p);
    p->dp = dp;
    p->tp = tp;
    p->slots = slots;
    p->max_token = vocab_size - 1;
    p->at = calloc(slots, sizeof *p->at);
    for (uint32_t slot = 0; p->at != NULL && slot < slots; slot++) {
        p->at[slot].handle = -1; /* 0 is a number that a caller may give for a handle */
    }
    return p->at == NULL ? -1 : 0;
}

void tp_packer_free(tp_packer *p) {
    free(p->at);
    tp_run_free(&p->run);
    tp_scratch_free(&p->scratch);
    memset(p, 0, sizeof *p);
}

/* Takes back what the last pack counted; its rows are still in the scratch. */
void tp_packer_roll_back(tp_packer *p) {
    const tp_scratch *s = &p->scratch;
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

/* Begins a newer handle of a slot at 0; a row of a dead generation is left to the other end. */
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

/* One pass over the handles: are they ours, and where does each one stand. Returns the row that is
 * not, or n. The case of all counts 1 is compiled on its own. */
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

static int count_positions(tp_packer *p, tp_step_rows *rows, tp_fault *fault) {
    const size_t n = rows->rows;
    uint32_t any = 0;
    p->counts = rows->counts;
    p->counted = rows->counts == NULL ? count_rows(p, n, NULL, &any) : count_rows(p, n, rows->counts, &any);
    if (p->counted < n) {
        const size_t row = p->counted;
        tp_packer_roll_back(p);
        return tp_fault_set(fault, "row %zu: %lld is no handle of dp %u with %u slots", row,
                            (long long)p->scratch.handles[row], p->dp, p->slots);
    }
    rows->position = any ? p->scratch.position : NULL;
    return 0;
}

int tp_packer_pack(tp_packer *p, const tp_step_input *in, tp_step_rows *rows, tp_fault *fault) {
    uint64_t bad = 0;
    tp_packer_roll_back(p);
    tp_run_settle(p);
    *rows =
        (tp_step_rows){.lane = in->lane, .dp = p->dp, .tp = p->tp, .step = in->step, .mono_ns = in->mono_ns};
    if (tp_packer_convert(p, in, rows, &bad, fault) < 0 || count_positions(p, rows, fault) < 0) {
        return -1;
    }
    p->pending_bad = bad;
    return 0;
}
