/* Any bytes as a frame, a control value and an acknowledgement. What is a frame is read to its last entry. */
#include "input.h"

#include "wire/envelope.h"
#include "wire/msgpack.h"
#include "wire/output.h"
#include "wire/step.h"

#include <stdlib.h>

static uint64_t sum(const uint8_t *data, size_t size) {
    uint64_t total = 0;
    for (size_t i = 0; data != NULL && i < size; i++) {
        total += data[i];
    }
    return total;
}

static volatile uint64_t sink;

static void read_step(const uint8_t *data, size_t size) {
    tp_step_view v;
    if (tp_step_parse(data, size, &v) != TP_OK) {
        return;
    }
    const size_t rows = v.rows;
    CHECK(rows <= TP_MAX_ROWS && v.tokens <= TP_MAX_TOKENS);
    sink += sum(v.handles, rows * 8) + sum(v.counts, rows * 2) + sum(v.token_ids, v.tokens * 4ul) +
            sum(v.status, rows) + sum(v.position, rows * 4) + sum(v.lp_k, rows * 4) +
            sum(v.lp_ids, v.lp_entries * 4ul) + sum(v.lp_values, v.lp_entries * 4ul) +
            sum(v.lp_ranks, v.lp_tokens * 4ul) + sum(v.extras_len, rows * 4) + sum(v.extras, v.extras_bytes);
}

static void read_output(const uint8_t *data, size_t size) {
    tp_output_view v;
    if (tp_output_parse(data, size, &v) != TP_OK) {
        return;
    }
    const size_t rows = v.rows;
    sink += sum(v.keys, rows * 8) + sum(v.counts, rows * 4) + sum(v.token_ids, v.tokens * 4ul) +
            sum(v.offsets, rows * 4) + sum(v.finish, rows) + sum(v.stop_reason, rows * 4) +
            sum(v.lp_k, rows * 4) + sum(v.lp_ids, v.lp_entries * 4ul) + sum(v.lp_values, v.lp_entries * 4ul) +
            sum(v.lp_ranks, v.lp_tokens * 4ul) + sum(v.error_len, rows * 2) + sum(v.error, v.error_bytes) +
            sum(v.text_len, rows * 4) + sum(v.text, v.text_bytes) + sum(v.text_offset, rows * 4) +
            sum(v.stop_string, rows * 4) + sum(v.cached, rows * 4) + sum(v.extras_len, rows * 4) +
            sum(v.extras, v.extras_bytes) + sum(v.extras_offset, rows * 8) + sum(v.error_code, rows) +
            sum(v.error_field, rows);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint32_t kind;
    uint64_t applied;
    tp_lane_header lane;
    (void)tp_frame_peek(data, size, &kind, &lane);
    (void)tp_ack_read(data, size, &lane, &applied);
    (void)tp_value_check(data, size, 8);
    read_step(data, size);
    read_output(data, size);
    return 0;
}
