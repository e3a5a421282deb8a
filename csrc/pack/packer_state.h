/* The state of a packer, which the files pack/packer*.c share. */
#ifndef TP_PACKER_STATE_H
#define TP_PACKER_STATE_H

#include "pack/packer_scratch.h"
#include "wire/layout.h"

/* The maximum number of frames that continue one frame that names its rows. A reader that could not take a
 * frame loses at most this many steps. */
#define TP_RUN_FRAMES 63u

/* A run: the newest frame that names its rows, and the frames that continue it with one token for each row.
 */
typedef struct tp_run {
    tp_lane_header lane; /* of the run's last frame */
    int64_t *handles;
    uint8_t *marks;          /* a bit per slot, all 0 between calls; NULL until a run needs them */
    uint32_t rows, capacity; /* rows 0: there is no run */
    uint32_t frames;         /* frames after the first. Their tokens are not in the array `at` yet */
    int sole;                /* 1: no handle has two rows; 0: one has; -1: unknown */
} tp_run;

typedef struct tp_packer {
    uint32_t dp, tp, slots;
    uint32_t max_token;     /* vocab_size - 1 */
    tp_position *at;        /* per slot */
    size_t counted;         /* rows of the last pack; 0 once it is committed */
    size_t replaced;        /* how many of these rows were the first of their handle */
    const uint16_t *counts; /* of these rows, in the scratch; NULL: all 1 */
    uint64_t bad_tokens, pending_bad;
    tp_run run;
    tp_scratch scratch;
} tp_packer;

/* Returns the slot of a handle. A handle of another rank, or a handle <= 0, gives a number that is not a
 * slot. */
static inline uint64_t tp_packer_slot(const tp_packer *p, int64_t handle) {
    const uint64_t base = (uint64_t)p->dp << (TP_SLOT_BITS + TP_GENERATION_BITS);
    return ((uint64_t)handle - base) >> TP_GENERATION_BITS;
}

#endif
