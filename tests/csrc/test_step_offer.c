/* Steps that a lane takes, refuses or never sees, in the plain way and in the other: each frame that the
 * lane took must say the positions that follow from the frames it took before, and from no others. */
#include "pack/step_offer.h"

#include "check.h"
#include "pack/packer_positions.h"
#include "wire/step.h"

#include <string.h>

enum { DP = 3, SLOTS = 8, VOCAB = 100, MOST_ROWS = SLOTS };

static int64_t handle_of(uint64_t slot, uint64_t generation) {
    return (int64_t)((uint64_t)DP << (TP_SLOT_BITS + TP_GENERATION_BITS) | slot << TP_GENERATION_BITS |
                     generation);
}

/* What the lane took: the newest handle of each slot, and the tokens of it. */
typedef struct model {
    int64_t handle[SLOTS];
    uint32_t tokens[SLOTS];
    uint64_t bad, last_step;
    int any_step;
} model;

typedef struct step {
    size_t rows, bad;
    uint64_t slots[MOST_ROWS];
    int64_t handles[MOST_ROWS];
    int32_t tokens[MOST_ROWS];
} step;

/* Rows of different slots, now and then a newer handle, now and then a bad token. */
static step random_step(uint64_t *random, int64_t *newest) {
    step s = {.rows = 1 + next_random(random, MOST_ROWS)};
    for (size_t i = 0; i < s.rows; i++) {
        s.slots[i] = i;
        if (next_random(random, 40) == 0) {
            newest[i]++;
        }
        s.handles[i] = newest[i];
        s.tokens[i] = next_random(random, 30) == 0 ? VOCAB : (int32_t)next_random(random, VOCAB);
        s.bad += s.tokens[i] == VOCAB;
    }
    return s;
}

/* Reads a frame that the lane took, and compares its positions with the model's. */
static void take(model *m, const step *s, const uint8_t *frame, size_t size, int64_t *run_handles) {
    tp_step_view v;
    CHECK(tp_step_parse(frame, size, &v) == TP_OK && v.rows == s->rows);
    for (size_t i = 0; i < s->rows; i++) {
        const uint64_t slot = s->slots[i];
        if (m->handle[slot] != s->handles[i]) {
            m->handle[slot] = s->handles[i];
            m->tokens[slot] = 0;
        }
        if (v.continues) { /* the rows of the frame before: these must be the ones */
            CHECK(run_handles[i] == s->handles[i]);
        } else {
            CHECK(tp_load_i64(v.handles + 8 * i) == s->handles[i]);
            CHECK((v.position == NULL ? 0 : tp_load_u32(v.position + 4 * i)) == m->tokens[slot]);
        }
        m->tokens[slot] += s->tokens[i] != VOCAB;
        run_handles[i] = s->handles[i];
    }
    m->bad += s->bad;
    m->last_step = v.step;
    m->any_step = 1;
}

/* What the lane does with a frame. */
enum fate { TAKES, REFUSES, NEVER_SEES };

/* Lets the window number the frame, if the lane takes it. */
static void send(tp_send_window *w, enum fate fate) {
    if (fate == TAKES) {
        CHECK(tp_send_window_reserve(w) == TP_OK);
        tp_send_window_keep(w, w, 1);
        (void)tp_send_window_pop(w);
    }
}

static tp_step_input input_of(const step *s, uint64_t number) {
    return (tp_step_input){.step = number,
                           .mono_ns = 5,
                           .handles = {(const uint8_t *)s->handles, s->rows, 8},
                           .tokens = {(const uint8_t *)s->tokens, s->rows, 4}};
}

/* Sends a step as StepPacker.send_next does, or offers it as pack_next does. */
static void publish(tp_step_offer *o, tp_send_window *w, model *m, const step *s, uint64_t number, int plain,
                    enum fate fate, int64_t *run_handles) {
    tp_step_input in = input_of(s, number);
    tp_fault fault;
    tp_plain begun;
    CHECK(tp_step_offer_begin(o, &in, &fault) == 0);
    CHECK(in.lane.seq == w->next.seq);
    const size_t size = plain ? tp_step_offer_plain_begin(o, &in, &begun) : 0;
    uint8_t *frame = malloc(size + 1);
    if (size > 0 && tp_step_offer_plain_write(o, &in, &begun, frame)) {
        send(w, fate);
        tp_step_offer_plain_end(o, &in, &begun);
        if (fate == TAKES) {
            take(m, s, frame, size, run_handles);
        }
    } else {
        tp_step_rows rows;
        CHECK(tp_step_offer_pack(o, &in, &rows, &fault) == 0);
        const size_t packed = tp_step_size(&rows);
        frame = realloc(frame, packed);
        CHECK(tp_step_write(&rows, frame) == packed);
        send(w, fate);
        if (fate == REFUSES) { /* withdrawn at once; else the next step settles it */
            tp_step_offer_settle(o);
        }
        if (fate == TAKES) {
            take(m, s, frame, packed, run_handles);
        }
    }
    free(frame);
}

static void check_says(const tp_step_offer *o, const model *m) {
    uint64_t last = 0;
    CHECK(tp_step_offer_last(o, &last) == m->any_step);
    CHECK(!m->any_step || last == m->last_step);
    CHECK(tp_step_offer_bad_tokens(o) == m->bad);
}

static void test_random_fates(uint64_t seed) {
    uint64_t random = seed * 2 + 1;
    int64_t newest[SLOTS], run_handles[MOST_ROWS] = {0};
    model m = {.handle = {0}};
    tp_send_window w;
    tp_step_offer o = {.window = &w};
    tp_send_window_init(&w, 1, 2, 1u << 20, UINT32_MAX);
    w.next.receiver = 3;
    CHECK(tp_packer_init(&o.packer, DP, 0, SLOTS, VOCAB) == TP_OK);
    for (uint64_t slot = 0; slot < SLOTS; slot++) {
        newest[slot] = handle_of(slot, 1);
    }
    step s = random_step(&random, newest);
    for (uint64_t number = 1; number < 3000; number++) {
        if (next_random(&random, 5) == 0) { /* most steps have the rows of the step before */
            s = random_step(&random, newest);
        }
        publish(&o, &w, &m, &s, number, next_random(&random, 3) > 0, (enum fate)next_random(&random, 3),
                run_handles);
        check_says(&o, &m);
    }
    tp_packer_free(&o.packer);
    tp_send_window_free(&w);
}

static void test_steps_must_grow(void) {
    const step s = {.rows = 1, .handles = {handle_of(0, 1)}, .tokens = {7}};
    int64_t run_handles[MOST_ROWS];
    model m = {.handle = {0}};
    tp_fault fault;
    tp_send_window w;
    tp_step_offer o = {.window = &w};
    tp_send_window_init(&w, 1, 2, 1u << 20, UINT32_MAX);
    w.next.receiver = 3;
    CHECK(tp_packer_init(&o.packer, DP, 0, SLOTS, VOCAB) == TP_OK);
    publish(&o, &w, &m, &s, 9, 0, REFUSES, run_handles);
    publish(&o, &w, &m, &s, 9, 0, NEVER_SEES, run_handles);
    publish(&o, &w, &m, &s, 9, 0, TAKES, run_handles); /* a step that no lane took may come again */
    for (uint64_t number = 8; number <= 9; number++) {
        tp_step_input in = input_of(&s, number);
        CHECK(tp_step_offer_begin(&o, &in, &fault) < 0);
        CHECK((strstr(fault.text, "which was taken") != NULL) == (number == 9));
    }
    publish(&o, &w, &m, &s, 10, 1, TAKES, run_handles);
    CHECK(m.tokens[0] == 2);
    tp_packer_free(&o.packer);
    tp_send_window_free(&w);
}

/* The head of the position column, as it lies in a frame of 8 rows: its id, a tag, and 4 bytes a row. */
#define POSITION_HEAD 0x20c405u

/* The caller's arrays change while a step is packed, as when another thread writes to them: the frame is one
 * all the same, and the packer keeps only handles that it has checked. */
static void test_arrays_that_change(void) {
    enum { ROWS = SLOTS };
    static int64_t handles[ROWS];
    static int32_t tokens[ROWS], k[ROWS], entries[ROWS * 2], ranks[ROWS];
    static uint32_t extras_len[ROWS];
    static uint8_t extras[ROWS * 3], frame[4096];
    static float values[ROWS * 2];
    tp_packer p;
    tp_step_rows rows;
    tp_step_view view;
    tp_fault fault;
    CHECK(tp_packer_init(&p, DP, 0, SLOTS, VOCAB) == TP_OK);
    for (uint32_t i = 0; i < ROWS; i++) {
        handles[i] = handle_of(i, i == 4 ? POSITION_HEAD : 1);
        k[i] = 1;
        extras_len[i] = 3;
    }
    tp_step_input in = {.lane = {1, 2, 3, 1},
                        .step = 1,
                        .handles = {(uint8_t *)handles, ROWS, 8},
                        .tokens = {(uint8_t *)tokens, ROWS, 4},
                        .lp_k = {(uint8_t *)k, ROWS, 4},
                        .lp_ids = {(uint8_t *)entries, ROWS * 2, 4},
                        .lp_values = {(uint8_t *)values, ROWS * 2, 4},
                        .lp_ranks = {(uint8_t *)ranks, ROWS, 4},
                        .extras_len = {(uint8_t *)extras_len, ROWS, 4},
                        .extras = {extras, ROWS * 3, 1}};
    CHECK(tp_packer_pack(&p, &in, &rows, &fault) == 0);
    memset(k, 0x7f, sizeof k);
    memset(extras_len, 0x7f, sizeof extras_len);
    memset(handles, 0x7f, sizeof handles);
    CHECK(tp_step_size(&rows) <= sizeof frame);
    CHECK(tp_step_parse(frame, tp_step_write(&rows, frame), &view) == TP_OK && view.rows == ROWS);
    tp_packer_commit(&p);
    /* The handles lie where the frame's tokens and positions are written, so they change in the midst of it.
     * The head of the column between these two is written first, so it is a part of handle 4. */
    tp_plain plain;
    in = (tp_step_input){
        .lane = {1, 2, 3, 2}, .step = 2, .handles = {frame, ROWS, 8}, .tokens = {(uint8_t *)tokens, ROWS, 4}};
    const size_t size = tp_plain_begin(&p, &in, &plain);
    CHECK(size > 0 && size <= sizeof frame);
    uint8_t *source = frame + size - 8 * ROWS - 3;
    in.handles.data = source;
    for (uint32_t i = 0; i < ROWS; i++) {
        handles[i] = handle_of(i, i == 4 ? POSITION_HEAD : 1);
    }
    memcpy(source, handles, sizeof handles);
    CHECK(tp_plain_write(&p, &in, &plain, frame) == 1);
    CHECK(memcmp(source, handles, sizeof handles) != 0);
    CHECK(memcmp(p.run.handles, handles, sizeof handles) == 0);
    tp_packer_free(&p);
}

int main(void) {
    test_arrays_that_change();
    for (uint64_t seed = 0; seed < 10; seed++) {
        test_random_fates(seed);
    }
    test_steps_must_grow();
    puts("ok");
    return 0;
}
