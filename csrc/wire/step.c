/* Reads and writes StepFrames. */
#include "wire/step.h"

#include "wire/columns.h"

static tp_result read_header(const uint64_t *h, tp_step_view *view) {
    if (h[4] >> TP_DP_BITS != 0 || h[5] > UINT32_MAX) {
        return TP_E_HEADER;
    }
    if (h[7] > TP_MAX_ROWS || h[8] > TP_MAX_TOKENS) {
        return TP_E_LIMIT;
    }
    *view = (tp_step_view){
        .lane = {h[0], h[1], h[2], h[3]},
        .dp = (uint32_t)h[4],
        .tp = (uint32_t)h[5],
        .step = h[6],
        .rows = (uint32_t)h[7],
        .tokens = (uint32_t)h[8],
        .mono_ns = h[9],
    };
    return TP_OK;
}

static tp_result read_rows(const tp_column *c, tp_step_view *view) {
    const uint32_t rows = view->rows, tokens = view->tokens;
    view->continues = rows > 0 && c[TP_STEP_HANDLES].data == NULL;
    if ((!view->continues && c[TP_STEP_HANDLES].size != rows * 8) ||
        (view->continues && c[TP_STEP_POSITION].data != NULL) || c[TP_STEP_TOKENS].size != tokens * 4) {
        return TP_E_COLUMN;
    }
    view->handles = c[TP_STEP_HANDLES].data;
    view->token_ids = c[TP_STEP_TOKENS].data;
    TP_TRY(tp_take(&c[TP_STEP_COUNTS], rows, 2, &view->counts));
    TP_TRY(tp_take(&c[TP_STEP_STATUS], rows, 1, &view->status));
    TP_TRY(tp_take(&c[TP_STEP_POSITION], rows, 4, &view->position));
    return (view->counts == NULL ? rows : tp_sum_u16(view->counts, rows)) == tokens ? TP_OK : TP_E_COUNTS;
}

TP_HOT tp_result tp_step_parse(const uint8_t *data, size_t size, tp_step_view *view) {
    uint64_t h[TP_STEP_FIELDS];
    tp_column c[TP_STEP_LAST + 1];
    tp_logprobs lp;
    TP_TRY(tp_columns_read(data, size, TP_KIND_STEP, h, TP_STEP_FIELDS, c, TP_STEP_LAST));
    TP_TRY(read_header(h, view));
    TP_TRY(read_rows(c, view));
    TP_TRY(tp_logprobs_take(&c[TP_STEP_LP_K], view->rows, view->counts, 2, &lp));
    view->lp_k = lp.k;
    view->lp_ids = lp.ids;
    view->lp_values = lp.values;
    view->lp_ranks = lp.ranks;
    view->lp_entries = lp.entries;
    view->lp_tokens = lp.tokens;
    return tp_bytes_take(&c[TP_STEP_EXTRAS_LEN], view->rows, TP_MAX_EXTRAS, &view->extras_len, &view->extras,
                         &view->extras_bytes);
}

static void describe(const tp_step_rows *r, uint64_t *header, tp_part *parts) {
    const uint64_t h[TP_STEP_FIELDS] = {
        r->lane.instance, r->lane.sender, r->lane.receiver, r->lane.seq, r->dp, r->tp,
        r->step,          r->rows,        r->tokens,        r->mono_ns};
    const size_t rows = r->rows;
    const tp_part p[TP_STEP_LAST] = {
        {TP_STEP_HANDLES, r->handles, r->handles ? rows * 8 : 0},
        {TP_STEP_COUNTS, r->counts, r->counts ? rows * 2 : 0},
        {TP_STEP_TOKENS, r->token_ids, r->token_ids ? (size_t)r->tokens * 4 : 0},
        {TP_STEP_STATUS, r->status, r->status ? rows : 0},
        {TP_STEP_POSITION, r->position, r->position ? rows * 4 : 0},
        {TP_STEP_LP_K, r->lp_k, r->lp_k ? rows * 4 : 0},
        {TP_STEP_LP_IDS, r->lp_ids, r->lp_ids ? (size_t)r->lp_entries * 4 : 0},
        {TP_STEP_LP_VALUES, r->lp_values, r->lp_values ? (size_t)r->lp_entries * 4 : 0},
        {TP_STEP_LP_RANKS, r->lp_ranks, r->lp_ranks ? (size_t)r->lp_tokens * 4 : 0},
        {TP_STEP_EXTRAS_LEN, r->extras_len, r->extras_bytes ? rows * 4 : 0},
        {TP_STEP_EXTRAS, r->extras, r->extras_bytes},
    };
    memcpy(header, h, sizeof h);
    memcpy(parts, p, sizeof p);
}

size_t tp_step_size(const tp_step_rows *rows) {
    uint64_t header[TP_STEP_FIELDS];
    tp_part parts[TP_STEP_LAST];
    describe(rows, header, parts);
    return tp_columns_size(header, TP_STEP_FIELDS, parts, TP_STEP_LAST);
}

size_t tp_step_write(const tp_step_rows *rows, uint8_t *out) {
    uint64_t header[TP_STEP_FIELDS];
    tp_part parts[TP_STEP_LAST];
    describe(rows, header, parts);
    return tp_columns_write(TP_KIND_STEP, header, TP_STEP_FIELDS, parts, TP_STEP_LAST, out);
}
