/* The packer as a whole. */
#include "pack/packer.h"

#include <stdlib.h>
#include <string.h>

#include "pack/packer_positions.h"
#include "pack/packer_rows.h"
#include "pack/packer_run.h"

tp_result tp_packer_init(tp_packer *p, uint32_t dp, uint32_t tp, uint32_t slots, uint32_t vocab_size) {
    memset(p, 0, sizeof *p);
    p->dp = dp;
    p->tp = tp;
    p->slots = slots;
    p->max_token = vocab_size - 1;
    p->at = calloc(slots, sizeof *p->at);
    if (p->at == NULL) {
        return TP_E_MEMORY;
    }
    for (uint32_t slot = 0; slot < slots; slot++) {
        p->at[slot].handle = -1; /* not 0: a caller may pass 0 as a handle */
    }
    return TP_OK;
}

void tp_packer_free(tp_packer *p) {
    free(p->at);
    tp_run_free(&p->run);
    tp_scratch_free(&p->scratch);
    memset(p, 0, sizeof *p);
}

int tp_packer_pack(tp_packer *p, const tp_step_input *in, tp_step_rows *rows, tp_fault *fault) {
    uint64_t bad = 0;
    tp_packer_roll_back(p);
    tp_run_settle(p);
    *rows =
        (tp_step_rows){.lane = in->lane, .dp = p->dp, .tp = p->tp, .step = in->step, .mono_ns = in->mono_ns};
    if (tp_packer_convert(p, in, rows, &bad, fault) < 0 || tp_packer_count(p, rows, fault) < 0) {
        return -1;
    }
    p->pending_bad = bad;
    return 0;
}
