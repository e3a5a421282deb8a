/* A client's inbox without memory: the n-th allocation fails, for every n. Each stream gets its tokens,
 * logprobs, text, extras and end once, and each consumer is woken. */
#include <string.h>

#include "check.h"
#include "failing.h"
#include "stream/inbox.h"
#include "wire/output.h"

enum { STREAMS = 4, FRAMES = 10, PER_ROW = 3 };

typedef struct scene {
    tp_inbox inbox;
    tp_stream streams[STREAMS];
    int asleep[STREAMS];
    uint32_t tokens[STREAMS], entries[STREAMS], text[STREAMS], extras[STREAMS];
} scene;

static void wake(scene *s) {
    for (uint32_t i = 0; i < s->inbox.woken_count; i++) {
        s->asleep[s->inbox.woken[i] - s->streams] = 0;
    }
    s->inbox.woken_count = 0;
}

static tp_result feed_once(scene *s, const tp_output_view *view) {
    const tp_result result = tp_inbox_feed(&s->inbox, view);
    wake(s);
    return result;
}

/* Feeds a frame with a row for each stream. */
static void feed(scene *s, uint32_t number) {
    static uint64_t keys[STREAMS], extras_offset[STREAMS];
    static uint32_t counts[STREAMS], offsets[STREAMS], text_len[STREAMS], text_offset[STREAMS],
        extras_len[STREAMS];
    static int32_t tokens[STREAMS * PER_ROW], k[STREAMS], ids[STREAMS * PER_ROW], ranks[STREAMS * PER_ROW];
    static float values[STREAMS * PER_ROW];
    static uint8_t finish[STREAMS], text[STREAMS * 30], extras[STREAMS * 50], error[STREAMS * 5];
    static uint16_t error_len[STREAMS];
    const int last = number == FRAMES - 1, scored = number % 2, beside = number % 3 == 1;
    for (uint32_t i = 0; i < STREAMS; i++) {
        keys[i] = i + 1;
        counts[i] = PER_ROW;
        offsets[i] = number * PER_ROW;
        text_len[i] = 30;
        text_offset[i] = number * 30;
        extras_len[i] = 50;
        extras_offset[i] = (uint64_t)(number / 3) * 50;
        finish[i] = TP_FINISH_ERROR;
        error_len[i] = 5;
    }
    const tp_output_rows rows = {.rows = STREAMS,
                                 .tokens = STREAMS * PER_ROW,
                                 .keys = keys,
                                 .counts = counts,
                                 .token_ids = tokens,
                                 .offsets = offsets,
                                 .finish = last ? finish : NULL,
                                 .error = last ? error : NULL,
                                 .error_len = last ? error_len : NULL,
                                 .error_bytes = last ? sizeof error : 0,
                                 .lp_k = scored ? k : NULL,
                                 .lp_ids = scored ? ids : NULL,
                                 .lp_values = scored ? values : NULL,
                                 .lp_ranks = scored ? ranks : NULL,
                                 .lp_entries = scored ? STREAMS * PER_ROW : 0,
                                 .lp_tokens = scored ? STREAMS * PER_ROW : 0,
                                 .text_len = text_len,
                                 .text = text,
                                 .text_offset = text_offset,
                                 .text_bytes = sizeof text,
                                 .extras_len = beside ? extras_len : NULL,
                                 .extras = beside ? extras : NULL,
                                 .extras_offset = beside ? extras_offset : NULL,
                                 .extras_bytes = beside ? sizeof extras : 0};
    const size_t size = tp_output_size(&rows);
    uint8_t *frame = malloc(size);
    tp_output_view view;
    CHECK(tp_output_write(&rows, frame) == size && tp_output_parse(frame, size, &view) == TP_OK);
    TRY_AGAIN(feed_once(s, &view));
    free(frame);
}

/* A consumer that is awake takes all, and sleeps. A stream with output has no consumer that sleeps. */
static void consume(scene *s, uint32_t i) {
    tp_stream *stream = &s->streams[i];
    CHECK(!tp_stream_ready(stream) || !s->asleep[i]);
    s->tokens[i] += stream->len;
    s->entries[i] += stream->lp_len;
    s->text[i] += stream->text.len;
    if (stream->extras != NULL) {
        s->extras[i] += stream->extras->len;
        tp_stream_took_extras(stream);
    }
    tp_stream_took(stream, stream->len, stream->lp_len);
    s->asleep[i] = 1;
}

/* Returns whether an allocation failed. */
static int run(long n) {
    static scene s;
    memset(&s, 0, sizeof s);
    failed = 0;
    countdown = n;
    TRY_AGAIN(tp_inbox_init(&s.inbox, 1 << 20));
    for (uint32_t i = 0; i < STREAMS; i++) {
        tp_stream_init(&s.streams[i], i + 1);
        TRY_AGAIN(tp_stream_map_add(&s.inbox.map, &s.streams[i]));
        s.asleep[i] = 1;
    }
    for (uint32_t number = 0; number < FRAMES; number++) {
        feed(&s, number);
        for (uint32_t i = 0; i < STREAMS; i++) {
            if (number % (i + 1) == 0 || number == FRAMES - 1) { /* some consumers are slower */
                consume(&s, i);
            }
        }
    }
    for (uint32_t i = 0; i < STREAMS; i++) {
        CHECK(s.tokens[i] == FRAMES * PER_ROW && s.entries[i] == FRAMES / 2 * PER_ROW);
        CHECK(s.text[i] == FRAMES * 30 && s.extras[i] == 3 * 50);
        CHECK(s.streams[i].finish == TP_FINISH_ERROR && !s.streams[i].listed);
        tp_stream_clear(&s.streams[i]);
    }
    tp_inbox_clear(&s.inbox);
    return failed;
}

int main(void) {
    long n = 0;
    while (run(n)) {
        n++;
    }
    CHECK(n > 30); /* the scenario allocates more often than that */
    puts("ok");
    return 0;
}
