/* Applies rows to streams. */
#include "stream/inbox.h"

#include <stdlib.h>

#include "buffer.h"

tp_result tp_inbox_init(tp_inbox *inbox, size_t stream_bytes) {
    *inbox = (tp_inbox){.stream_bytes = stream_bytes};
    return tp_stream_map_init(&inbox->map);
}

void tp_inbox_clear(tp_inbox *inbox) {
    tp_stream_map_clear(&inbox->map);
    free(inbox->woken);
    free(inbox->notes);
    *inbox = (tp_inbox){.woken = NULL};
}

/* The text or the extras of a row. */
typedef struct part {
    const uint8_t *bytes;
    uint32_t size;
    uint64_t offset; /* bytes of the request before it */
} part;

/* A row. Its end is read from the frame only if it has one. */
typedef struct row {
    tp_piece piece;
    uint32_t offset, index;
    part text, extras;
    const tp_output_view *view;
    const uint8_t *error;
    uint32_t error_len;
} row;

/* How much of each column the earlier rows have used. */
typedef struct cursor {
    size_t tokens, entries, ranks, error, text, extras;
} cursor;

/* How much of each column a row uses. */
typedef struct lengths {
    uint32_t tokens, error, text, extras;
    int32_t k;
} lengths;

static void note(tp_inbox *inbox, tp_stream *stream, uint32_t kind, uint64_t offset) {
    inbox->notes[inbox->note_count++] = (tp_note){stream, (uint32_t)offset, kind};
}

static void remove_stream(tp_inbox *inbox, tp_stream *stream, uint32_t kind, uint64_t offset) {
    tp_stream_map_remove(&inbox->map, stream);
    note(inbox, stream, kind, offset);
}

/* Cuts off the first tokens of a row. */
static void trim(tp_piece *piece, uint32_t known) {
    piece->tokens += (size_t)known * 4;
    piece->count -= known;
    if (piece->k >= 0) {
        const size_t entries = ((size_t)piece->k + 1) * known;
        piece->lp_ids += entries * 4;
        piece->lp_values += entries * 4;
        piece->lp_ranks += (size_t)known * 4;
    }
}

/* Cuts off the bytes that the stream already has. Returns 0 if bytes before the rest are missing. A client
 * that has the tokens of a row also has all bytes before it, so missing bytes will never come. */
static int trim_part(const tp_waiting *have, part *part) {
    const uint64_t end = have == NULL ? 0 : have->offset + have->len;
    if (part->offset > end) {
        return 0;
    }
    const uint64_t known = end - part->offset < part->size ? end - part->offset : part->size;
    part->bytes += known;
    part->size -= (uint32_t)known;
    return 1;
}

/* Whether the consumer is too slow. A consumer that had nothing to take is never too slow, even if much comes
 * at once. Tokens that a stream keeps for later items do not count, because the request's length bounds them.
 */
static int is_too_much(const tp_inbox *inbox, const tp_stream *stream, const row *row) {
    if (stream->kind != TP_DELTA || !tp_stream_ready(stream)) {
        return 0;
    }
    const size_t tokens = row->piece.count > 0 ? tp_piece_bytes(&row->piece) : 0;
    const size_t more = tokens + row->text.size + row->extras.size;
    return more > 0 && tp_stream_bytes(stream) + more > inbox->stream_bytes;
}

static inline uint32_t u32_at(const uint8_t *column, uint32_t i, uint32_t absent) {
    return column == NULL ? absent : tp_load_u32(column + 4 * (size_t)i);
}

static inline int32_t i32_at(const uint8_t *column, uint32_t i, int32_t absent) {
    return column == NULL ? absent : tp_load_i32(column + 4 * (size_t)i);
}

/* Ends the stream, if the row is the final one of its request. */
static void end_stream(tp_inbox *inbox, tp_stream *stream, const row *row) {
    const tp_output_view *v = row->view;
    const uint32_t i = row->index;
    if (v->finish == NULL || v->finish[i] == TP_FINISH_NONE) {
        return;
    }
    const tp_ending ending = {.finish = v->finish[i],
                              .error_code = v->error_code == NULL ? TP_ERROR_NONE : v->error_code[i],
                              .error_field = v->error_field == NULL ? 0 : v->error_field[i],
                              .stop_reason = i32_at(v->stop_reason, i, TP_NO_STOP),
                              .stop_string = i32_at(v->stop_string, i, TP_NO_STOP),
                              .error = row->error,
                              .error_len = row->error_len};
    stream->cached = u32_at(v->cached, i, 0);
    tp_stream_end(stream, &ending);
    remove_stream(inbox, stream, TP_NOTE_ENDED, 0);
}

/* Appends the data of the row. */
static tp_result append(tp_inbox *inbox, tp_stream *stream, const row *row) {
    if (row->text.size > 0) {
        TP_TRY(tp_stream_append_text(stream, row->text.bytes, row->text.size));
    }
    if (row->extras.size > 0) {
        TP_TRY(tp_stream_append_extras(stream, row->extras.bytes, row->extras.size));
    }
    TP_TRY(tp_stream_append(stream, &row->piece));
    inbox->tokens += row->piece.count;
    return TP_OK;
}

static tp_result apply(tp_inbox *inbox, tp_stream *stream, row *row) {
    const int was_ready = tp_stream_ready(stream);
    const uint64_t end = (uint64_t)stream->offset + stream->len;
    if (row->offset == TP_OFFSET_UNKNOWN && row->piece.count == 0) {
        row->offset = (uint32_t)end;
    }
    if (row->offset > end) {
        inbox->ahead_rows++;
        note(inbox, stream, TP_NOTE_AHEAD, row->offset);
        return TP_OK;
    }
    const uint64_t known = end - row->offset < row->piece.count ? end - row->offset : row->piece.count;
    if (known > 0) {
        inbox->repeated_tokens += known;
        trim(&row->piece, (uint32_t)known);
    }
    if (is_too_much(inbox, stream, row)) {
        remove_stream(inbox, stream, TP_NOTE_SLOW, row->offset);
        return TP_OK;
    }
    if (row->text.size > 0 && !trim_part(&stream->text, &row->text)) {
        remove_stream(inbox, stream, TP_NOTE_TORN, row->text.offset);
        return TP_OK;
    }
    if (row->extras.size > 0 && !trim_part(stream->extras, &row->extras)) {
        remove_stream(inbox, stream, TP_NOTE_APART, row->offset);
        return TP_OK;
    }
    const tp_result result = append(inbox, stream, row);
    if (result == TP_OK) {
        end_stream(inbox, stream, row);
    }
    if (!was_ready && tp_stream_ready(stream)) { /* perhaps by a part of a row for which there is no memory */
        inbox->woken[inbox->woken_count++] = stream;
    }
    return result;
}

static inline lengths lengths_of(const tp_output_view *v, uint32_t i) {
    return (lengths){.tokens = u32_at(v->counts, i, 1),
                     .error = v->error_len == NULL ? 0 : tp_load_u16(v->error_len + 2 * (size_t)i),
                     .text = u32_at(v->text_len, i, 0),
                     .extras = u32_at(v->extras_len, i, 0),
                     .k = i32_at(v->lp_k, i, -1)};
}

static inline void advance(cursor *at, const lengths *n) {
    at->tokens += n->tokens;
    at->error += n->error;
    at->text += n->text;
    at->extras += n->extras;
    if (n->k >= 0) {
        at->entries += ((size_t)n->k + 1) * n->tokens;
        at->ranks += n->tokens;
    }
}

static inline row read_row(const tp_output_view *v, uint32_t i, const cursor *at, const lengths *n) {
    row row = {.piece = {.count = n->tokens, .k = n->k},
               .offset = u32_at(v->offsets, i, 0),
               .index = i,
               .text.size = n->text,
               .extras.size = n->extras,
               .view = v,
               .error_len = n->error};
    if (n->tokens > 0) {
        row.piece.tokens = v->token_ids + 4 * at->tokens;
    }
    if (n->tokens > 0 && n->k >= 0) {
        row.piece.lp_ids = v->lp_ids + 4 * at->entries;
        row.piece.lp_values = v->lp_values + 4 * at->entries;
        row.piece.lp_ranks = v->lp_ranks + 4 * at->ranks;
    }
    if (n->text > 0) {
        row.text.bytes = v->text + at->text;
        row.text.offset = u32_at(v->text_offset, i, 0);
    }
    if (n->extras > 0) {
        row.extras.bytes = v->extras + at->extras;
        row.extras.offset = v->extras_offset == NULL ? 0 : tp_load_u64(v->extras_offset + 8 * (size_t)i);
    }
    if (n->error > 0) {
        row.error = v->error + at->error;
    }
    return row;
}

tp_result tp_inbox_feed(tp_inbox *inbox, const tp_output_view *view) {
    inbox->woken_count = 0;
    inbox->note_count = inbox->kept_notes;
    TP_TRY(tp_buffer_grow(&inbox->woken, sizeof(tp_stream *), &inbox->woken_capacity, view->rows));
    TP_TRY(tp_buffer_grow(&inbox->notes, sizeof *inbox->notes, &inbox->note_capacity,
                          inbox->kept_notes + (uint64_t)view->rows));
    inbox->frames++;
    inbox->depth = view->rows == 0 ? 0 : view->tokens / view->rows;
    inbox->rows += view->rows;
    cursor at = {0};
    for (uint32_t i = 0; i < view->rows; i++) {
        const lengths n = lengths_of(view, i);
        tp_stream *stream = tp_stream_map_find(&inbox->map, tp_load_u64(view->keys + 8 * (size_t)i));
        if (stream == NULL) {
            inbox->unknown_rows++;
        } else {
            row row = read_row(view, i, &at, &n);
            TP_TRY(apply(inbox, stream, &row));
        }
        advance(&at, &n);
    }
    return TP_OK;
}
