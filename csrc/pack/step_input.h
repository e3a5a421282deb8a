/* The arrays of a step, as publish() got them. */
#ifndef TP_STEP_INPUT_H
#define TP_STEP_INPUT_H

#include "pack/array.h"
#include "wire/layout.h"

/* The comments give the widths that each array may have. */
typedef struct tp_step_input {
    tp_lane_header lane;
    uint64_t step, mono_ns;
    tp_array handles;                /* 8 */
    tp_array tokens;                 /* 4 or 8 */
    tp_array counts;                 /* 2 (unsigned), 4 or 8; not given: all 1 */
    tp_array status;                 /* 1; not given: all TP_ROW_OK */
    tp_array drained;                /* 8: handles of rows without tokens, which follow the others */
    tp_array lp_k, lp_ids, lp_ranks; /* 4 or 8 */
    tp_array lp_values;              /* 4 */
    tp_array extras_len;             /* 4 (unsigned); not given: all 0 */
    tp_array extras;                 /* 1 */
} tp_step_input;

#endif
