/* Packs the unsent output of a client in one pass over its list. A binding gives one row. If its tokens have
 * logprobs, it gives one row for each series of tokens with equal top-k. */
#include "table/table_flush.h"

#include <stdlib.h>

#include "table/table_client.h"
#include "table/table_events.h"
#include "table/table_pack.h"
#include "table/table_pool.h"

#define LEAST_EXTRAS 64u /* bytes of extras for which any frame has room */

/* Copies the part of a text that fits, up to the end of a character. Returns the number of copied bytes. */
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

/* Packs a binding's tokens and its end, if they fit. Returns 1 if all is packed. */
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

/* Text is sent before its tokens, or with them. So a client that has the tokens also has the text. */
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
    /* the flag is tested first: b->text is on another cache line */
    return b->flags & TP_B_TEXT && b->text->ready > 0 ? put_with_text(p, b) : put_tokens(p, b);
}

/* Extras are sent before their tokens, or with them. */
static int put_with_extras(tp_packed *p, tp_binding *b) {
    tp_extras *extras = b->extras;
    const uint32_t row = p->rows;
    const uint64_t used = p->bytes + TP_ROW_BYTES + TP_EXTRAS_BYTES;
    const uint64_t left = used + LEAST_EXTRAS < p->limit ? p->limit - used : LEAST_EXTRAS;
    const uint32_t n = extras->ready < left ? extras->ready : (uint32_t)left;
    memcpy(p->s->extras + p->extras_bytes, tp_extras_bytes(extras), n);
    p->extras_bytes += n;
    p->bytes += n + TP_EXTRAS_BYTES;
    const int room = n == extras->ready && p->bytes + TP_ROW_BYTES + 4 <= p->limit;
    const int all = room && put_rest(p, b);
    if (p->rows == row) {
        tp_pack_row(p, b, 0);
    }
    if (!p->with_extras) {
        memset(p->s->extras_len, 0, p->most * sizeof *p->s->extras_len);
        memset(p->s->extras_offset, 0, p->most * sizeof *p->s->extras_offset);
        p->with_extras = 1;
    }
    p->s->extras_len[row] = n;
    p->s->extras_offset[row] = extras->offset;
    tp_extras_sent(extras, n);
    extras->charged = extras->ready;
    if (extras->len == 0) {
        b->flags &= (uint16_t)~TP_B_EXTRAS;
    }
    return all;
}

/* Packs the part of a binding that fits. Returns 1 if all is packed. */
static inline int put(tp_packed *p, tp_binding *b) {
    return b->flags & TP_B_EXTRAS && b->extras->ready > 0 ? put_with_extras(p, b) : put_rest(p, b);
}

/* Packs a binding that has one unsent token and at most a short unsent text. Most bindings are so. 0: the
 * binding has other unsent output, and nothing has changed. */
static inline int put_plain(tp_packed *p, tp_binding *b) {
    tp_text *text = b->flags & TP_B_TEXT ? b->text : NULL;
    const uint32_t n = text == NULL ? 0 : text->ready;
    if (b->total - b->sent != 1 || b->finish != TP_FINISH_NONE || b->state == TP_GONE ||
        b->flags & (TP_B_LOGPROBS | TP_B_URGENT | TP_B_HOLD | TP_B_EXTRAS) || n > TP_WORD_SHORT ||
        p->bytes + TP_ROW_BYTES + 4 + TP_TEXT_BYTES + TP_WORD_SHORT > p->limit) {
        return 0;
    }
    if (n > 0) {
        tp_pack_begin_text(p);
        p->s->text_len[p->rows] = n;
        p->s->text_offset[p->rows] = text->offset;
        memcpy(p->s->text + p->text_bytes, text->buffer,
               TP_WORD_SHORT); /* a copy of constant size is faster, and there is room */
        p->text_bytes += n;
        p->bytes += n + TP_TEXT_BYTES;
        tp_text_sent(text, n);
        text->charged = text->ready;
    }
    tp_pack_row(p, b, 1);
    b->flags &= (uint16_t)~TP_B_DIRTY;
    return 1;
}

/* Handles a binding of which all is packed. */
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

/* Packs the bindings in the client's list. A binding that still has unsent output stays in the list. */
static TP_HOT void put_all(tp_table *t, tp_packed *p, int urgent_only) {
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

/* Makes room for the output that may be packed. */
static tp_result reserve(tp_table *t, tp_packed *p) {
    const tp_client *c = p->client;
    const uint64_t runs = c->dirty_count + (c->lp_tokens > 0 ? c->tokens : 0);
    const uint64_t most_rows = p->limit / TP_ROW_BYTES + 2;
    const uint64_t most_tokens = p->limit / 4 + 2;
    p->most = runs < most_rows ? runs : most_rows;
    const tp_space_need need = {
        .rows = p->most,
        .tokens = c->tokens < most_tokens ? c->tokens : most_tokens,
        .entries = c->lp_entries,
        .error = c->error_bytes,
        .text = (c->text_bytes < p->limit ? c->text_bytes : p->limit) + TP_WORD_SHORT,
        .extras = c->extras_bytes < p->limit ? c->extras_bytes : p->limit + LEAST_EXTRAS,
    };
    TP_TRY(tp_table_reserve_events(t, c->urgent));
    return tp_space_reserve(p->s, &need);
}

/* Takes the packed output off the client's account. */
static void discharge(const tp_table *t, const tp_packed *p) {
    tp_client *c = p->client;
    c->tokens -= p->tokens;
    c->lp_entries -= p->entries;
    c->lp_tokens -= p->scored;
    c->text_bytes -= p->text_bytes;
    c->extras_bytes -= p->extras_bytes;
    if (tp_client_bytes(c) <= t->merge_limit) {
        c->crowded = 0;
    }
    if (c->dirty_count == 0) {
        c->mono_ns = 0;
    }
}

/* Returns the packed columns. A column in which every entry is the default is NULL. */
static tp_output_rows columns_of(const tp_table *t, uint32_t client, const tp_packed *p) {
    const tp_space *s = p->s;
    return (tp_output_rows){
        .processor = t->processor,
        .client = client,
        .rows = p->rows,
        .tokens = p->tokens,
        .mono_ns = p->client->mono_ns,
        .keys = s->keys,
        .counts = p->counted ? s->counts : NULL,
        .token_ids = p->tokens > 0 ? s->token_ids : NULL,
        .offsets = s->offsets,
        .finish = p->finished ? s->finish : NULL,
        .stop_reason = p->stopped ? s->stop_reason : NULL,
        .lp_k = p->with_k ? s->lp_k : NULL,
        .lp_ids = p->with_k ? s->lp_ids : NULL,
        .lp_values = p->with_k ? s->lp_values : NULL,
        .lp_ranks = p->with_k ? s->lp_ranks : NULL,
        .error_len = p->error_bytes > 0 ? s->error_len : NULL,
        .error = p->error_bytes > 0 ? s->error : NULL,
        .text_len = p->text_bytes > 0 ? s->text_len : NULL,
        .text = p->text_bytes > 0 ? s->text : NULL,
        .text_offset = p->text_bytes > 0 ? s->text_offset : NULL,
        .stop_string = p->strings ? s->stop_string : NULL,
        .cached = p->cached ? s->cached : NULL,
        .lp_entries = p->entries,
        .lp_tokens = p->scored,
        .error_bytes = p->error_bytes,
        .text_bytes = p->text_bytes,
        .extras_len = p->extras_bytes > 0 ? s->extras_len : NULL,
        .extras = p->extras_bytes > 0 ? s->extras : NULL,
        .extras_offset = p->extras_bytes > 0 ? s->extras_offset : NULL,
        .extras_bytes = p->extras_bytes,
        .error_code = p->coded ? s->error_code : NULL,
        .error_field = p->blamed ? s->error_field : NULL,
    };
}

void tp_table_keep_flush(tp_table *t, uint32_t client, const tp_output_rows *rows) {
    tp_client *c = &t->clients[client];
    c->kept = *rows;
    c->kept_space = t->space;
    c->kept_events = t->events;
    c->kept_event_count = t->event_count;
    c->kept_event_capacity = t->event_capacity;
    t->space = (tp_space){.keys = NULL};
    t->events = NULL;
    t->event_count = t->event_capacity = 0;
}

/* Takes back what was kept. */
static void take_kept(tp_table *t, tp_client *c, tp_output_rows *rows) {
    tp_space_free(&t->space);
    free(t->events);
    *rows = c->kept;
    t->space = c->kept_space;
    t->events = c->kept_events;
    t->event_count = c->kept_event_count;
    t->event_capacity = c->kept_event_capacity;
    c->kept.rows = 0;
    c->kept_space = (tp_space){.keys = NULL};
    c->kept_events = NULL;
}

TP_HOT tp_result tp_table_flush(tp_table *t, uint32_t client, uint64_t max_bytes, int urgent_only,
                                tp_output_rows *rows) {
    t->event_count = 0;
    *rows = (tp_output_rows){.rows = 0};
    if (client >= t->client_count || !tp_client_is_dirty(&t->clients[client])) {
        return TP_OK;
    }
    if (t->clients[client].kept.rows > 0) {
        take_kept(t, &t->clients[client], rows);
        return TP_OK;
    }
    /* the limit in bytes keeps the number of rows far below the limit of a frame */
    tp_packed p = {.s = &t->space,
                   .client = &t->clients[client],
                   .limit = max_bytes < TP_MAX_TOKENS ? max_bytes : TP_MAX_TOKENS};
    TP_TRY(reserve(t, &p));
    put_all(t, &p, urgent_only);
    *rows = columns_of(t, client, &p);
    discharge(t, &p);
    return TP_OK;
}
