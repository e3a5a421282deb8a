/* Reads a saved table. Each length is checked before it is used. */
#include "table/table_load.h"

#include <stdlib.h>
#include <string.h>

#include "buffer.h"
#include "table/extras.h"
#include "table/table.h"
#include "table/table_client.h"
#include "table/table_pool.h"
#include "table/table_queue.h"
#include "table/table_saved.h"
#include "table/table_tail.h"

/* The bytes that are not read yet. */
typedef struct source {
    const uint8_t *at;
    size_t left;
} source;

static tp_result take(source *s, void *to, uint64_t size) {
    if (size > s->left) {
        return TP_E_TRUNCATED;
    }
    if (size > 0) {
        memcpy(to, s->at, (size_t)size);
        s->at += size;
        s->left -= (size_t)size;
    }
    return TP_OK;
}

/* Reads an array into new memory with room for `room` bytes, of which there is at least one. */
static tp_result take_new(source *s, void *array, uint64_t size, uint64_t room) {
    if (size > s->left) { /* before the allocation, so that a wrong length allocates nothing */
        return TP_E_TRUNCATED;
    }
    void *made = malloc((size_t)room > 0 ? (size_t)room : 1);
    if (made == NULL) {
        return TP_E_MEMORY;
    }
    memcpy(array, &made, sizeof made);
    return take(s, made, size);
}

static tp_result take_tail(source *s, tp_binding *b, const tp_saved_binding *from) {
    const uint64_t tokens = from->tail_tokens, entries = from->tail_entries;
    if (tokens > (uint64_t)from->total - from->sent || tokens * 8 > s->left || entries * 8 > s->left) {
        return TP_E_LOGPROBS;
    }
    if (!(from->flags & TP_B_LOGPROBS)) {
        return tokens == 0 && entries == 0 ? TP_OK : TP_E_LOGPROBS;
    }
    tp_tail *tail = b->tail = calloc(1, sizeof *tail);
    if (tail == NULL) {
        return TP_E_MEMORY;
    }
    const tp_growing by_token[] = {TP_GROWING(tail->k), TP_GROWING(tail->ranks)};
    const tp_growing by_entry[] = {TP_GROWING(tail->ids), TP_GROWING(tail->values)};
    TP_TRY(tp_buffers_grow(by_token, 2, &tail->token_capacity, tokens));
    TP_TRY(tp_buffers_grow(by_entry, 2, &tail->entry_capacity, entries));
    TP_TRY(take(s, tail->k, tokens * 4));
    TP_TRY(take(s, tail->ranks, tokens * 4));
    TP_TRY(take(s, tail->ids, entries * 4));
    TP_TRY(take(s, tail->values, entries * 4));
    uint64_t sum = 0;
    for (uint32_t i = 0; i < tokens; i++) {
        if (tail->k[i] < -1) {
            return TP_E_LOGPROBS;
        }
        sum += (uint64_t)((int64_t)tail->k[i] + 1);
    }
    tail->tokens = (uint32_t)tokens;
    tail->entries = (uint32_t)entries;
    return sum == entries ? TP_OK : TP_E_LOGPROBS;
}

static tp_result take_extras(source *s, tp_binding *b, const tp_saved_binding *from) {
    if (!(from->parts & TP_SAVED_EXTRAS)) {
        return from->extras_len == 0 && !(from->flags & TP_B_EXTRAS) ? TP_OK : TP_E_COLUMN;
    }
    if (from->extras_ready > from->extras_len || from->extras_len > s->left) {
        return TP_E_COLUMN;
    }
    if ((b->extras = tp_extras_new(from->extras_sent)) == NULL) {
        return TP_E_MEMORY;
    }
    TP_TRY(tp_buffer_grow(&b->extras->buffer, 1, &b->extras->capacity, from->extras_len));
    b->extras->len = from->extras_len;
    b->extras->ready = from->extras_ready;
    return take(s, b->extras->buffer, from->extras_len);
}

/* Reads the unsent text. It is all that a binding needs which reads no more tokens. */
static tp_result take_text(source *s, const tp_table *t, tp_binding *b, const tp_saved_binding *from) {
    static const tp_text_options none = {.prompt_count = 0};
    if (!(from->parts & TP_SAVED_TEXT)) {
        return from->text_len == 0 && !(from->flags & TP_B_TEXT) ? TP_OK : TP_E_COLUMN;
    }
    if (t->vocab == NULL || from->text_ready > from->text_len || from->text_len > s->left) {
        return TP_E_COLUMN;
    }
    TP_TRY(tp_text_new(t->vocab, &none, &b->text));
    tp_text *text = b->text;
    if (from->text_len > text->capacity) {
        uint8_t *buffer = NULL;
        uint32_t capacity = 0;
        TP_TRY(tp_buffer_grow(&buffer, 1, &capacity, from->text_len));
        text->buffer = buffer;
        text->capacity = capacity;
    }
    text->len = from->text_len;
    text->ready = from->text_ready;
    text->offset = from->text_offset;
    text->ended = from->text_ended;
    return take(s, text->buffer, from->text_len);
}

static tp_result take_arrays(source *s, const tp_table *t, tp_binding *b, const tp_saved_binding *from) {
    const int tokens = (from->parts & TP_SAVED_TOKENS) != 0;
    const uint64_t capacity = (uint64_t)from->total + 32;
    if (from->sent > from->total || from->base > from->total || capacity > UINT32_MAX ||
        (!tokens &&
         (from->sent < from->total || (from->state == TP_RUNNING || from->state == TP_PREEMPTING)))) {
        return TP_E_COUNTS;
    }
    if (tokens) {
        TP_TRY(take_new(s, &b->tokens, (uint64_t)from->total * 4, capacity * 4));
        b->capacity = (uint32_t)capacity;
    }
    const uint64_t stops = (uint64_t)from->stop_count * 4;
    if (stops > 0) {
        TP_TRY(take_new(s, &b->stop_ids, stops, stops));
    }
    b->stop_count = from->stop_count;
    for (uint32_t i = 0; i < b->stop_count; i++) {
        b->stop_mask |= UINT64_C(1) << ((uint32_t)b->stop_ids[i] & 63);
    }
    TP_TRY(take_tail(s, b, from));
    TP_TRY(take_extras(s, b, from));
    TP_TRY(take_text(s, t, b, from));
    if (from->error_size > 0) {
        TP_TRY(take_new(s, &b->error, from->error_size, from->error_size));
        b->error_size = from->error_size;
    }
    if (from->error_extras_size > 0) {
        if (from->error_extras_size > s->left) {
            return TP_E_TRUNCATED;
        }
        b->error_extras = malloc(sizeof *b->error_extras + from->error_extras_size);
        if (b->error_extras == NULL) {
            return TP_E_MEMORY;
        }
        b->error_extras->size = from->error_extras_size;
        return take(s, b->error_extras->data, from->error_extras_size);
    }
    return TP_OK;
}

static void take_numbers(tp_binding *b, const tp_saved_binding *from) {
    b->key = from->key;
    b->park_value = from->park_value;
    b->park_step = from->park_step;
    b->park_first = from->park_first;
    b->park_cause = from->park_cause;
    b->extras_offset = from->extras_offset;
    b->pace_ns = from->pace_ns;
    b->next_ns = from->next_ns;
    b->pace = from->pace;
    b->cached = from->cached;
    b->total = from->total;
    b->sent = from->sent;
    b->base = from->base;
    b->min_tokens = from->min_tokens;
    b->max_tokens = from->max_tokens;
    b->stop_reason = from->stop_reason;
    b->stop_string = from->stop_string;
    b->finish = from->finish;
    b->error_code = from->error_code;
    b->error_field = from->error_field <= from->error_size ? from->error_field : 0;
}

/* Puts a binding on the list and the account of its client, as it was. */
static tp_result settle(tp_table *t, tp_binding *b, const tp_saved_binding *from) {
    const int open = from->client < t->client_count && t->clients[from->client].open;
    b->client = open ? from->client : TP_NO_CLIENT;
    b->flags = from->flags & (uint16_t)~(TP_B_DIRTY | TP_B_URGENT | TP_B_IN_RUN);
    if (!open && b->state != TP_PARKED) {
        b->flags |= TP_B_MUTED;
    }
    if (open) {
        TP_TRY(tp_client_reserve(t, &t->clients[b->client]));
    }
    if (from->flags & TP_B_DIRTY) {
        if (b->flags & TP_B_MUTED || !open) {
            return TP_E_HEADER;
        }
        tp_client_wake(t, b);
        t->clients[b->client].error_bytes += b->error_size;
        if (from->flags & TP_B_URGENT) {
            tp_client_urgent(t, b);
        }
    } else if (from->flags & TP_B_URGENT || from->parts & TP_SAVED_GONE) {
        return TP_E_HEADER;
    }
    return TP_OK;
}

static tp_result take_binding(source *s, tp_table *t) {
    tp_saved_binding from;
    TP_TRY(take(s, &from, sizeof from));
    tp_slot *slot = tp_table_slot(t, from.handle);
    const int gone = (from.parts & TP_SAVED_GONE) != 0;
    if (slot == NULL || from.state > TP_LINGERING || (from.state == TP_GONE) != gone ||
        from.finish >= TP_FINISH_END || from.error_code >= TP_ERROR_END ||
        (!gone && tp_table_find(t, from.handle) != NULL)) {
        return TP_E_HEADER;
    }
    tp_binding *b = tp_binding_new(t, slot, from.handle);
    if (b == NULL) {
        return TP_E_MEMORY;
    }
    b->state = gone ? TP_LINGERING : from.state;
    TP_TRY(take_arrays(s, t, b, &from));
    take_numbers(b, &from);
    TP_TRY(settle(t, b, &from));
    if (b->state == TP_PARKED) {
        b->park_bytes = from.park_bytes;
        t->parked_now++;
        t->park_used += b->park_bytes;
    }
    if (from.queued_ns > 0) {
        if (!tp_binding_is_open(b)) {
            return TP_E_HEADER;
        }
        TP_TRY(tp_queue_put(t, b, from.queued_ns));
    }
    if (gone) {
        tp_table_drop(t, b);
    }
    return TP_OK;
}

static tp_result take_rank(source *s, tp_table *t) {
    tp_saved_rank from;
    TP_TRY(take(s, &from, sizeof from));
    tp_rank *rank = tp_table_rank(t, from.dp);
    if (rank == NULL || (uint64_t)from.rows * 12 > s->left) {
        return TP_E_HEADER;
    }
    rank->last_step = from.last_step;
    rank->any_step = from.any_step;
    for (uint32_t i = 0; i < t->slots; i++) {
        TP_TRY(take(s, &rank->slots[i].floor, sizeof rank->slots[i].floor));
    }
    tp_basis *basis = &rank->basis;
    const tp_growing arrays[] = {TP_GROWING(basis->handles), TP_GROWING(basis->position),
                                 TP_GROWING(basis->bindings)};
    TP_TRY(tp_buffers_grow(arrays, 3, &basis->capacity, from.rows));
    TP_TRY(take(s, basis->handles, (uint64_t)from.rows * sizeof *basis->handles));
    TP_TRY(take(s, basis->position, (uint64_t)from.rows * sizeof *basis->position));
    if (from.rows > 0) {
        memset(basis->bindings, 0, (size_t)from.rows * sizeof(struct tp_binding *));
    }
    basis->rows = from.rows;
    basis->sole = -1;
    basis->mixed = (int)from.mixed;
    basis->instance = from.instance;
    basis->sender = from.sender;
    basis->seq = from.seq;
    return TP_OK;
}

/* Opens a client. The order of its list is for order_client. */
static tp_result take_client(source *s, tp_table *t, uint32_t index) {
    tp_saved_client from;
    TP_TRY(take(s, &from, sizeof from));
    if ((uint64_t)from.dirty * 8 > s->left) {
        return TP_E_TRUNCATED;
    }
    s->at += (size_t)from.dirty * 8;
    s->left -= (size_t)from.dirty * 8;
    if (from.open) {
        TP_TRY(tp_client_open(t, index));
        t->clients[index].mono_ns = from.mono_ns;
        t->clients[index].crowded = from.crowded;
    }
    return TP_OK;
}

/* Puts the client's list into the saved order, so that it is flushed as it would have been. */
static tp_result order_client(source *s, tp_client *c) {
    tp_saved_client from;
    TP_TRY(take(s, &from, sizeof from));
    if (from.dirty != (c == NULL ? 0 : c->dirty_count)) {
        return TP_E_COUNTS;
    }
    for (uint32_t i = 0; i < from.dirty; i++) {
        int64_t handle;
        TP_TRY(take(s, &handle, sizeof handle));
        uint32_t at = i;
        while (at < from.dirty && c->dirty[at]->handle != handle) {
            at++;
        }
        if (at == from.dirty) {
            return TP_E_COUNTS;
        }
        tp_binding *b = c->dirty[at];
        c->dirty[at] = c->dirty[i];
        c->dirty[i] = b;
    }
    return TP_OK;
}

tp_result tp_table_load(tp_table *t, const uint8_t *data, size_t size) {
    source s = {data, size};
    tp_saved_table head;
    TP_TRY(take(&s, &head, sizeof head));
    if (head.magic != TP_SAVED_MAGIC || head.binding_bytes != sizeof(tp_saved_binding) ||
        head.slots != t->slots || head.ranks != t->rank_count || head.clients > TP_NO_CLIENT || t->live > 0) {
        return TP_E_HEADER;
    }
    for (uint32_t i = 0; i < head.ranks; i++) {
        TP_TRY(take_rank(&s, t));
    }
    source clients = s;
    for (uint32_t i = 0; i < head.clients; i++) {
        TP_TRY(take_client(&s, t, i));
    }
    for (uint32_t i = 0; i < head.bindings; i++) {
        TP_TRY(take_binding(&s, t));
    }
    for (uint32_t i = 0; i < head.clients; i++) {
        TP_TRY(order_client(&clients, i < t->client_count ? &t->clients[i] : NULL));
    }
    t->counters = head.counters;
    return s.left == 0 ? TP_OK : TP_E_TRAILING;
}
