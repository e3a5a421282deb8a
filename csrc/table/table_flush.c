/* Packing what a client has unsent. Walks its dirty bindings once; a binding gives one row, or one
 * per run of equal top-k where its tokens have logprobs. */
#include "table/table_pack.h"

#define LEAST_ANNEX 64u /* bytes of annexes that any frame has room for */

/* Copies what fits of a text, up to the end of a character; returns how many bytes. */
static uint32_t put_text(tp_packed *p, const tp_text *text) {
    const uint64_t used = p->bytes + TP_ROW_BYTES + TP_TEXT_BYTES;
    const uint64_t left = used < p->limit ? p->limit - used : 0;
    uint32_t n = text->ready;
    if (n > left) {
        n = left < 4 ? 4 : (uint32_t)left;
        n = n < text->ready ? n : text->ready;
        while (n < text->ready && (text->buffer[n] & 0xc0) == 0x80) {
            n--;
        }
    }
    memcpy(p->s->text + p->text_bytes, text->buffer, n);
    p->bytes += n + TP_TEXT_BYTES;
    return n;
}

/* Packs what fits of a binding's tokens and its end; returns 1 where nothing is unsent any more. */
static inline int put_tokens(tp_packed *p, tp_binding *b) {
    const uint32_t unsent = b->total - b->sent;
    const uint32_t before = p->rows;
    if (b->flags & TP_B_LOGPROBS && unsent > 0) {
        tp_pack_runs(p, b);
    } else if (tp_pack_fits(p, 0) && (unsent > 0 || b->finish != TP_FINISH_NONE)) {
        tp_pack_row(p, b, tp_pack_affordable(p, unsent, 0));
    }
    if (b->sent < b->total || (b->finish != TP_FINISH_NONE && p->rows == before)) {
        return 0;
    }
    if (b->finish != TP_FINISH_NONE) {
        tp_pack_end(p, b);
    }
    return 1;
}

/* Text goes before the tokens that it belongs to, or with them: who has the tokens has it. */
static int put_with_text(tp_packed *p, tp_binding *b) {
    tp_text *text = b->text;
    const uint32_t row = p->rows;
    const uint32_t n = put_text(p, text);
    const int all = n == text->ready && put_tokens(p, b);
    if (p->rows == row) {
        tp_pack_row(p, b, 0);
    }
    tp_pack_begin_text(p);
    p->s->text_len[row] = n;
    p->s->text_offset[row] = text->offset;
    p->text_bytes += n;
    tp_text_sent(text, n);
    text->charged = text->ready;
    return all;
}

static inline int put_rest(tp_packed *p, tp_binding *b) {
    /* the flag first: b->text is on another cache line */
    return b->flags & TP_B_TEXT && b->text->ready > 0 ? put_with_text(p, b) : put_tokens(p, b);
}

/* Annexes go before the tokens that they came with, or with them. */
static int put_with_annex(tp_packed *p, tp_binding *b) {
    tp_annex *annex = b->annex;
    const uint32_t row = p->rows;
    const uint64_t used = p->bytes + TP_ROW_BYTES + TP_ANNEX_BYTES;
    const uint64_t left = used + LEAST_ANNEX < p->limit ? p->limit - used : LEAST_ANNEX;
    const uint32_t n = annex->ready < left ? annex->ready : (uint32_t)left;
    memcpy(p->s->annex + p->annex_bytes, annex->buffer, n);
    p->annex_bytes += n;
    p->bytes += n + TP_ANNEX_BYTES;
    const int room = n == annex->ready && p->bytes + TP_ROW_BYTES + 4 <= p->limit;
    const int all = room && put_rest(p, b);
    if (p->rows == row) {
        tp_pack_row(p, b, 0);
    }
    if (!p->with_annex) {
        memset(p->s->annex_len, 0, p->most * sizeof *p->s->annex_len);
        memset(p->s->annex_offset, 0, p->most * sizeof *p->s->annex_offset);
        p->with_annex = 1;
    }
    p->s->annex_len[row] = n;
    p->s->annex_offset[row] = annex->offset;
    tp_annex_sent(annex, n);
    annex->charged = annex->ready;
    if (annex->len == 0) {
        b->flags &= (uint16_t)~TP_B_ANNEX;
    }
    return all;
}

/* Packs what fits of a binding; returns 1 where nothing of it is unsent any more. */
static inline int put(tp_packed *p, tp_binding *b) {
    return b->flags & TP_B_ANNEX && b->annex->ready > 0 ? put_with_annex(p, b) : put_rest(p, b);
}

/* Packs a binding of which only a token and a short text, or none, is unsent: nearly each one.
 * 0: it is none of these, and nothing happened. */
static inline int put_plain(tp_packed *p, tp_binding *b) {
    tp_text *text = b->flags & TP_B_TEXT ? b->text : NULL;
    const uint32_t n = text == NULL ? 0 : text->ready;
    if (b->total - b->sent != 1 || b->finish != TP_FINISH_NONE || b->state == TP_GONE ||
        b->flags & (TP_B_LOGPROBS | TP_B_URGENT | TP_B_HOLD | TP_B_ANNEX) || n > TP_WORD_SHORT ||
        p->bytes + TP_ROW_BYTES + 4 + TP_TEXT_BYTES + TP_WORD_SHORT > p->limit) {
        return 0;
    }
    if (n > 0) {
        tp_pack_begin_text(p);
        p->s->text_len[p->rows] = n;
        p->s->text_offset[p->rows] = text->offset;
        memcpy(p->s->text + p->text_bytes, text->buffer, TP_WORD_SHORT); /* there is room for it */
        p->text_bytes += n;
        p->bytes += n + TP_TEXT_BYTES;
        tp_text_sent(text, n);
        text->charged = text->ready;
    }
    tp_pack_row(p, b, 1);
    b->flags &= (uint16_t)~TP_B_DIRTY;
    return 1;
}

static void settle(tp_table *t, tp_client *c, tp_binding *b) {
    if (b->flags & TP_B_URGENT) {
        c->urgent--;
    }
    if (b->flags & TP_B_HOLD) {
        tp_table_event(t, TP_EV_SENT, b->handle, 0, 0, 0);
    }
    b->flags &= (uint16_t)~(TP_B_DIRTY | TP_B_URGENT | TP_B_HOLD | TP_B_LOGPROBS);
    if (b->state == TP_GONE) {
        tp_binding_recycle(t, b);
    } else if (b->finish != TP_FINISH_NONE) {
        tp_binding_free_output(b);
    }
}

static void put_all(tp_table *t, tp_packed *p, int urgent_only) {
    tp_client *c = p->client;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < c->dirty_count; i++) {
        tp_binding *b = c->dirty[i];
        if (i + 8 < c->dirty_count) {
            __builtin_prefetch(c->dirty[i + 8], 1);
        }
        if (i + 4 < c->dirty_count) {
            const tp_binding *soon = c->dirty[i + 4];
            if (soon->tokens != NULL) {
                __builtin_prefetch(soon->tokens + soon->sent);
            }
            if (soon->flags & TP_B_TEXT) {
                __builtin_prefetch(soon->text, 1);
                __builtin_prefetch(soon->text->few);
            }
        }
        if ((urgent_only && !(b->flags & TP_B_URGENT)) || p->rows >= TP_MAX_ROWS / 2) {
            c->dirty[kept++] = b;
        } else if (!put_plain(p, b)) {
            if (tp_pack_fits(p, 0) && put(p, b)) {
                settle(t, c, b);
            } else {
                c->dirty[kept++] = b;
            }
        }
    }
    c->dirty_count = kept;
}

tp_result tp_table_flush(tp_table *t, uint32_t client, uint64_t max_bytes, int urgent_only,
                         tp_output_rows *rows) {
    t->event_count = 0;
    memset(rows, 0, sizeof *rows);
    if (client >= t->client_count || t->clients[client].dirty_count == 0) {
        return TP_OK;
    }
    tp_client *c = &t->clients[client];
    tp_packed p = {.s = &t->space, .client = c, .limit = max_bytes};
    if (p.limit > TP_MAX_TOKENS) { /* in bytes, so far below what a frame may hold */
        p.limit = TP_MAX_TOKENS;
    }
    const uint64_t runs = c->dirty_count + (c->lp_tokens > 0 ? c->tokens : 0);
    const uint64_t most_rows = p.limit / TP_ROW_BYTES + 2;
    const uint64_t most_tokens = p.limit / 4 + 2;
    p.most = runs < most_rows ? runs : most_rows;
    if (tp_table_reserve_events(t, c->urgent) != TP_OK ||
        tp_space_reserve(p.s, p.most, c->tokens < most_tokens ? c->tokens : most_tokens, c->lp_entries,
                         c->error_bytes, (c->text_bytes < p.limit ? c->text_bytes : p.limit) + TP_WORD_SHORT,
                         c->annex_bytes < p.limit ? c->annex_bytes : p.limit + LEAST_ANNEX) != TP_OK) {
        return TP_E_MEMORY;
    }
    put_all(t, &p, urgent_only);
    c->tokens -= p.tokens;
    c->lp_entries -= p.entries;
    c->lp_tokens -= p.scored;
    c->text_bytes -= p.text_bytes;
    c->annex_bytes -= p.annex_bytes;
    tp_space *s = p.s;
    *rows = (tp_output_rows){
        .processor = t->processor,
        .client = client,
        .rows = p.rows,
        .tokens = p.tokens,
        .mono_ns = c->mono_ns,
        .keys = s->keys,
        .counts = p.counted ? s->counts : NULL,
        .token_ids = p.tokens > 0 ? s->token_ids : NULL,
        .offsets = s->offsets,
        .finish = p.finished ? s->finish : NULL,
        .stop_reason = p.stopped ? s->stop_reason : NULL,
        .lp_k = p.with_k ? s->lp_k : NULL,
        .lp_ids = p.with_k ? s->lp_ids : NULL,
        .lp_values = p.with_k ? s->lp_values : NULL,
        .lp_ranks = p.with_k ? s->lp_ranks : NULL,
        .error_len = p.error_bytes > 0 ? s->error_len : NULL,
        .error = p.error_bytes > 0 ? s->error : NULL,
        .text_len = p.text_bytes > 0 ? s->text_len : NULL,
        .text = p.text_bytes > 0 ? s->text : NULL,
        .text_offset = p.text_bytes > 0 ? s->text_offset : NULL,
        .stop_string = p.strings ? s->stop_string : NULL,
        .cached = p.cached ? s->cached : NULL,
        .lp_entries = p.entries,
        .lp_tokens = p.scored,
        .error_bytes = p.error_bytes,
        .text_bytes = p.text_bytes,
        .annex_len = p.annex_bytes > 0 ? s->annex_len : NULL,
        .annex = p.annex_bytes > 0 ? s->annex : NULL,
        .annex_offset = p.annex_bytes > 0 ? s->annex_offset : NULL,
        .annex_bytes = p.annex_bytes,
        .error_code = p.coded ? s->error_code : NULL,
        .error_field = p.blamed ? s->error_field : NULL,
    };
    if (tp_client_bytes(c) <= t->merge_limit) {
        c->crowded = 0;
    }
    if (c->dirty_count == 0) {
        c->mono_ns = 0;
    }
    return TP_OK;
}
