/* Packs the data that only some rows have. */
#include "table/table_pack.h"

#include "table/table_tail.h"

void tp_pack_counts(tp_packed *p) {
    for (uint64_t i = 0; i < p->most; i++) {
        p->s->counts[i] = 1;
    }
    p->counted = 1;
}

void tp_pack_end(tp_packed *p, const tp_binding *b) {
    tp_space *s = p->s;
    const uint32_t row = p->rows - 1;
    tp_pack_begin(p, &p->finished, s->finish, TP_FINISH_NONE, sizeof *s->finish);
    s->finish[row] = b->finish;
    if (b->stop_reason != TP_NO_STOP) {
        tp_pack_begin(p, &p->stopped, s->stop_reason, 0xff, sizeof *s->stop_reason);
        s->stop_reason[row] = b->stop_reason;
    }
    if (b->cached > 0) {
        tp_pack_begin(p, &p->cached, s->cached, 0, sizeof *s->cached);
        s->cached[row] = b->cached;
    }
    if (b->stop_string >= 0) {
        tp_pack_begin(p, &p->strings, s->stop_string, 0xff, sizeof *s->stop_string);
        s->stop_string[row] = b->stop_string;
    }
    if (b->error_code != TP_ERROR_NONE) {
        tp_pack_begin(p, &p->coded, s->error_code, TP_ERROR_NONE, sizeof *s->error_code);
        s->error_code[row] = b->error_code;
    }
    if (b->error_size > 0) {
        tp_pack_begin(p, &p->erred, s->error_len, 0, sizeof *s->error_len);
        memcpy(s->error + p->error_bytes, b->error, b->error_size);
        s->error_len[row] = b->error_size;
        p->error_bytes += b->error_size;
        p->bytes += b->error_size;
        p->client->error_bytes -= b->error_size;
    }
    if (b->error_field > 0) {
        tp_pack_begin(p, &p->blamed, s->error_field, 0, sizeof *s->error_field);
        s->error_field[row] = b->error_field;
    }
}

void tp_pack_runs(tp_packed *p, tp_binding *b) {
    tp_tail *tail = b->tail;
    const int32_t *ks = tail->k + tail->token_head;
    uint32_t token = 0, entry = 0;
    while (token < tail->tokens) {
        const int32_t k = ks[token];
        uint32_t n = 1;
        while (token + n < tail->tokens && ks[token + n] == k) {
            n++;
        }
        if (!tp_pack_fits(p, (uint64_t)(k + 1))) {
            break;
        }
        n = tp_pack_affordable(p, n, (uint64_t)(k + 1));
        tp_pack_row(p, b, n);
        if (k >= 0) {
            tp_pack_begin(p, &p->with_k, p->s->lp_k, 0xff, sizeof *p->s->lp_k);
            p->s->lp_k[p->rows - 1] = k;
            const uint32_t entries = (uint32_t)(k + 1) * n;
            memcpy(p->s->lp_ids + p->entries, tail->ids + tail->entry_head + entry, (size_t)entries * 4);
            memcpy(p->s->lp_values + p->entries, tail->values + tail->entry_head + entry,
                   (size_t)entries * 4);
            memcpy(p->s->lp_ranks + p->scored, tail->ranks + tail->token_head + token, (size_t)n * 4);
            p->entries += entries;
            p->scored += n;
            p->bytes += (uint64_t)entries * 8 + (uint64_t)n * 4;
            entry += entries;
        }
        token += n;
    }
    tp_tail_shift(tail, token, entry);
}
