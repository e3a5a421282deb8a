/* The table without memory: in a scenario of binds, rows, logprobs, extras, text and flushes, the n-th
 * allocation fails, for every n. Nothing may be read or written out of place, no token may be lost or sent
 * twice unless its request failed, and at the end the client's account must be empty. */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "failing.h"
#include "table/extras.h"
#include "table/table.h"
#include "table/table_bind.h"
#include "table/table_client.h"
#include "table/table_feed.h"
#include "table/table_finish.h"
#include "table/table_flush.h"
#include "table/table_pace.h"
#include "table/table_shed.h"
#include "text/vocab.h"
#include "wire/output.h"
#include "wire/step.h"

enum { SLOTS = 6, STEPS = 12, VOCAB = 64, PER_ROW = 2, TOP_K = 1 };
enum { FINISH, SHED, CLOSE }; /* how the scenario ends */

/* ---- the scenario ---- */

typedef struct scenario {
    tp_vocab vocab;
    tp_table table;
    uint32_t received[SLOTS]; /* tokens of each request */
    uint8_t finish[SLOTS];
} scenario;

static int64_t handle_of(uint32_t slot) { return (int64_t)((uint64_t)slot << TP_GENERATION_BITS | 1); }

/* Token number n of a request, counted from 0. */
static int32_t token_of(uint32_t slot, uint32_t n) { return (int32_t)((slot * 7 + n * 3) % VOCAB); }

static void make_vocab(tp_vocab *vocab) {
    static uint8_t bytes[VOCAB * 2], flags[VOCAB];
    static uint16_t sizes[VOCAB];
    for (int i = 0; i < VOCAB; i++) {
        bytes[2 * i] = 'a';
        bytes[2 * i + 1] = (uint8_t)(' ' + i);
        sizes[i] = 2;
    }
    const tp_words words = {bytes, sizes, sizeof bytes};
    CHECK(tp_vocab_init(vocab, VOCAB, flags, &words, NULL, NULL, 1, 0) == TP_OK);
}

static void bind_slot(scenario *s, uint32_t slot) {
    const uint32_t stop_size = 3;
    const tp_text_options text = {
        .spaces = 1, .stops = (const uint8_t *)"zzz", .stop_sizes = &stop_size, .stop_count = 1};
    const tp_bind bind = {.handle = handle_of(slot),
                          .key = slot,
                          .max_tokens = 1000,
                          .pace = slot == 1 ? 3 : 1,
                          .pace_ms = slot == 3 ? 1 : 0,
                          .text = slot % 2 == 0 ? &text : NULL};
    TRY_AGAIN(tp_table_bind(&s->table, &bind));
}

/* Feeds a frame with rows of PER_ROW tokens for all slots. Some steps have logprobs, some extras. */
static void feed(scenario *s, uint32_t step) {
    static int64_t handles[SLOTS];
    static uint16_t counts[SLOTS];
    static int32_t tokens[SLOTS * PER_ROW], k[SLOTS], ids[SLOTS * PER_ROW * (TOP_K + 1)],
        ranks[SLOTS * PER_ROW];
    static float values[SLOTS * PER_ROW * (TOP_K + 1)];
    static uint32_t position[SLOTS], extras_len[SLOTS];
    static uint8_t extras[SLOTS * 40];
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        handles[slot] = handle_of(slot);
        counts[slot] = PER_ROW;
        position[slot] = step * PER_ROW;
        k[slot] = TOP_K;
        extras_len[slot] = 40;
        for (uint32_t i = 0; i < PER_ROW; i++) {
            tokens[slot * PER_ROW + i] = token_of(slot, step * PER_ROW + i);
        }
    }
    const int scored = step % 3 == 1, beside = step % 3 > 0;
    const tp_step_rows rows = {.lane = {1, 2, 3, step + 1},
                               .rows = SLOTS,
                               .tokens = SLOTS * PER_ROW,
                               .step = step + 1,
                               .mono_ns = step + 1,
                               .handles = handles,
                               .counts = counts,
                               .token_ids = tokens,
                               .position = position,
                               .lp_k = scored ? k : NULL,
                               .lp_ids = scored ? ids : NULL,
                               .lp_ranks = scored ? ranks : NULL,
                               .lp_values = scored ? values : NULL,
                               .lp_entries = scored ? SLOTS * PER_ROW * (TOP_K + 1) : 0,
                               .lp_tokens = scored ? SLOTS * PER_ROW : 0,
                               .extras_len = beside ? extras_len : NULL,
                               .extras = beside ? extras : NULL,
                               .extras_bytes = beside ? sizeof extras : 0};
    const size_t size = tp_step_size(&rows);
    uint8_t *frame = malloc(size);
    CHECK(tp_step_write(&rows, frame) == size);
    TRY_AGAIN(tp_table_feed(&s->table, 0, 0, frame, size));
    free(frame);
}

/* Reads what was flushed: the tokens of each request come in order, each once. */
static void receive(scenario *s, const tp_output_rows *rows) {
    tp_output_view v;
    const size_t size = tp_output_size(rows);
    uint8_t *frame = malloc(size);
    CHECK(tp_output_write(rows, frame) == size && tp_output_parse(frame, size, &v) == TP_OK);
    const uint8_t *tokens = v.token_ids;
    for (uint32_t i = 0; i < v.rows; i++) {
        const uint64_t slot = tp_load_u64(v.keys + 8 * (size_t)i);
        const uint32_t count = v.counts == NULL ? 1 : tp_load_u32(v.counts + 4 * (size_t)i);
        CHECK(slot < SLOTS && s->finish[slot] == TP_FINISH_NONE);
        CHECK(tp_load_u32(v.offsets + 4 * (size_t)i) == s->received[slot]);
        for (uint32_t t = 0; t < count; t++, tokens += 4) {
            CHECK(tp_load_i32(tokens) == token_of((uint32_t)slot, s->received[slot]++));
        }
        s->finish[slot] = v.finish == NULL ? TP_FINISH_NONE : v.finish[i];
    }
    free(frame);
}

static void flush(scenario *s, uint64_t max_bytes) {
    tp_output_rows rows;
    tp_table_release(&s->table, UINT64_MAX / 2);
    TRY_AGAIN(tp_table_flush(&s->table, 0, max_bytes, 0, &rows));
    if (rows.rows > 1) { /* as if there were no memory for the frame */
        const uint32_t before = rows.rows, bytes = rows.text_bytes;
        tp_table_keep_flush(&s->table, 0, &rows);
        TRY_AGAIN(tp_table_flush(&s->table, 0, max_bytes, 0, &rows));
        CHECK(rows.rows == before && rows.text_bytes == bytes);
    }
    if (rows.rows > 0) {
        receive(s, &rows);
    }
}

/* The requests with text have the same stops, so they share one automaton. */
static void check_stops(const scenario *s) {
    uint32_t automata = 0;
    for (int i = 0; i < 256; i++) {
        for (const tp_stops *stops = s->table.stops.buckets[i]; stops != NULL; stops = stops->next) {
            automata++;
        }
    }
    CHECK(automata == 1);
}

static void check_account(const scenario *s) {
    const tp_client *c = &s->table.clients[0];
    CHECK(c->dirty_count == 0 && c->urgent == 0 && c->tokens == 0 && c->lp_entries == 0 && c->lp_tokens == 0);
    CHECK(c->error_bytes == 0 && c->text_bytes == 0 && c->extras_bytes == 0);
}

/* Ends all requests, and compares what the client got with what it should have got. */
static void finish(scenario *s) {
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        tp_binding *b = tp_table_find(&s->table, handle_of(slot));
        if (b != NULL && tp_binding_is_open(b)) {
            tp_binding_finish(&s->table, b, TP_FINISH_ABORT, TP_NO_STOP);
        }
    }
    for (int i = 0; i < 200 && s->table.clients[0].dirty_count > 0; i++) {
        flush(s, 300);
    }
    check_account(s);
    int incomplete = 0;
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        const int complete = s->received[slot] == STEPS * PER_ROW && s->finish[slot] == TP_FINISH_ABORT;
        incomplete += !complete;
    }
    CHECK(incomplete <= failed); /* an allocation that fails harms one request */
}

/* Runs the scenario with the n-th allocation failing. Returns whether one failed. */
static int run(long n, int way) {
    scenario s = {.finish = {0}};
    failed = 0;
    make_vocab(&s.vocab);
    const uint32_t rank = 0;
    const tp_table_config config = {.rank_count = 1,
                                    .slots = SLOTS,
                                    .vocab_size = VOCAB,
                                    .ranks = &rank,
                                    .vocab = &s.vocab,
                                    .park_limit = 1 << 20,
                                    .merge_limit = 1 << 20};
    CHECK(tp_table_init(&s.table, &config) == TP_OK);
    countdown = n;
    TRY_AGAIN(tp_client_open(&s.table, 0));
    for (uint32_t slot = 0; slot + 1 < SLOTS; slot++) {
        bind_slot(&s, slot);
    }
    check_stops(&s);
    for (uint32_t step = 0; step < STEPS; step++) {
        feed(&s, step); /* the rows of the last slot are parked at first */
        if (step == 4) {
            bind_slot(&s, SLOTS - 1);
        }
        if (step % 4 == 3) {
            flush(&s, step == 3 ? 200 : 1 << 20);
        }
    }
    if (way == CLOSE) {
        TRY_AGAIN(tp_client_close(&s.table, 0));
        check_account(&s);
    } else if (way == SHED) {
        const tp_error_text error = {TP_ERROR_SLOW, "the client is too slow", "", 22, 0};
        TRY_AGAIN(tp_client_shed(&s.table, 0, &error));
        for (int i = 0; i < 200 && s.table.clients[0].dirty_count > 0; i++) {
            flush(&s, 300);
        }
        check_account(&s);
    } else {
        finish(&s);
    }
    tp_table_clear(&s.table);
    tp_vocab_clear(&s.vocab);
    return failed;
}

int main(void) {
    for (int way = FINISH; way <= CLOSE; way++) {
        long n = 0;
        while (run(n, way)) {
            n++;
        }
        CHECK(n > 30); /* the scenario allocates more often than that */
    }
    puts("ok");
    return 0;
}
