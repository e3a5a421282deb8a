/* Writes all bindings, ranks and clients. */
#include "table/table_save.h"

#include <string.h>

#include "table/extras.h"
#include "table/table_saved.h"
#include "table/table_tail.h"
#include "text/text.h"

/* Where the next bytes go. */
typedef struct sink {
    uint8_t *out; /* NULL: the bytes are only counted */
    size_t size;
} sink;

static void put(sink *s, const void *bytes, size_t size) {
    if (s->out != NULL && size > 0) {
        memcpy(s->out + s->size, bytes, size);
    }
    s->size += size;
}

/* Returns the numbers of a binding, without its parts. */
static tp_saved_binding numbers(const tp_binding *b) {
    tp_saved_binding to;
    memset(&to, 0, sizeof to);
    to.handle = b->handle;
    to.key = b->key;
    to.park_value = b->park_value;
    to.park_step = b->park_step;
    to.park_first = b->park_first;
    to.park_bytes = b->state == TP_PARKED ? b->park_bytes : 0;
    to.park_cause = b->park_cause;
    to.extras_offset = b->extras_offset;
    to.pace_ns = b->pace_ns;
    to.next_ns = b->next_ns;
    to.pace = b->pace;
    to.cached = b->cached;
    to.total = b->total;
    to.sent = b->sent;
    to.base = b->base;
    to.min_tokens = b->min_tokens;
    to.max_tokens = b->max_tokens;
    to.stop_reason = b->stop_reason;
    to.stop_string = b->stop_string;
    to.client = b->client;
    to.flags = b->flags;
    to.state = b->state;
    to.finish = b->finish;
    to.error_code = b->error_code;
    to.error_field = b->error_field;
    return to;
}

static tp_saved_binding saved(const tp_table *t, const tp_binding *b) {
    tp_saved_binding to = numbers(b);
    if (tp_binding_is_open(b) && b->queue_at > 0) {
        to.queued_ns = t->queue[b->queue_at - 1].ns;
    }
    to.stop_count = b->stop_ids == NULL ? 0 : b->stop_count;
    to.error_size = b->error == NULL ? 0 : b->error_size;
    to.error_extras_size = b->error_extras == NULL ? 0 : b->error_extras->size;
    to.parts = b->tokens == NULL ? 0 : TP_SAVED_TOKENS;
    to.parts |= b->state == TP_GONE ? TP_SAVED_GONE : 0;
    if (b->tail != NULL && b->flags & TP_B_LOGPROBS) {
        to.tail_tokens = b->tail->tokens;
        to.tail_entries = b->tail->entries;
    }
    if (b->extras != NULL) {
        to.parts |= TP_SAVED_EXTRAS;
        to.extras_sent = b->extras->offset;
        to.extras_len = b->extras->len;
        to.extras_ready = b->extras->ready;
    }
    if (b->text != NULL) {
        to.parts |= TP_SAVED_TEXT;
        to.text_len = b->text->len;
        to.text_ready = b->text->ready;
        to.text_offset = b->text->offset;
        to.text_ended = b->text->ended;
    }
    return to;
}

static void put_binding(sink *s, const tp_table *t, const tp_binding *b) {
    const tp_saved_binding head = saved(t, b);
    put(s, &head, sizeof head);
    if (head.parts & TP_SAVED_TOKENS) {
        put(s, b->tokens, (size_t)head.total * 4);
    }
    put(s, b->stop_ids, (size_t)head.stop_count * 4);
    if (head.tail_tokens > 0) {
        const tp_tail *tail = b->tail;
        put(s, tail->k + tail->token_head, (size_t)head.tail_tokens * 4);
        put(s, tail->ranks + tail->token_head, (size_t)head.tail_tokens * 4);
        put(s, tail->entries > 0 ? tail->ids + tail->entry_head : NULL, (size_t)head.tail_entries * 4);
        put(s, tail->entries > 0 ? tail->values + tail->entry_head : NULL, (size_t)head.tail_entries * 4);
    }
    if (head.extras_len > 0) {
        put(s, tp_extras_bytes(b->extras), head.extras_len);
    }
    if (head.text_len > 0) {
        put(s, b->text->buffer, head.text_len);
    }
    put(s, b->error, head.error_size);
    if (head.error_extras_size > 0) {
        put(s, b->error_extras->data, head.error_extras_size);
    }
}

static void put_rank(sink *s, const tp_table *t, const tp_rank *rank) {
    const tp_basis *basis = &rank->basis;
    tp_saved_rank head;
    memset(&head, 0, sizeof head);
    head.dp = rank->dp;
    head.last_step = rank->last_step;
    head.any_step = rank->any_step;
    head.instance = basis->instance;
    head.sender = basis->sender;
    head.seq = basis->seq;
    head.rows = basis->rows;
    head.mixed = (uint32_t)basis->mixed;
    put(s, &head, sizeof head);
    for (uint32_t i = 0; i < t->slots; i++) {
        put(s, &rank->slots[i].floor, sizeof rank->slots[i].floor);
    }
    put(s, basis->handles, (size_t)basis->rows * sizeof *basis->handles);
    put(s, basis->position, (size_t)basis->rows * sizeof *basis->position);
}

static void put_client(sink *s, const tp_client *c) {
    const tp_saved_client head = {
        .mono_ns = c->mono_ns, .open = c->open, .crowded = c->crowded, .dirty = c->dirty_count};
    put(s, &head, sizeof head);
    for (uint32_t i = 0; i < c->dirty_count; i++) {
        put(s, &c->dirty[i]->handle, sizeof c->dirty[i]->handle);
    }
}

/* Writes all bindings, and returns their number. */
static uint32_t put_bindings(sink *s, const tp_table *t) {
    uint32_t n = 0;
    for (uint32_t r = 0; r < t->rank_count; r++) {
        for (uint32_t i = 0; i < t->slots; i++) {
            for (const tp_binding *b = t->ranks[r].slots[i].newest; b != NULL; b = b->older, n++) {
                put_binding(s, t, b);
            }
        }
    }
    for (uint32_t c = 0; c < t->client_count; c++) {
        for (uint32_t i = 0; i < t->clients[c].dirty_count; i++) {
            if (t->clients[c].dirty[i]->state == TP_GONE) {
                put_binding(s, t, t->clients[c].dirty[i]);
                n++;
            }
        }
    }
    return n;
}

size_t tp_table_save(const tp_table *t, uint8_t *out) {
    sink s = {out, sizeof(tp_saved_table)};
    for (uint32_t r = 0; r < t->rank_count; r++) {
        put_rank(&s, t, &t->ranks[r]);
    }
    for (uint32_t c = 0; c < t->client_count; c++) {
        put_client(&s, &t->clients[c]);
    }
    tp_saved_table head;
    memset(&head, 0, sizeof head);
    head.magic = TP_SAVED_MAGIC;
    head.binding_bytes = (uint32_t)sizeof(tp_saved_binding);
    head.bindings = put_bindings(&s, t);
    head.slots = t->slots;
    head.ranks = t->rank_count;
    head.clients = t->client_count;
    head.counters = t->counters;
    if (out != NULL) {
        memcpy(out, &head, sizeof head);
    }
    return s.size;
}
