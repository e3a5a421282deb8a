/* From what publish() was given to a StepFrame: checks, conversion, and each handle's position. */
#ifndef TP_PACKER_H
#define TP_PACKER_H

#include "wire/frame.h"

/* An array of the caller, unaligned for all we know. width is bytes an entry, 0 = not given. */
typedef struct tp_array {
    const uint8_t *data;
    size_t n;
    uint32_t width;
} tp_array;

typedef struct tp_step_input {
    tp_lane_header lane;
    uint64_t step, mono_ns;
    tp_array handles;                /* 8 */
    tp_array tokens;                 /* 4 or 8 */
    tp_array counts;                 /* 2 (unsigned), 4 or 8; not given = all 1 */
    tp_array status;                 /* 1; not given = all ok */
    tp_array drained;                /* 8: rows without tokens, behind the others */
    tp_array lp_k, lp_ids, lp_ranks; /* 4 or 8 */
    tp_array lp_values;              /* 4 */
    tp_array annex_len;              /* 4 (unsigned); not given = all 0 */
    tp_array annex;                  /* 1 */
} tp_step_input;

/* What is wrong with the input, for its owner to read. */
typedef struct tp_fault {
    char text[128];
} tp_fault;

typedef struct tp_position {
    int64_t handle; /* the newest of the slot */
    uint32_t count; /* its tokens so far */
} tp_position;

/* What a row replaced by its newer handle. */
typedef struct tp_replaced {
    size_t row;
    tp_position before;
} tp_replaced;

/* Arrays that grow and are used again, so that a step allocates nothing. */
typedef struct tp_scratch {
    size_t rows, tokens, entries; /* capacities */
    int64_t *handles, *again;
    uint16_t *counts;
    uint8_t *status;
    uint32_t *position;
    int32_t *lp_k;
    uint32_t *annex_len;
    int32_t *token_ids, *lp_ranks;
    int32_t *lp_ids;
    float *lp_values;
    tp_replaced *replaced;
} tp_scratch;

/* Frames that continue one that names its rows. So many rows' worth of tokens is the most that a
 * reader can lose behind a frame that it could not take. */
#define TP_RUN_FRAMES 63u

/* The rows of the newest frame, where the next one may continue it. */
typedef struct tp_run {
    tp_lane_header lane; /* of that frame */
    int64_t *handles;
    uint8_t *marks;        /* a bit per slot, all 0 between calls; NULL until it is needed */
    size_t rows, capacity; /* rows 0: nothing to continue */
    uint32_t frames;       /* since the rows were named; so many tokens of each `at` does not know */
    int sole;              /* whether no handle has two rows; -1: not looked at */
} tp_run;

typedef struct tp_packer {
    uint32_t dp, tp, slots;
    uint32_t max_token;     /* vocab_size - 1 */
    tp_position *at;        /* per slot */
    size_t counted;         /* rows of the last pack, 0 once it is committed */
    size_t replaced;        /* how many of them began a handle */
    const uint16_t *counts; /* theirs, in the scratch; NULL = all 1 */
    uint64_t bad_tokens, pending_bad;
    tp_run run;
    tp_scratch scratch;
} tp_packer;

/* The slot of one of this rank's handles; another rank's, or one <= 0, wraps to one no rank has. */
static inline uint64_t tp_packer_slot(const tp_packer *p, int64_t handle) {
    const uint64_t base = (uint64_t)p->dp << (TP_SLOT_BITS + TP_GENERATION_BITS);
    return ((uint64_t)handle - base) >> TP_GENERATION_BITS;
}

/* 0, or -1 without memory. slots <= 65536, vocab_size in 1..2^31. */
int tp_packer_init(tp_packer *p, uint32_t dp, uint32_t tp, uint32_t slots, uint32_t vocab_size);
void tp_packer_free(tp_packer *p);

/* Makes the rows of a frame; they point into the input and the scratch until the next call.
 * 0, or -1 with *fault filled: then nothing has changed. Positions hold from tp_packer_commit on;
 * without it the next call forgets them. */
int tp_packer_pack(tp_packer *p, const tp_step_input *in, tp_step_rows *rows, tp_fault *fault);
void tp_packer_commit(tp_packer *p);

void tp_packer_roll_back(tp_packer *p);

/* ---- packer_plain.c: the common step, straight into its frame ---- */

typedef struct tp_plain {
    size_t rows, head_size;
    int continues;          /* the frame before: then it names no handles and no positions */
    const uint8_t *handles; /* in the frame */
    uint8_t head[128];      /* at most 5 bytes and 10 integers of 9 */
} tp_plain;

/* Returns the size of the frame, or 0 where the step has more than handles and a token for each. */
size_t tp_plain_begin(tp_packer *p, const tp_step_input *in, tp_plain *plain);
/* 1: written, and counted at once; 0: some row is not plain, nothing is counted. */
int tp_plain_write(tp_packer *p, const tp_step_input *in, tp_plain *plain, uint8_t *out);
/* Takes back what was counted; the frame is still there. */
void tp_plain_undo(tp_packer *p, const tp_plain *plain);

/* ---- packer_run.c: steps of the same rows ---- */

/* Whether the step's rows are those of the newest frame, and its frame the next one of the lane. */
int tp_run_goes_on(tp_packer *p, const tp_step_input *in);
/* Lets the next frame continue this one, which named its rows: one token each, all of them counted. */
void tp_run_begin(tp_packer *p, const tp_step_input *in);
/* Ends a run: the positions know of all its tokens. */
void tp_run_settle(tp_packer *p);
void tp_run_free(tp_run *run);

/* ---- packer_rows.c: judging and converting, no positions ---- */

/* Fills rows (all but position) and *bad, the number of rows that became BAD_TOKEN. */
int tp_packer_convert(tp_packer *p, const tp_step_input *in, tp_step_rows *rows, uint64_t *bad,
                      tp_fault *fault);

/* ---- packer_repair.c: the rare way, row by row ---- */

/* Turns rows with a bad value into BAD_TOKEN, drops placeholders; returns how many rows were bad.
 * Handles whose drained row it had to use for that are put into `again`, *n_again of them. */
uint64_t tp_packer_repair(tp_packer *p, const tp_step_input *in, tp_step_rows *rows, int64_t *again,
                          size_t *n_again);

/* ---- packer_scratch.c ---- */

int tp_fault_set(tp_fault *fault, const char *format, ...) __attribute__((format(printf, 2, 3)));
int tp_scratch_reserve(tp_scratch *s, size_t rows, size_t tokens, size_t entries);
void tp_scratch_free(tp_scratch *s);

static inline int64_t tp_array_at(const tp_array *a, size_t i) {
    switch (a->width) {
    case 1: return a->data[i];
    case 2: return tp_load_u16(a->data + 2 * i);
    case 4: return tp_load_i32(a->data + 4 * i);
    default: return tp_load_i64(a->data + 8 * i);
    }
}

#endif
