/* Frames to views and rows to frames, in the caller's memory. No Python, no allocation, no clock. */
#ifndef TP_FRAME_H
#define TP_FRAME_H

#include "wire/layout.h"

/* Reads only kind, version and the lane header. *kind is set also where the version is unknown. */
tp_result tp_frame_peek(const uint8_t *data, size_t size, uint32_t *kind, tp_lane_header *lane);

/* Reads an acknowledgement of a lane (docs/lanes.md) as we write it; TP_E_MSGPACK where it is written
 * in another way, or is something else. */
tp_result tp_ack_read(const uint8_t *data, size_t size, tp_lane_header *lane, uint64_t *applied);

/* ---- StepFrame: header [instance, sender, receiver, seq, dp, tp, step, rows, tokens, mono_ns] ---- */

/* A parsed StepFrame. Columns point into the frame and are unaligned: read them with tp_load_*.
 * NULL is an absent column (its default holds). Lengths were checked against rows and tokens,
 * counts were summed, logprob columns fit one another. Handles, token values and status values
 * were NOT judged: a bad row harms one request, so that is the table's business. */
typedef struct tp_step_view {
    tp_lane_header lane;
    uint32_t dp, tp, rows, tokens;
    uint64_t step, mono_ns;
    const uint8_t *handles, *counts, *token_ids, *status, *position;
    const uint8_t *lp_k, *lp_ids, *lp_values, *lp_ranks;
    const uint8_t *annex_len, *annex;
    uint32_t lp_entries, lp_tokens, annex_bytes;
    int continues; /* handles and position are NULL: those of the frame before, moved on */
} tp_step_view;

tp_result tp_step_parse(const uint8_t *data, size_t size, tp_step_view *view);

/* Rows to write. NULL columns are left out. Aligned arrays of the column's own type. */
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
    uint32_t lp_entries, lp_tokens, annex_bytes;
    const uint32_t *annex_len;
    const uint8_t *annex;
} tp_step_rows;

size_t tp_step_size(const tp_step_rows *rows);                /* exact */
size_t tp_step_write(const tp_step_rows *rows, uint8_t *out); /* returns the bytes written */

/* ---- OutputFrame: header [instance, sender, receiver, seq, processor, client, rows, tokens, mono_ns]
 * mono_ns: when the newest step in it was published, 0 if none ---- */

typedef struct tp_output_view {
    tp_lane_header lane;
    uint32_t processor, client, rows, tokens;
    uint64_t mono_ns;
    const uint8_t *keys, *counts, *token_ids, *offsets, *finish, *stop_reason;
    const uint8_t *lp_k, *lp_ids, *lp_values, *lp_ranks;
    const uint8_t *error_len, *error, *text_len, *text, *text_offset, *stop_string, *cached;
    const uint8_t *annex_len, *annex, *annex_offset;
    uint32_t lp_entries, lp_tokens, error_bytes, text_bytes, annex_bytes;
} tp_output_view;

tp_result tp_output_parse(const uint8_t *data, size_t size, tp_output_view *view);

typedef struct tp_output_rows {
    tp_lane_header lane;
    uint32_t processor, client, rows, tokens;
    uint64_t mono_ns;
    const uint64_t *keys;
    const uint32_t *counts;
    const int32_t *token_ids;
    const uint32_t *offsets;
    const uint8_t *finish;
    const int32_t *stop_reason;
    const int32_t *lp_k, *lp_ids, *lp_ranks;
    const float *lp_values;
    const uint16_t *error_len;
    const uint8_t *error;
    const uint32_t *text_len, *text_offset;
    const uint8_t *text;
    const int32_t *stop_string;
    const uint32_t *cached;
    uint32_t lp_entries, lp_tokens, error_bytes, text_bytes, annex_bytes;
    const uint32_t *annex_len;
    const uint8_t *annex;
    const uint64_t *annex_offset;
} tp_output_rows;

size_t tp_output_size(const tp_output_rows *rows);
size_t tp_output_write(const tp_output_rows *rows, uint8_t *out);

#endif
