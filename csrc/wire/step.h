/* The StepFrame: the rows of one step of one worker rank.
 * Its header is [instance, sender, receiver, seq, dp, tp, step, rows, tokens, mono_ns]. */
#ifndef TP_STEP_H
#define TP_STEP_H

#include "wire/layout.h"
#include "wire/result.h"

#define TP_STEP_FIELDS 10 /* integers in its header */

/* A parsed StepFrame. The columns point into the frame and are unaligned: tp_load_* reads them. If a
 * column is absent, its pointer is NULL and its default applies. The parser has checked the lengths and the
 * sums. It has not checked handles, token ids and statuses: a bad row harms only its request, so the table
 * checks these. */
typedef struct tp_step_view {
    tp_lane_header lane;
    uint32_t dp, tp, rows, tokens;
    uint64_t step, mono_ns;
    const uint8_t *handles, *counts, *token_ids, *status, *position;
    const uint8_t *lp_k, *lp_ids, *lp_values, *lp_ranks;
    const uint8_t *extras_len, *extras;
    uint32_t lp_entries, lp_tokens, extras_bytes;
    int continues; /* handles and position are NULL; the rows are those of the frame before */
} tp_step_view;

/* Reads a frame that lies in the caller's memory. */
tp_result tp_step_parse(const uint8_t *data, size_t size, tp_step_view *view);

/* Rows to write. A column that is NULL is left out. */
typedef struct tp_step_rows {
    tp_lane_header lane;
    uint32_t dp, tp, rows, tokens;
    uint64_t step, mono_ns;
    const int64_t *handles;
    const uint16_t *counts;
    const int32_t *token_ids;
    const uint8_t *status;
    const uint32_t *position;
    const int32_t *lp_k, *lp_ids, *lp_ranks;
    const float *lp_values;
    uint32_t lp_entries, lp_tokens, extras_bytes;
    const uint32_t *extras_len;
    const uint8_t *extras;
} tp_step_rows;

/* Returns the exact size of the frame. */
size_t tp_step_size(const tp_step_rows *rows);
/* Writes the frame. Returns its size in bytes. */
size_t tp_step_write(const tp_step_rows *rows, uint8_t *out);

#endif
