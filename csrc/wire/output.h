/* The OutputFrame: the rows that one flush sends to one client.
 * Its header is [instance, sender, receiver, seq, processor, client, rows, tokens, mono_ns]. mono_ns is the
 * time at which the newest step in the frame was published, or 0. */
#ifndef TP_OUTPUT_H
#define TP_OUTPUT_H

#include "wire/layout.h"
#include "wire/result.h"

#define TP_OUT_FIELDS 9 /* integers in its header */

/* A parsed OutputFrame. Its columns are like those of a tp_step_view. */
typedef struct tp_output_view {
    tp_lane_header lane;
    uint32_t processor, client, rows, tokens;
    uint64_t mono_ns;
    const uint8_t *keys, *counts, *token_ids, *offsets, *finish, *stop_reason;
    const uint8_t *lp_k, *lp_ids, *lp_values, *lp_ranks;
    const uint8_t *error_len, *error, *text_len, *text, *text_offset, *stop_string, *cached;
    const uint8_t *extras_len, *extras, *extras_offset, *error_code, *error_field;
    uint32_t lp_entries, lp_tokens, error_bytes, text_bytes, extras_bytes;
} tp_output_view;

/* Reads a frame that lies in the caller's memory. */
tp_result tp_output_parse(const uint8_t *data, size_t size, tp_output_view *view);

/* Rows to write. A column that is NULL is left out. */
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
    uint32_t lp_entries, lp_tokens, error_bytes, text_bytes, extras_bytes;
    const uint32_t *extras_len;
    const uint8_t *extras;
    const uint64_t *extras_offset;
    const uint8_t *error_code, *error_field;
} tp_output_rows;

/* Returns the exact size of the frame. */
size_t tp_output_size(const tp_output_rows *rows);
/* Writes the frame. Returns its size in bytes. */
size_t tp_output_write(const tp_output_rows *rows, uint8_t *out);

#endif
