/* Checks rows one by one. Few steps need it. */
#include "pack/packer_repair.h"

#include <string.h>

/* Where a row begins in each array, of the input or of the scratch. */
typedef struct {
    size_t token, entry, rank;
} cursor;

/* Returns how many tokens of a row are sent: all, or only those before a placeholder. -1: the row is bad.
 * Some engines write a negative number in place of a token. It is a placeholder if the status is not
 * TP_ROW_OK. */
static int64_t kept_tokens(const tp_packer *p, const tp_array *tokens, size_t at, uint32_t count,
                           uint8_t status) {
    for (uint32_t j = 0; j < count; j++) {
        const int64_t v = tp_array_at(tokens, at + j);
        if (v < 0 && status != TP_ROW_OK) {
            return j;
        }
        if (v < 0 || v > (int64_t)p->max_token) {
            return -1;
        }
    }
    return count;
}

static int all_fit(const tp_array *a, size_t at, size_t n) {
    for (size_t i = at; i < at + n; i++) {
        const int64_t v = tp_array_at(a, i);
        if (v != (int32_t)v) {
            return 0;
        }
    }
    return 1;
}

static void copy(int32_t *to, const tp_array *a, size_t at, size_t n) {
    for (size_t i = 0; i < n; i++) {
        to[i] = (int32_t)tp_array_at(a, at + i);
    }
}

/* Takes the repaired rows of the scratch as the rows to send. */
static void use_scratch(const tp_scratch *s, const cursor *end, tp_step_rows *rows) {
    rows->counts = s->counts;
    rows->status = s->status;
    rows->token_ids = s->token_ids;
    rows->tokens = (uint32_t)end->token;
    rows->lp_k = end->entry != 0 ? rows->lp_k : NULL;
    rows->lp_ids = s->lp_ids;
    rows->lp_values = s->lp_values;
    rows->lp_ranks = s->lp_ranks;
    rows->lp_entries = (uint32_t)end->entry;
    rows->lp_tokens = (uint32_t)end->rank;
}

uint64_t tp_packer_repair(tp_packer *p, const tp_step_input *in, tp_step_rows *rows, size_t *n_again) {
    tp_scratch *s = &p->scratch;
    const int logprobs = rows->lp_k != NULL;
    cursor from = {0, 0, 0}, to = {0, 0, 0};
    uint64_t bad = 0;
    for (size_t i = 0; i < in->handles.n; i++) {
        const uint32_t count = rows->counts == NULL ? 1 : rows->counts[i];
        const int64_t k = logprobs ? rows->lp_k[i] : -1;
        const size_t per_token = (size_t)(k + 1), has_rank = k >= 0;
        uint8_t status = rows->status == NULL ? TP_ROW_OK : rows->status[i];
        int64_t kept = kept_tokens(p, &in->tokens, from.token, count, status);
        if (kept < 0 || !all_fit(&in->lp_ids, from.entry, (size_t)kept * per_token) ||
            !all_fit(&in->lp_ranks, from.rank, (size_t)kept * has_rank)) {
            if (status == TP_ROW_DRAINED) {
                s->again[(*n_again)++] = s->handles[i];
            }
            kept = 0;
            status = TP_ROW_BAD_TOKEN;
            bad++;
        }
        const size_t n = (size_t)kept;
        copy(s->token_ids + to.token, &in->tokens, from.token, n);
        if (n * per_token != 0) {
            copy(s->lp_ids + to.entry, &in->lp_ids, from.entry, n * per_token);
            memcpy(s->lp_values + to.entry, in->lp_values.data + 4 * from.entry, 4 * n * per_token);
            copy(s->lp_ranks + to.rank, &in->lp_ranks, from.rank, n);
        }
        s->counts[i] = (uint16_t)n;
        s->status[i] = status;
        from.token += count;
        from.entry += count * per_token;
        from.rank += count * has_rank;
        to.token += n;
        to.entry += n * per_token;
        to.rank += n * has_rank;
    }
    use_scratch(s, &to, rows);
    return bad;
}
