/* The send window against a model: a plain array of all frames that were sent. */
#include "pack/send_window.h"

#include "check.h"
#include "wire/msgpack.h"

#include <string.h>

enum { SENDER = 22, RECEIVER = 33, INSTANCE = 11, MOST_FRAMES = 5000 };

/* Frame n is the address of names[n]: the window never reads a frame. */
static char names[MOST_FRAMES + 1];

static void *frame_of(uint64_t seq) { return &names[seq]; }

static uint64_t size_of(uint64_t seq) { return seq * 7 % 100; }

static void send(tp_send_window *w) {
    const uint64_t seq = w->next.seq;
    CHECK(tp_send_window_admit(w, size_of(seq)) == TP_TAKEN);
    CHECK(tp_send_window_reserve(w) == TP_OK);
    tp_send_window_sent(w, frame_of(seq), size_of(seq));
    CHECK(w->next.seq == seq + 1);
}

static void check_kept(const tp_send_window *w) {
    uint64_t used = 0;
    for (uint64_t seq = w->first; seq < w->next.seq; seq++) {
        CHECK(tp_send_window_find(w, seq) == frame_of(seq));
        used += size_of(seq) + TP_FRAME_OVERHEAD;
    }
    CHECK(w->used == used);
    CHECK(tp_send_window_find(w, w->first - 1) == NULL && tp_send_window_find(w, w->next.seq) == NULL);
    CHECK(tp_send_window_count(w) == w->next.seq - w->first);
}

/* Takes all frames that `applied` acknowledges, as the binding does. */
static void acknowledge(tp_send_window *w, uint64_t applied) {
    const uint64_t first = w->first, last = w->next.seq - 1;
    const uint64_t n = tp_send_window_acknowledged(w, applied);
    for (uint64_t i = 0; i < n; i++) {
        CHECK(tp_send_window_pop(w) == frame_of(first + i));
    }
    const uint64_t expected = applied < first ? first : applied < last ? applied + 1 : last + 1;
    CHECK(w->first == expected);
}

static void test_random_traffic(uint64_t seed) {
    uint64_t random = seed * 2 + 1;
    tp_send_window w;
    tp_send_window_init(&w, INSTANCE, SENDER, 1u << 30, UINT64_MAX);
    w.next.receiver = RECEIVER;
    while (w.next.seq < MOST_FRAMES) {
        for (uint64_t n = next_random(&random, 200); n > 0 && w.next.seq < MOST_FRAMES; n--) {
            send(&w);
        }
        check_kept(&w);
        acknowledge(&w, next_random(&random, w.next.seq + 3));
        check_kept(&w);
    }
    acknowledge(&w, UINT64_MAX);
    CHECK(w.used == 0 && tp_send_window_pop(&w) == NULL);
    tp_send_window_free(&w);
}

static void test_bounds(void) {
    tp_send_window w;
    tp_send_window_init(&w, INSTANCE, SENDER, 3 * TP_FRAME_OVERHEAD + 100, 90);
    CHECK(tp_send_window_admit(&w, 0) == TP_CLOSED); /* nobody receives yet */
    w.next.receiver = RECEIVER;
    CHECK(tp_send_window_admit(&w, 90) == TP_TAKEN);
    CHECK(tp_send_window_admit(&w, 91) == TP_FULL); /* larger than a frame may be */
    CHECK(tp_send_window_admit(&w, UINT64_MAX - TP_FRAME_OVERHEAD) == TP_FULL);
    const uint64_t sizes[] = {60, 40, 0};
    for (int i = 0; i < 3; i++) {
        CHECK(tp_send_window_admit(&w, sizes[i]) == TP_TAKEN);
        CHECK(tp_send_window_reserve(&w) == TP_OK);
        const enum tp_sent sent = tp_send_window_sent(&w, &w, sizes[i]);
        CHECK(sent == (i == 0 ? TP_FIRST : TP_TAKEN));
    }
    CHECK(w.used == w.bound && tp_send_window_admit(&w, 0) == TP_FULL);
    tp_send_window_keep(&w, &w, 1); /* numbered in spite of the bound, as a push is */
    CHECK(tp_send_window_admit(&w, 0) == TP_FULL);
    CHECK(tp_send_window_pop(&w) != NULL && tp_send_window_admit(&w, 0) == TP_FULL);
    CHECK(tp_send_window_pop(&w) != NULL && tp_send_window_admit(&w, 0) == TP_TAKEN);
    tp_send_window_free(&w);
}

static void test_looks_for_acknowledgements_now_and_then(void) {
    tp_send_window w;
    tp_send_window_init(&w, INSTANCE, SENDER, 1u << 20, UINT32_MAX);
    w.next.receiver = RECEIVER;
    for (unsigned i = 1; i <= 3 * TP_LOOK_EVERY; i++) {
        CHECK(tp_send_window_reserve(&w) == TP_OK);
        const enum tp_sent sent = tp_send_window_sent(&w, &w, 1);
        CHECK((sent == TP_LOOK) == (i % TP_LOOK_EVERY == 0));
    }
    tp_send_window_free(&w);
}

/* Writes the acknowledgement of docs/lanes.md into `out`; returns its size. */
static size_t write_ack(uint8_t *out, uint64_t instance, uint64_t sender, uint64_t receiver,
                        uint64_t applied) {
    static const char body[] = "\x82\xa4type\xa3"
                               "ack\xa7"
                               "applied";
    const uint8_t head[] = {0x94, TP_KIND_LANE, TP_WIRE_VERSION, 0x94};
    uint8_t *p = out;
    memcpy(p, head, sizeof head);
    p = tp_write_uint(p + sizeof head, instance);
    p = tp_write_uint(p, sender);
    p = tp_write_uint(p, receiver);
    p = tp_write_uint(p, 0);
    memcpy(p, body, sizeof body - 1);
    return (size_t)(tp_write_uint(p + sizeof body - 1, applied) - out);
}

static void test_hears_only_its_receiver(void) {
    uint8_t message[128];
    uint64_t applied = 0;
    tp_send_window w;
    tp_send_window_init(&w, INSTANCE, SENDER, 1000, UINT32_MAX);
    w.next.receiver = RECEIVER;
    size_t size = write_ack(message, INSTANCE, RECEIVER, SENDER, 70000);
    CHECK(tp_send_window_hear(&w, message, size, &applied) && applied == 70000);
    for (size_t cut = 0; cut < size; cut++) {
        uint8_t *exact = malloc(cut + (cut == 0)); /* so that the sanitizer sees a read past the end */
        memcpy(exact, message, cut);
        CHECK(!tp_send_window_hear(&w, exact, cut, &applied));
        free(exact);
    }
    CHECK(!tp_send_window_hear(&w, message, size + 1, &applied)); /* a byte follows */
    size = write_ack(message, INSTANCE + 1, RECEIVER, SENDER, 1);
    CHECK(!tp_send_window_hear(&w, message, size, &applied));
    size = write_ack(message, INSTANCE, RECEIVER + 1, SENDER, 1);
    CHECK(!tp_send_window_hear(&w, message, size, &applied));
    size = write_ack(message, INSTANCE, RECEIVER, SENDER + 1, 1);
    CHECK(!tp_send_window_hear(&w, message, size, &applied));
    w.next.receiver = 0;
    size = write_ack(message, INSTANCE, 0, SENDER, 1);
    CHECK(!tp_send_window_hear(&w, message, size, &applied));
    tp_send_window_free(&w);
}

static void test_checks_number_and_receiver(void) {
    const uint8_t frame[] = {0x94, TP_KIND_CONTROL, TP_WIRE_VERSION, 0x94, INSTANCE, SENDER, RECEIVER, 1,
                             0x80};
    enum tp_sent sent;
    tp_send_window w;
    tp_send_window_init(&w, INSTANCE, SENDER, 1000, UINT32_MAX);
    w.next.receiver = RECEIVER;
    CHECK(tp_send_window_check(&w, frame, sizeof frame, &sent) == TP_OK && sent == TP_TAKEN);
    CHECK(tp_send_window_check(&w, frame, 7, &sent) == TP_E_TRUNCATED);
    w.next.seq = 2;
    CHECK(tp_send_window_check(&w, frame, sizeof frame, &sent) == TP_OK && sent == TP_MISADDRESSED);
    w.next.seq = 1;
    w.next.receiver = RECEIVER + 1;
    CHECK(tp_send_window_check(&w, frame, sizeof frame, &sent) == TP_OK && sent == TP_MISADDRESSED);
    tp_send_window_free(&w);
}

int main(void) {
    for (uint64_t seed = 0; seed < 20; seed++) {
        test_random_traffic(seed);
    }
    test_bounds();
    test_looks_for_acknowledgements_now_and_then();
    test_hears_only_its_receiver();
    test_checks_number_and_receiver();
    puts("ok");
    return 0;
}
