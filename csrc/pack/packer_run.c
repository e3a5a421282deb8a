/* Finds the steps that continue the step before. */
#include "pack/packer_run.h"

#include <stdlib.h>
#include <string.h>

#include "buffer.h"

/* Whether no handle has two rows. A handle with two rows gets more than one token with each frame. */
static int is_sole(tp_packer *p) {
    tp_run *run = &p->run;
    size_t i = 0;
    if (run->marks == NULL) {
        run->marks = calloc(p->slots / 8 + 1, 1);
    }
    if (run->marks == NULL) {
        return 0;
    }
    for (; i < run->rows; i++) {
        const uint64_t slot = tp_packer_slot(p, run->handles[i]);
        const uint8_t bit = (uint8_t)(1u << (slot & 7));
        if (run->marks[slot >> 3] & bit) {
            break;
        }
        run->marks[slot >> 3] |= bit;
    }
    const int sole = i == run->rows;
    while (i > 0) {
        run->marks[tp_packer_slot(p, run->handles[--i]) >> 3] = 0;
    }
    return sole;
}

TP_HOT int tp_run_goes_on(tp_packer *p, const tp_step_input *in) {
    tp_run *run = &p->run;
    const size_t n = in->handles.n;
    if (run->rows != n || run->frames >= TP_RUN_FRAMES || in->lane.seq != run->lane.seq + 1 ||
        in->lane.receiver != run->lane.receiver || in->lane.sender != run->lane.sender ||
        in->lane.instance != run->lane.instance || memcmp(run->handles, in->handles.data, 8 * n) != 0) {
        return 0;
    }
    if (run->sole < 0) {
        run->sole = is_sole(p);
    }
    return run->sole;
}

void tp_run_settle(tp_packer *p) {
    tp_run *run = &p->run;
    for (size_t i = 0; run->frames > 0 && i < run->rows; i++) {
        p->at[tp_packer_slot(p, run->handles[i])].count += run->frames;
    }
    run->frames = 0;
    run->rows = 0;
}

void tp_run_begin(tp_packer *p, const tp_step_input *in, const uint8_t *handles) {
    tp_run *run = &p->run;
    const size_t n = in->handles.n;
    run->rows = 0;
    if (tp_buffer_grow(&run->handles, sizeof *run->handles, &run->capacity, n) != TP_OK) {
        return; /* without memory there is no run, so each frame names its rows */
    }
    memcpy(run->handles, handles, 8 * n);
    run->rows = (uint32_t)n;
    run->frames = 0;
    run->lane = in->lane;
    run->sole = -1;
}

void tp_run_free(tp_run *run) {
    free(run->handles);
    free(run->marks);
}
