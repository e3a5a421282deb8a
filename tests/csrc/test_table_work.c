/* The work of the table and of a stream depends on what is there: a long output that is sent in small parts
 * is moved about once, a slot keeps few parked bindings, and only bindings that wait for a time are looked
 * at. */
#include <string.h>

#include "check.h"
#include "stream/stream.h"
#include "table/extras.h"
#include "table/table.h"
#include "table/table_bind.h"
#include "table/table_client.h"
#include "table/table_feed.h"
#include "table/table_flush.h"
#include "table/table_park.h"
#include "table/table_pool.h"
#include "table/table_queue.h"
#include "table/table_tail.h"
#include "text/text.h"
#include "text/vocab.h"
#include "wire/output.h"
#include "wire/step.h"

enum { MANY = 131072, FLUSH = 4096, PARTS = 100 };

/* ---- the bytes that are moved; the linker puts this in place of memmove ---- */

static uint64_t moved;

void *__real_memmove(void *to, const void *from, size_t size);
void *__wrap_memmove(void *to, const void *from, size_t size);
void *__wrap_memmove(void *to, const void *from, size_t size) {
    moved += size;
    return __real_memmove(to, from, size);
}

/* ---- a table with one client and one slot ---- */

typedef struct scene {
    tp_vocab vocab;
    tp_table table;
    int64_t handle;
    uint32_t step, position;
} scene;

static int64_t handle_of(uint64_t generation) { return (int64_t)generation; }

static void open_scene(scene *s, int text) {
    static const uint8_t flags[1] = {0};
    static const uint16_t sizes[1] = {8};
    static const uint8_t bytes[] = "a word..";
    const tp_words words = {bytes, sizes, 8};
    const uint32_t rank = 0;
    memset(s, 0, sizeof *s);
    CHECK(tp_vocab_init(&s->vocab, 1, flags, &words, NULL, NULL, 1, 0) == TP_OK);
    const tp_table_config config = {.rank_count = 1,
                                    .slots = 4,
                                    .vocab_size = 1,
                                    .ranks = &rank,
                                    .vocab = text ? &s->vocab : NULL,
                                    .park_limit = 1 << 20,
                                    .merge_limit = UINT64_C(1) << 40};
    CHECK(tp_table_init(&s->table, &config) == TP_OK);
    CHECK(tp_client_open(&s->table, 0) == TP_OK);
    s->handle = handle_of(1);
    const tp_text_options options = {.spaces = 1};
    const tp_bind bind = {
        .handle = s->handle, .max_tokens = UINT32_MAX, .pace = 1, .text = text ? &options : NULL};
    CHECK(tp_table_bind(&s->table, &bind) == TP_OK);
}

static void close_scene(scene *s) {
    tp_table_clear(&s->table);
    tp_vocab_clear(&s->vocab);
}

/* Feeds a row of one token, with extras or logprobs. */
static void feed(scene *s, uint32_t extras_size, int scored) {
    static uint8_t extras[1024];
    static const int32_t token = 0, k = 0, rank = 1;
    static const float value = 0;
    uint8_t frame[2048];
    const tp_step_rows rows = {.lane = {1, 2, 3, ++s->step},
                               .rows = 1,
                               .tokens = 1,
                               .step = s->step,
                               .handles = &s->handle,
                               .token_ids = &token,
                               .position = &s->position,
                               .lp_k = scored ? &k : NULL,
                               .lp_ids = scored ? &token : NULL,
                               .lp_ranks = scored ? &rank : NULL,
                               .lp_values = scored ? &value : NULL,
                               .lp_entries = (uint32_t)scored,
                               .lp_tokens = (uint32_t)scored,
                               .extras_len = extras_size > 0 ? &extras_size : NULL,
                               .extras = extras_size > 0 ? extras : NULL,
                               .extras_bytes = extras_size};
    CHECK(tp_step_size(&rows) <= sizeof frame);
    CHECK(tp_table_feed(&s->table, 0, 0, frame, tp_step_write(&rows, frame)) == TP_OK);
    s->position++;
}

/* Returns about how many rows it sent. Extras and text are sent before their tokens. */
static uint32_t flush(scene *s) {
    tp_output_rows rows;
    CHECK(tp_table_flush(&s->table, 0, FLUSH, 0, &rows) == TP_OK);
    return rows.tokens + rows.extras_bytes / (100 + TP_WRAP_BYTES) + rows.text_bytes / 8;
}

/* Whether the arrays of the output that waits are full. */
static int is_full(const scene *s) {
    const tp_binding *b = tp_table_find(&s->table, s->handle);
    const tp_extras *e = b->extras;
    return (e == NULL || e->capacity - e->len < 256) &&
           (b->tail == NULL || b->tail->entry_capacity - b->tail->entries < 2) &&
           (b->text == NULL || b->text->capacity - b->text->len < 32);
}

/* Sends a long output in small parts. As many rows follow each part, from a worker that goes on. */
static void check_sending(uint32_t extras_size, int scored, int text, uint64_t bytes_per_row) {
    scene s;
    uint64_t rows = 0;
    open_scene(&s, text);
    for (; rows < MANY || !is_full(&s); rows++) {
        feed(&s, extras_size, scored);
    }
    moved = 0;
    for (int part = 0; part < PARTS; part++) {
        for (uint32_t sent = flush(&s); sent > 0; sent--, rows++) {
            feed(&s, extras_size, scored);
        }
        CHECK(moved <= 2 * rows * bytes_per_row);
    }
    while (s.table.clients[0].dirty_count > 0) {
        flush(&s);
    }
    CHECK(moved <= 4 * rows * bytes_per_row);
    close_scene(&s);
}

/* A consumer takes one token after another of a long stream, to which one more comes each time. */
static void check_stream(void) {
    tp_stream stream;
    tp_stream_init(&stream, 1);
    static const uint8_t token[4], value[4];
    const tp_piece piece = {token, 1, 0, token, value, token};
    for (int i = 0; i < MANY; i++) {
        CHECK(tp_stream_append(&stream, &piece) == TP_OK);
    }
    moved = 0;
    for (int i = 0; i < MANY; i++) {
        tp_stream_took(&stream, 1, 1);
        CHECK(tp_stream_append(&stream, &piece) == TP_OK);
        CHECK(moved <= (uint64_t)2 * 2 * MANY * 20);
    }
    CHECK(stream.capacity <= 8 * MANY && stream.lp_capacity <= 8 * MANY);
    tp_stream_clear(&stream);
}

/* A frame with rows of very many generations of one slot. */
static void check_parking(void) {
    static int64_t handles[MANY];
    static int32_t tokens[MANY];
    scene s;
    open_scene(&s, 0);
    for (uint64_t i = 0; i < MANY; i++) {
        handles[i] = handle_of(2 + i);
    }
    const tp_step_rows rows = {.lane = {1, 2, 3, 1},
                               .rows = MANY,
                               .tokens = MANY,
                               .step = 1,
                               .handles = handles,
                               .token_ids = tokens};
    uint8_t *frame = malloc(tp_step_size(&rows));
    CHECK(tp_table_feed(&s.table, 0, 0, frame, tp_step_write(&rows, frame)) == TP_OK);
    free(frame);
    CHECK(s.table.live == TP_SLOT_BINDINGS);
    CHECK(s.table.counters.parked == TP_SLOT_BINDINGS - 1);
    CHECK(s.table.counters.park_lost == MANY - (TP_SLOT_BINDINGS - 1));
    close_scene(&s);
}

/* ---- the queue of bindings that wait for a time, against a plain list ---- */

enum { QUEUED = 50, CALLS = 20000 };

static void check_queue(void) {
    static tp_binding bindings[QUEUED];
    static uint64_t due[QUEUED]; /* 0: it is not in the queue */
    tp_table t;
    uint64_t random = 3;
    memset(&t, 0, sizeof t);
    for (int i = 0; i < CALLS; i++) {
        const size_t at = next_random(&random, QUEUED);
        const uint64_t ns = 1 + next_random(&random, 1000);
        uint64_t next = 0;
        switch (next_random(&random, 3)) {
        case 0:
            CHECK(tp_queue_put(&t, &bindings[at], ns) == TP_OK);
            due[at] = ns;
            break;
        case 1:
            tp_queue_remove(&t, &bindings[at]);
            due[at] = 0;
            break;
        default: {
            const tp_binding *taken = tp_queue_take(&t, ns);
            if (taken != NULL) {
                CHECK(due[taken - bindings] > 0 && due[taken - bindings] <= ns);
                due[taken - bindings] = 0;
            }
        }
        }
        uint32_t n = 0;
        for (size_t j = 0; j < QUEUED; j++) {
            n += due[j] > 0;
            next = due[j] > 0 && (next == 0 || due[j] < next) ? due[j] : next;
        }
        CHECK(t.queued == n && tp_queue_next(&t) == next);
    }
    free(t.queue);
}

int main(void) {
    check_sending(100, 0, 0, 116 + 4);
    check_sending(0, 1, 0, 20);
    check_sending(0, 0, 1, 12);
    check_stream();
    check_parking();
    check_queue();
    puts("ok");
    return 0;
}
