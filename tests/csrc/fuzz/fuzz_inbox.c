/* A client's inbox: an input is a sequence of frames, of consumers that take output, and of streams that are
 * opened and dropped. A stream never has more than its frames brought, and a woken or ended stream is a
 * stream. */
#include "input.h"

#include "stream/inbox.h"
#include "wire/output.h"

#include <stdlib.h>

enum { STREAMS = 4, ROWS = 5, COUNT = 8, K = 2, PART = 40, FRAME = 8192 };

typedef struct scene {
    tp_inbox inbox;
    tp_stream streams[STREAMS];
    uint8_t open[STREAMS];
    uint8_t frame[FRAME]; /* the last one */
    size_t size;
} scene;

static void open_stream(scene *s, uint32_t i, uint8_t kind) {
    if (s->open[i]) {
        tp_stream_map_remove(&s->inbox.map, &s->streams[i]);
        tp_stream_clear(&s->streams[i]);
    }
    tp_stream_init(&s->streams[i], i + 1);
    s->streams[i].kind = kind % 3;
    CHECK(tp_stream_map_add(&s->inbox.map, &s->streams[i]) == TP_OK);
    s->open[i] = 1;
}

typedef struct rows {
    uint64_t keys[ROWS], extras_offset[ROWS];
    uint32_t counts[ROWS], offsets[ROWS], text_len[ROWS], text_offset[ROWS], extras_len[ROWS], cached[ROWS];
    int32_t tokens[ROWS * COUNT], k[ROWS], ids[ROWS * COUNT * (K + 1)], ranks[ROWS * COUNT], stop[ROWS];
    float values[ROWS * COUNT * (K + 1)];
    uint8_t finish[ROWS], code[ROWS], field[ROWS], text[ROWS * PART], extras[ROWS * PART], error[ROWS * PART];
    uint16_t error_len[ROWS];
    uint32_t all_tokens, entries, scored, text_bytes, extras_bytes, error_bytes;
} rows;

/* A row that follows what its stream has, or nearly. */
static void make_row(const scene *s, input *in, rows *r, uint32_t i) {
    const uint8_t kind = next_byte(in), more = next_byte(in);
    const uint32_t at = next_below(in, STREAMS + 1);
    const tp_stream *stream = &s->streams[at % STREAMS];
    const uint32_t wrong = kind & 1 ? next_below(in, 5) : 2;
    r->keys[i] = at + 1;
    r->counts[i] = next_below(in, COUNT + 1);
    r->offsets[i] = more == 255 ? TP_OFFSET_UNKNOWN : stream->offset + stream->len + wrong - 2;
    r->k[i] = kind & 2 ? (int32_t)next_below(in, K + 2) - 1 : -1;
    r->text_len[i] = kind & 4 ? next_below(in, PART) : 0;
    r->text_offset[i] = (uint32_t)stream->text.offset + stream->text.len + wrong - 2;
    r->extras_len[i] = kind & 8 ? next_below(in, PART) : 0;
    r->extras_offset[i] =
        (stream->extras == NULL ? 0 : stream->extras->offset + stream->extras->len) + wrong - 2;
    r->finish[i] = kind & 16 ? (uint8_t)next_below(in, TP_FINISH_END + 2) : TP_FINISH_NONE;
    r->code[i] = more % (TP_ERROR_END + 2);
    r->error_len[i] = kind & 32 ? (uint16_t)next_below(in, PART) : 0;
    r->field[i] = more % 7;
    r->all_tokens += r->counts[i];
    r->text_bytes += r->text_len[i];
    r->extras_bytes += r->extras_len[i];
    r->error_bytes += r->error_len[i];
    if (r->k[i] >= 0) {
        r->scored += r->counts[i];
        r->entries += r->counts[i] * (uint32_t)(r->k[i] + 1);
    }
}

static void make_frame(scene *s, input *in) {
    static rows r;
    const uint32_t n = 1 + next_below(in, ROWS);
    memset(&r, 0, sizeof r);
    for (uint32_t i = 0; i < n; i++) {
        make_row(s, in, &r, i);
    }
    const int scored = r.entries > 0;
    const tp_output_rows made = {.rows = n,
                                 .tokens = r.all_tokens,
                                 .keys = r.keys,
                                 .counts = r.counts,
                                 .token_ids = r.all_tokens > 0 ? r.tokens : NULL,
                                 .offsets = r.offsets,
                                 .finish = r.finish,
                                 .stop_reason = r.stop,
                                 .lp_k = scored ? r.k : NULL,
                                 .lp_ids = scored ? r.ids : NULL,
                                 .lp_values = scored ? r.values : NULL,
                                 .lp_ranks = scored ? r.ranks : NULL,
                                 .lp_entries = scored ? r.entries : 0,
                                 .lp_tokens = scored ? r.scored : 0,
                                 .error_len = r.error_bytes > 0 ? r.error_len : NULL,
                                 .error = r.error_bytes > 0 ? r.error : NULL,
                                 .error_bytes = r.error_bytes,
                                 .text_len = r.text_bytes > 0 ? r.text_len : NULL,
                                 .text = r.text_bytes > 0 ? r.text : NULL,
                                 .text_offset = r.text_bytes > 0 ? r.text_offset : NULL,
                                 .text_bytes = r.text_bytes,
                                 .extras_len = r.extras_bytes > 0 ? r.extras_len : NULL,
                                 .extras = r.extras_bytes > 0 ? r.extras : NULL,
                                 .extras_offset = r.extras_bytes > 0 ? r.extras_offset : NULL,
                                 .extras_bytes = r.extras_bytes,
                                 .cached = r.cached,
                                 .error_code = r.code,
                                 .error_field = r.field};
    CHECK(tp_output_size(&made) <= FRAME);
    s->size = tp_output_write(&made, s->frame);
}

/* Feeds the last frame, from memory of exactly its size. */
static void feed(scene *s) {
    tp_output_view view;
    uint8_t *exact = malloc(s->size + (s->size == 0));
    CHECK(exact != NULL);
    memcpy(exact, s->frame, s->size);
    if (tp_output_parse(exact, s->size, &view) == TP_OK) {
        CHECK(tp_inbox_feed(&s->inbox, &view) == TP_OK);
        for (uint32_t i = 0; i < s->inbox.woken_count; i++) {
            CHECK(tp_stream_ready(s->inbox.woken[i]));
        }
        for (uint32_t i = 0; i < s->inbox.note_count; i++) {
            const tp_note *note = &s->inbox.notes[i];
            CHECK(note->kind == TP_NOTE_AHEAD || !note->stream->listed);
        }
    }
    free(exact);
}

/* Takes some or all of a stream, as an item does. */
static void take(scene *s, input *in) {
    tp_stream *stream = &s->streams[next_below(in, STREAMS)];
    const uint32_t most = next_below(in, 8);
    uint32_t count = stream->len, entries = 0;
    if (!tp_stream_ready(stream)) {
        return;
    }
    if (most > 0 && most < count && stream->kind == TP_DELTA) {
        count = most;
    }
    for (uint32_t i = 0; stream->lp_k != NULL && i < count; i++) {
        entries += (uint32_t)(stream->lp_k[stream->head + i] + 1);
    }
    if (stream->extras != NULL && most & 1) {
        tp_stream_took_extras(stream);
    }
    tp_stream_took(stream, count, entries);
    stream->told |= count == stream->len && stream->finish != TP_FINISH_NONE;
}

static void check(const scene *s) {
    for (uint32_t i = 0; i < STREAMS; i++) {
        const tp_stream *stream = &s->streams[i];
        uint32_t entries = 0;
        CHECK((uint64_t)stream->head + stream->len <= stream->capacity);
        CHECK((uint64_t)stream->lp_head + stream->lp_len <= stream->lp_capacity);
        for (uint32_t t = 0; stream->lp_k != NULL && t < stream->len; t++) {
            entries += (uint32_t)(stream->lp_k[stream->head + t] + 1);
        }
        CHECK(entries == stream->lp_len && stream->error_field <= stream->error_len);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static scene s;
    input in = {data, data + size};
    memset(&s, 0, sizeof s);
    CHECK(tp_inbox_init(&s.inbox, 2000) == TP_OK);
    for (uint32_t i = 0; i < STREAMS; i++) {
        open_stream(&s, i, (uint8_t)i);
    }
    while (in.at < in.end) {
        switch (next_below(&in, 6)) {
        case 0:
        case 1:
            make_frame(&s, &in);
            feed(&s);
            break;
        case 2: feed(&s); break;
        case 3:
            if (s.size > 0) {
                s.frame[(next_byte(&in) + 256u * next_below(&in, 4)) % s.size] ^= next_byte(&in);
                feed(&s);
            }
            break;
        case 4: take(&s, &in); break;
        default: open_stream(&s, next_below(&in, STREAMS), next_byte(&in));
        }
        check(&s);
    }
    for (uint32_t i = 0; i < STREAMS; i++) {
        tp_stream_map_remove(&s.inbox.map, &s.streams[i]);
        tp_stream_clear(&s.streams[i]);
    }
    tp_inbox_clear(&s.inbox);
    return 0;
}
