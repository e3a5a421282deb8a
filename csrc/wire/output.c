/* Reads and writes OutputFrames. */
#include "wire/output.h"

#include "wire/columns.h"

static tp_result read_header(const uint64_t *h, tp_output_view *view) {
    if (h[4] > UINT32_MAX || h[5] > UINT32_MAX) {
        return TP_E_HEADER;
    }
    if (h[6] > TP_MAX_ROWS || h[7] > TP_MAX_TOKENS) {
        return TP_E_LIMIT;
    }
    *view = (tp_output_view){
        .lane = {h[0], h[1], h[2], h[3]},
        .processor = (uint32_t)h[4],
        .client = (uint32_t)h[5],
        .rows = (uint32_t)h[6],
        .tokens = (uint32_t)h[7],
        .mono_ns = h[8],
    };
    return TP_OK;
}

/* Reads the columns of a fixed width. */
static tp_result read_rows(const tp_column *c, tp_output_view *view) {
    const uint32_t rows = view->rows, tokens = view->tokens;
    if (c[TP_OUT_KEYS].size != rows * 8 || c[TP_OUT_TOKENS].size != tokens * 4 ||
        c[TP_OUT_OFFSETS].size != rows * 4) {
        return TP_E_COLUMN;
    }
    view->keys = c[TP_OUT_KEYS].data;
    view->token_ids = c[TP_OUT_TOKENS].data;
    view->offsets = c[TP_OUT_OFFSETS].data;
    TP_TRY(tp_take(&c[TP_OUT_COUNTS], rows, 4, &view->counts));
    TP_TRY(tp_take(&c[TP_OUT_FINISH], rows, 1, &view->finish));
    TP_TRY(tp_take(&c[TP_OUT_STOP_REASON], rows, 4, &view->stop_reason));
    TP_TRY(tp_take(&c[TP_OUT_ERROR_LEN], rows, 2, &view->error_len));
    TP_TRY(tp_take(&c[TP_OUT_TEXT_OFFSET], rows, 4, &view->text_offset));
    TP_TRY(tp_take(&c[TP_OUT_STOP_STRING], rows, 4, &view->stop_string));
    TP_TRY(tp_take(&c[TP_OUT_CACHED], rows, 4, &view->cached));
    TP_TRY(tp_take(&c[TP_OUT_EXTRAS_OFFSET], rows, 8, &view->extras_offset));
    TP_TRY(tp_take(&c[TP_OUT_ERROR_CODE], rows, 1, &view->error_code));
    TP_TRY(tp_take(&c[TP_OUT_ERROR_FIELD], rows, 1, &view->error_field));
    return (view->counts == NULL ? rows : tp_sum_u32(view->counts, rows)) == tokens ? TP_OK : TP_E_COUNTS;
}

/* Reads the columns of bytes. */
static tp_result read_bytes(const tp_column *c, tp_output_view *view) {
    const uint32_t rows = view->rows;
    const uint64_t error_bytes = view->error_len == NULL ? 0 : tp_sum_u16(view->error_len, rows);
    if (c[TP_OUT_ERROR].size != error_bytes) {
        return TP_E_COLUMN;
    }
    view->error = c[TP_OUT_ERROR].data;
    view->error_bytes = (uint32_t)error_bytes;
    TP_TRY(tp_bytes_take(&c[TP_OUT_TEXT_LEN], rows, TP_MAX_TEXT, &view->text_len, &view->text,
                         &view->text_bytes));
    return tp_bytes_take(&c[TP_OUT_EXTRAS_LEN], rows, TP_MAX_EXTRAS, &view->extras_len, &view->extras,
                         &view->extras_bytes);
}

tp_result tp_output_parse(const uint8_t *data, size_t size, tp_output_view *view) {
    uint64_t h[TP_OUT_FIELDS];
    tp_column c[TP_OUT_LAST + 1];
    tp_logprobs lp;
    TP_TRY(tp_columns_read(data, size, TP_KIND_OUTPUT, h, TP_OUT_FIELDS, c, TP_OUT_LAST));
    TP_TRY(read_header(h, view));
    TP_TRY(read_rows(c, view));
    TP_TRY(read_bytes(c, view));
    TP_TRY(tp_logprobs_take(&c[TP_OUT_LP_K], view->rows, view->counts, 4, &lp));
    view->lp_k = lp.k;
    view->lp_ids = lp.ids;
    view->lp_values = lp.values;
    view->lp_ranks = lp.ranks;
    view->lp_entries = lp.entries;
    view->lp_tokens = lp.tokens;
    return TP_OK;
}

static void describe(const tp_output_rows *r, uint64_t *header, tp_part *parts) {
    const uint64_t h[TP_OUT_FIELDS] = {r->lane.instance, r->lane.sender, r->lane.receiver,
                                       r->lane.seq,      r->processor,   r->client,
                                       r->rows,          r->tokens,      r->mono_ns};
    const size_t rows = r->rows;
    const tp_part p[TP_OUT_LAST] = {
        {TP_OUT_KEYS, r->keys, r->keys ? rows * 8 : 0},
        {TP_OUT_COUNTS, r->counts, r->counts ? rows * 4 : 0},
        {TP_OUT_TOKENS, r->token_ids, r->token_ids ? (size_t)r->tokens * 4 : 0},
        {TP_OUT_OFFSETS, r->offsets, r->offsets ? rows * 4 : 0},
        {TP_OUT_FINISH, r->finish, r->finish ? rows : 0},
        {TP_OUT_STOP_REASON, r->stop_reason, r->stop_reason ? rows * 4 : 0},
        {TP_OUT_LP_K, r->lp_k, r->lp_k ? rows * 4 : 0},
        {TP_OUT_LP_IDS, r->lp_ids, r->lp_ids ? (size_t)r->lp_entries * 4 : 0},
        {TP_OUT_LP_VALUES, r->lp_values, r->lp_values ? (size_t)r->lp_entries * 4 : 0},
        {TP_OUT_LP_RANKS, r->lp_ranks, r->lp_ranks ? (size_t)r->lp_tokens * 4 : 0},
        {TP_OUT_ERROR_LEN, r->error_len, r->error_len ? rows * 2 : 0},
        {TP_OUT_ERROR, r->error, r->error ? (size_t)r->error_bytes : 0},
        {TP_OUT_TEXT_LEN, r->text_len, r->text_len ? rows * 4 : 0},
        {TP_OUT_TEXT, r->text, r->text ? (size_t)r->text_bytes : 0},
        {TP_OUT_TEXT_OFFSET, r->text_offset, r->text_offset ? rows * 4 : 0},
        {TP_OUT_STOP_STRING, r->stop_string, r->stop_string ? rows * 4 : 0},
        {TP_OUT_CACHED, r->cached, r->cached ? rows * 4 : 0},
        {TP_OUT_EXTRAS_LEN, r->extras_len, r->extras_len ? rows * 4 : 0},
        {TP_OUT_EXTRAS, r->extras, r->extras ? (size_t)r->extras_bytes : 0},
        {TP_OUT_EXTRAS_OFFSET, r->extras_offset, r->extras_offset ? rows * 8 : 0},
        {TP_OUT_ERROR_CODE, r->error_code, r->error_code ? rows : 0},
        {TP_OUT_ERROR_FIELD, r->error_field, r->error_field ? rows : 0},
    };
    memcpy(header, h, sizeof h);
    memcpy(parts, p, sizeof p);
}

TP_HOT size_t tp_output_size(const tp_output_rows *rows) {
    uint64_t header[TP_OUT_FIELDS];
    tp_part parts[TP_OUT_LAST];
    describe(rows, header, parts);
    return tp_columns_size(header, TP_OUT_FIELDS, parts, TP_OUT_LAST);
}

TP_HOT size_t tp_output_write(const tp_output_rows *rows, uint8_t *out) {
    uint64_t header[TP_OUT_FIELDS];
    tp_part parts[TP_OUT_LAST];
    describe(rows, header, parts);
    return tp_columns_write(TP_KIND_OUTPUT, header, TP_OUT_FIELDS, parts, TP_OUT_LAST, out);
}
