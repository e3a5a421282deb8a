/* The processor's table: an input is a sequence of binds, frames, flushes and the other commands. After each
 * one the account of each client is the sum of what its bindings have not sent, and what is flushed is a
 * frame. */
#include "input.h"

#include "table/extras.h"
#include "table/table.h"
#include "table/table_bind.h"
#include "table/table_client.h"
#include "table/table_feed.h"
#include "table/table_finish.h"
#include "table/table_flush.h"
#include "table/table_pace.h"
#include "table/table_park.h"
#include "table/table_run.h"
#include "table/table_shed.h"
#include "table/table_tail.h"
#include "text/vocab.h"
#include "wire/output.h"
#include "wire/step.h"

#include <stdlib.h>

enum {
    SLOTS = 3,
    GENERATIONS = 5,
    CLIENTS = 3,
    VOCAB = 16,
    ROWS = 6,
    COUNT = 3,
    K = 2,
    FRAME = 8192,
    RUN = 4
};

typedef struct scene {
    tp_vocab vocab;
    tp_table table;
    uint64_t step, seq, now;
    uint8_t frames[RUN][FRAME]; /* the last ones */
    size_t sizes[RUN];
    uint32_t made;
} scene;

static int64_t handle_of(uint8_t byte) {
    const uint64_t slot = byte % (SLOTS + 1u), generation = byte / 16 % (GENERATIONS + 1u);
    return (int64_t)(slot << TP_GENERATION_BITS | generation);
}

static void make_vocab(tp_vocab *vocab) {
    static const uint8_t bytes[] = "a b c\xc3\xa9\xf0\x9f\x98\x80\xe2\x82 word xyz....aa";
    static const uint16_t sizes[VOCAB] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 5, 4, 6};
    static const uint8_t flags[VOCAB] = {[14] = TP_WORD_SPECIAL, [15] = TP_WORD_ADDED};
    const tp_words words = {bytes, sizes, 28};
    CHECK(tp_vocab_init(vocab, VOCAB, flags, &words, NULL, NULL, 1, 0) == TP_OK);
}

/* ---- frames ---- */

typedef struct rows {
    int64_t handles[ROWS];
    uint16_t counts[ROWS];
    uint8_t status[ROWS], extras[ROWS * 64];
    uint32_t position[ROWS], extras_len[ROWS], extras_bytes, tokens, entries, scored;
    int32_t token_ids[ROWS * COUNT], k[ROWS], ids[ROWS * COUNT * (K + 1)], ranks[ROWS * COUNT];
    float values[ROWS * COUNT * (K + 1)];
} rows;

static void make_row(scene *s, input *in, rows *r, uint32_t i) {
    const uint8_t kind = next_byte(in);
    r->handles[i] = handle_of(next_byte(in));
    r->counts[i] = (uint16_t)(kind & 1 ? 1 : kind / 2 % (COUNT + 1u));
    r->status[i] = kind & 8 ? (uint8_t)next_below(in, TP_ROW_STATUS_END + 1) : TP_ROW_OK;
    r->k[i] = kind & 16 ? (int32_t)next_below(in, K + 2) - 1 : -1;
    r->extras_len[i] = kind & 32 ? next_below(in, 64) : 0;
    r->extras_bytes += r->extras_len[i];
    const tp_binding *b = tp_table_find(&s->table, r->handles[i]);
    r->position[i] = (b == NULL ? 0 : b->total - b->base) + (kind & 64 ? next_below(in, 5) - 2 : 0);
    for (uint32_t t = 0; t < r->counts[i]; t++) {
        r->token_ids[r->tokens++] = (int32_t)next_below(in, VOCAB + 2) - (kind & 128 ? 1 : 0);
    }
    if (r->k[i] >= 0) {
        r->scored += r->counts[i];
        r->entries += r->counts[i] * (uint32_t)(r->k[i] + 1);
    }
}

static void keep_frame(scene *s, const tp_step_rows *rows) {
    const uint32_t at = s->made++ % RUN;
    CHECK(tp_step_size(rows) <= FRAME);
    s->sizes[at] = tp_step_write(rows, s->frames[at]);
}

static void make_frame(scene *s, input *in) {
    static rows r;
    const uint32_t n = next_below(in, ROWS + 1);
    memset(&r, 0, sizeof r);
    for (uint32_t i = 0; i < n; i++) {
        make_row(s, in, &r, i);
    }
    s->step += next_byte(in) % 8 != 0;
    const int scored = r.entries > 0, beside = r.extras_bytes > 0;
    const tp_step_rows made = {.lane = {1, 2, 3, ++s->seq},
                               .rows = n,
                               .tokens = r.tokens,
                               .step = s->step,
                               .mono_ns = s->now,
                               .handles = n > 0 ? r.handles : NULL,
                               .counts = n > 0 ? r.counts : NULL,
                               .token_ids = r.tokens > 0 ? r.token_ids : NULL,
                               .status = n > 0 ? r.status : NULL,
                               .position = n > 0 ? r.position : NULL,
                               .lp_k = scored ? r.k : NULL,
                               .lp_ids = scored ? r.ids : NULL,
                               .lp_ranks = scored ? r.ranks : NULL,
                               .lp_values = scored ? r.values : NULL,
                               .lp_entries = scored ? r.entries : 0,
                               .lp_tokens = scored ? r.scored : 0,
                               .extras_len = beside ? r.extras_len : NULL,
                               .extras = beside ? r.extras : NULL,
                               .extras_bytes = r.extras_bytes};
    keep_frame(s, &made);
}

/* A frame that continues the last one. */
static void make_next(scene *s, input *in) {
    int32_t tokens[ROWS];
    const tp_basis *basis = &s->table.ranks[0].basis;
    if (basis->rows == 0 || basis->rows > ROWS) {
        return;
    }
    for (uint32_t i = 0; i < basis->rows; i++) {
        tokens[i] = (int32_t)next_below(in, VOCAB);
    }
    const tp_step_rows made = {.lane = {1, 2, 3, ++s->seq},
                               .rows = basis->rows,
                               .tokens = basis->rows,
                               .step = ++s->step,
                               .mono_ns = s->now,
                               .token_ids = tokens};
    keep_frame(s, &made);
}

/* Feeds from memory of exactly the frame's size. */
static void feed(scene *s, const uint8_t *frame, size_t size) {
    uint8_t *exact = malloc(size + (size == 0));
    CHECK(exact != NULL);
    memcpy(exact, frame, size);
    (void)tp_table_feed(&s->table, 0, 0, exact, size);
    free(exact);
}

static void feed_last(scene *s, input *in, int damaged) {
    const uint32_t at = (s->made - 1) % RUN;
    if (s->made == 0) {
        return;
    }
    if (damaged && s->sizes[at] > 0) {
        s->frames[at][(next_byte(in) + 256u * next_below(in, 4)) % s->sizes[at]] ^= next_byte(in);
    }
    feed(s, s->frames[at], s->sizes[at]);
}

/* Feeds frames that continue one another at once. */
static void feed_run(scene *s, input *in) {
    tp_bytes run[RUN];
    const uint32_t n = 1 + next_below(in, RUN);
    for (uint32_t i = 0; i < n; i++) {
        make_next(s, in);
    }
    for (uint32_t i = 0; i < n && s->made >= n; i++) {
        const uint32_t at = (s->made - n + i) % RUN;
        run[i] = (tp_bytes){s->frames[at], s->sizes[at]};
    }
    if (s->made >= n) {
        (void)tp_table_feed_run(&s->table, 0, run, n);
    }
}

/* ---- commands ---- */

static void bind(scene *s, input *in) {
    static const uint8_t stops[] = "abcaa";
    static const uint32_t stop_sizes[] = {1, 2, 2};
    static const int32_t ids[] = {1, 2, 3, 4};
    const int64_t handle = handle_of(next_byte(in));
    const uint8_t how = next_byte(in), more = next_byte(in);
    const tp_binding *b = tp_table_find(&s->table, handle);
    if (tp_table_slot(&s->table, handle) == NULL || (b != NULL && b->state != TP_PARKED)) {
        return;
    }
    const tp_text_options text = {.skip_special = how & 1,
                                  .spaces = 1,
                                  .include_stop = how >> 1 & 1,
                                  .stops = stops,
                                  .stop_sizes = stop_sizes,
                                  .stop_count = how >> 2 & 3,
                                  .prompt = ids,
                                  .prompt_count = how >> 4 & 3};
    const tp_bind made = {.handle = handle,
                          .key = (uint64_t)handle,
                          .client = (uint16_t)(more % (CLIENTS + 1)),
                          .max_tokens = 1 + next_below(in, 30),
                          .min_tokens = more >> 2 & 3,
                          .ignore_eos = more >> 4 & 1,
                          .prefill = (more >> 5 & 7) == 7,
                          .stop_count = next_below(in, 3),
                          .output_count = next_below(in, 3),
                          .stop_ids = ids + 1,
                          .output_ids = ids,
                          .pace = next_below(in, 4),
                          .pace_ms = next_below(in, 3) * 10,
                          .extras_offset = 100,
                          .text = how & 64 ? &text : NULL};
    CHECK(tp_table_bind(&s->table, &made) == TP_OK);
}

static void flush(scene *s, input *in) {
    tp_output_rows rows;
    const uint32_t client = next_below(in, CLIENTS + 1);
    const uint8_t how = next_byte(in);
    const uint64_t most = how & 2 ? next_byte(in) * 2u : 1 << 16;
    CHECK(tp_table_flush(&s->table, client, most, how & 1, &rows) == TP_OK);
    if (rows.rows > 0 && how & 4) {
        tp_table_keep_flush(&s->table, client, &rows);
    } else if (rows.rows > 0) {
        tp_output_view view;
        uint8_t *frame = malloc(tp_output_size(&rows));
        CHECK(tp_output_write(&rows, frame) == tp_output_size(&rows));
        CHECK(tp_output_parse(frame, tp_output_size(&rows), &view) == TP_OK);
        free(frame);
    }
}

static void command(scene *s, input *in) {
    static const tp_error_text error = {TP_ERROR_SLOW, "too slow \xc3\xa9", "field", 11, 5};
    tp_table *t = &s->table;
    const uint8_t what = next_byte(in);
    const int64_t handle = handle_of(next_byte(in));
    tp_binding *b = tp_table_find(t, handle);
    tp_slot *slot = tp_table_slot(t, handle);
    const uint32_t client = next_below(in, CLIENTS);
    switch (what % 10) {
    case 0:
        if (b != NULL && tp_binding_is_open(b)) {
            tp_binding_finish(t, b, TP_FINISH_ABORT, TP_NO_STOP);
        }
        break;
    case 1:
        if (b != NULL) {
            tp_table_drop(t, b);
        }
        break;
    case 2:
        if (b != NULL && b->finish == TP_FINISH_ERROR) {
            CHECK(tp_binding_set_error(t, b, &error) == TP_OK);
        }
        break;
    case 3:
        if (b != NULL && b->state > TP_PARKED) {
            (void)tp_binding_hold(t, b);
        }
        break;
    case 4: CHECK(tp_client_close(t, client) == TP_OK); break;
    case 5: CHECK(tp_client_open(t, client) == TP_OK); break;
    case 6: CHECK(tp_client_shed(t, client, &error) == TP_OK); break;
    case 7:
        s->now += next_byte(in) * UINT64_C(1000000);
        t->now_ns = s->now;
        tp_table_release(t, s->now);
        break;
    case 8:
        if (slot != NULL) {
            tp_table_raise_floor(t, slot, TP_HANDLE_GENERATION(handle));
        }
        break;
    default:
        if (b != NULL && b->state == TP_PARKED) {
            tp_park_lose(t, b);
        }
    }
}

/* ---- what always holds ---- */

static void check_client(const tp_client *c) {
    uint64_t tokens = 0, text = 0, extras = 0, errors = 0, entries = 0;
    uint32_t urgent = 0;
    for (uint32_t i = 0; i < c->dirty_count; i++) {
        const tp_binding *b = c->dirty[i];
        CHECK(b->flags & TP_B_DIRTY && b->sent <= b->total && !(b->flags & TP_B_MUTED));
        tokens += b->total - b->sent;
        text += b->text == NULL ? 0 : b->text->charged;
        extras += b->extras == NULL ? 0 : b->extras->charged;
        errors += b->error_size;
        entries += b->flags & TP_B_LOGPROBS ? b->tail->entries : 0;
        urgent += (b->flags & TP_B_URGENT) != 0;
    }
    CHECK(c->tokens == tokens && c->text_bytes == text && c->extras_bytes == extras);
    CHECK(c->error_bytes == errors && c->lp_entries == entries && c->urgent == urgent);
}

static void check(const scene *s) {
    const tp_table *t = &s->table;
    CHECK(t->park_used <= t->park_limit && t->parked_now <= t->parked_limit);
    for (uint32_t i = 0; i < t->client_count; i++) {
        check_client(&t->clients[i]);
    }
    for (uint32_t i = 0; i < t->queued; i++) {
        CHECK(t->queue[i].binding->queue_at == i + 1 && t->queue[i].binding->state != TP_GONE);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static scene s;
    static const uint32_t rank = 0;
    static const int32_t eos = 12;
    input in = {data, data + size};
    memset(&s, 0, sizeof s);
    make_vocab(&s.vocab);
    const tp_table_config config = {.rank_count = 1,
                                    .slots = SLOTS,
                                    .vocab_size = VOCAB,
                                    .ranks = &rank,
                                    .eos_count = 1,
                                    .eos = &eos,
                                    .vocab = next_byte(&in) & 1 ? &s.vocab : NULL,
                                    .park_limit = 2048,
                                    .merge_limit = 4096};
    CHECK(tp_table_init(&s.table, &config) == TP_OK);
    CHECK(tp_client_open(&s.table, 0) == TP_OK && tp_client_open(&s.table, 1) == TP_OK);
    while (in.at < in.end) {
        switch (next_below(&in, 8)) {
        case 0:
        case 1:
            make_frame(&s, &in);
            feed_last(&s, &in, 0);
            break;
        case 2:
            make_next(&s, &in);
            feed_last(&s, &in, 0);
            break;
        case 3: feed_last(&s, &in, 1); break;
        case 4: feed_run(&s, &in); break;
        case 5: bind(&s, &in); break;
        case 6: flush(&s, &in); break;
        default: command(&s, &in);
        }
        check(&s);
    }
    tp_table_clear(&s.table);
    tp_vocab_clear(&s.vocab);
    return 0;
}
