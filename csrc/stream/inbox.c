/* Rows to streams: one probe and one append a row. */
#include "stream/inbox.h"

#include <stdlib.h>

/* Makes room for `count` items of `size` bytes; what was in it may be lost. */
static int reserve(void *array, uint32_t *cap, uint32_t count, size_t size) {
    void **where = array;
    if (count <= *cap) {
        return 1;
    }
    free(*where);
    *where = malloc((size_t)count * size);
    *cap = *where == NULL ? 0 : count;
    return *where != NULL;
}

static void note(tp_inbox *inbox, tp_stream *stream, uint32_t kind, uint32_t offset) {
    inbox->notes[inbox->note_count++] = (tp_note){stream, offset, kind};
}

/* A row's part of its request's annexes. */
typedef struct beside {
    const uint8_t *bytes;
    uint32_t size;
    uint64_t offset;
} beside;

/* One row of the frame, its columns looked up. */
typedef struct row {
    tp_piece piece;
    uint32_t offset;
    tp_ending ending;
    const uint8_t *text;
    uint32_t text_len, text_offset, cached;
    const beside *annex; /* NULL: none */
} row;

/* Drops what the stream already has from the front of the row's tokens. */
static void trim(tp_piece *piece, uint32_t known) {
    size_t entries = piece->k < 0 ? 0 : ((size_t)piece->k + 1) * known;
    piece->tokens += (size_t)known * 4;
    piece->count -= known;
    if (piece->k >= 0) {
        piece->lp_ids += entries * 4;
        piece->lp_values += entries * 4;
        piece->lp_ranks += (size_t)known * 4;
    }
}

/* Appends what is new of the row's text. Who has a row's tokens has all text before it, so text that
 * is missing will not come: 0 is that. */
static int take_text(tp_stream *stream, row *row, tp_result *result) {
    const uint64_t have = (uint64_t)stream->text_offset + stream->text_len;
    if (row->text_offset > have) {
        return 0;
    }
    const uint64_t known = have - row->text_offset;
    if (known < row->text_len) {
        *result = tp_stream_append_text(stream, row->text + known, row->text_len - (uint32_t)known);
    }
    return 1;
}

/* The same of its annexes. */
static int take_annex(tp_stream *stream, const beside *annex, tp_result *result) {
    const uint64_t have = stream->annex == NULL ? 0 : stream->annex->offset + stream->annex->len;
    if (annex->offset > have) {
        return 0;
    }
    const uint64_t known = have - annex->offset;
    if (known < annex->size) {
        *result = tp_stream_append_annex(stream, annex->bytes + known, annex->size - (uint32_t)known);
    }
    return 1;
}

static tp_result apply(tp_inbox *inbox, tp_stream *stream, row *row) {
    int was_ready = tp_stream_ready(stream);
    uint64_t end = (uint64_t)stream->offset + stream->len;
    if (row->offset == TP_OFFSET_UNKNOWN && row->piece.count == 0) {
        row->offset = (uint32_t)end;
    }
    if (row->offset > end) {
        inbox->ahead_rows++;
        note(inbox, stream, TP_NOTE_AHEAD, row->offset);
        return TP_OK;
    }
    uint64_t known = end - row->offset;
    if (known > row->piece.count) {
        known = row->piece.count;
    }
    if (known > 0) {
        inbox->repeated_tokens += known;
        trim(&row->piece, (uint32_t)known);
    }
    /* What a stream keeps because its next item is to hold it is bounded by the request's length; and
     * who had nothing to take is not slow, however much comes at once. */
    if ((row->piece.count > 0 || row->text_len > 0 || row->annex != NULL) && was_ready &&
        stream->kind == TP_DELTA &&
        tp_stream_bytes(stream) + row->text_len + (row->annex == NULL ? 0 : row->annex->size) +
                (row->piece.count > 0 ? tp_piece_bytes(&row->piece) : 0) >
            inbox->stream_bytes) {
        tp_inbox_remove(inbox, stream);
        note(inbox, stream, TP_NOTE_SLOW, row->offset);
        return TP_OK;
    }
    if (row->text_len > 0) {
        tp_result result = TP_OK;
        if (!take_text(stream, row, &result)) {
            tp_inbox_remove(inbox, stream);
            note(inbox, stream, TP_NOTE_TORN, row->text_offset);
            return TP_OK;
        }
        if (result != TP_OK) {
            return result;
        }
    }
    if (row->annex != NULL) {
        tp_result result = TP_OK;
        if (!take_annex(stream, row->annex, &result)) {
            tp_inbox_remove(inbox, stream);
            note(inbox, stream, TP_NOTE_APART, row->offset);
            return TP_OK;
        }
        if (result != TP_OK) {
            return result;
        }
    }
    if (row->piece.count > 0) {
        tp_result result = tp_stream_append(stream, &row->piece);
        if (result != TP_OK) {
            return result;
        }
        inbox->tokens += row->piece.count;
    }
    if (row->ending.finish != TP_FINISH_NONE) {
        stream->cached = row->cached;
        tp_stream_end(stream, &row->ending);
        tp_inbox_remove(inbox, stream);
        note(inbox, stream, TP_NOTE_ENDED, 0);
    }
    if (!was_ready && tp_stream_ready(stream)) {
        inbox->woken[inbox->woken_count++] = stream;
    }
    return TP_OK;
}

/* The annexes of row i, which begin `at` bytes behind those of the first; 0: it has none. */
static int find_annex(const tp_output_view *view, uint32_t i, size_t at, beside *annex) {
    *annex =
        (beside){.bytes = view->annex + at,
                 .size = tp_load_u32(view->annex_len + 4 * (size_t)i),
                 .offset = view->annex_offset == NULL ? 0 : tp_load_u64(view->annex_offset + 8 * (size_t)i)};
    return annex->size > 0;
}

tp_result tp_inbox_feed(tp_inbox *inbox, const tp_output_view *view) {
    inbox->woken_count = inbox->note_count = 0;
    if (!reserve(&inbox->woken, &inbox->woken_cap, view->rows, sizeof *inbox->woken) ||
        !reserve(&inbox->notes, &inbox->note_cap, view->rows, sizeof *inbox->notes)) {
        return TP_E_MEMORY;
    }
    inbox->frames++;
    inbox->depth = view->rows == 0 ? 0 : view->tokens / view->rows;
    inbox->rows += view->rows;
    size_t token = 0, entry = 0, ranked = 0, letter = 0, text = 0, annex = 0; /* how far each is read */
    for (uint32_t i = 0; i < view->rows; i++) {
        uint32_t count = view->counts == NULL ? 1 : tp_load_u32(view->counts + 4 * (size_t)i);
        int32_t k = view->lp_k == NULL ? -1 : tp_load_i32(view->lp_k + 4 * (size_t)i);
        uint32_t letters = view->error_len == NULL ? 0 : tp_load_u16(view->error_len + 2 * (size_t)i);
        uint32_t text_len = view->text_len == NULL ? 0 : tp_load_u32(view->text_len + 4 * (size_t)i);
        tp_stream *stream = tp_inbox_find(inbox, tp_load_u64(view->keys + 8 * (size_t)i));
        if (stream == NULL) {
            inbox->unknown_rows++;
        } else {
            row row = {
                .piece = {.count = count, .k = k},
                .offset = view->offsets == NULL ? 0 : tp_load_u32(view->offsets + 4 * (size_t)i),
                .ending = {.finish = view->finish == NULL ? TP_FINISH_NONE : view->finish[i],
                           .error_code = view->error_code == NULL ? TP_ERROR_NONE : view->error_code[i],
                           .error_field = view->error_field == NULL ? 0 : view->error_field[i],
                           .stop_reason = TP_NO_STOP,
                           .stop_string = TP_NO_STOP},
                .text_len = text_len,
            };
            if (count > 0) {
                row.piece.tokens = view->token_ids + 4 * token;
            }
            if (k >= 0) {
                row.piece.lp_ids = view->lp_ids + 4 * entry;
                row.piece.lp_values = view->lp_values + 4 * entry;
                row.piece.lp_ranks = view->lp_ranks + 4 * ranked;
            }
            if (view->stop_reason != NULL) {
                row.ending.stop_reason = tp_load_i32(view->stop_reason + 4 * (size_t)i);
            }
            if (view->stop_string != NULL) {
                row.ending.stop_string = tp_load_i32(view->stop_string + 4 * (size_t)i);
            }
            if (view->cached != NULL) {
                row.cached = tp_load_u32(view->cached + 4 * (size_t)i);
            }
            if (text_len > 0) {
                row.text = view->text + text;
                row.text_offset =
                    view->text_offset == NULL ? 0 : tp_load_u32(view->text_offset + 4 * (size_t)i);
            }
            beside part;
            if (view->annex_bytes > 0 && find_annex(view, i, annex, &part)) {
                row.annex = &part;
            }
            if (letters > 0) {
                row.ending.error = view->error + letter;
                row.ending.error_len = letters;
            }
            tp_result result = apply(inbox, stream, &row);
            if (result != TP_OK) {
                return result;
            }
        }
        token += count;
        letter += letters;
        text += text_len;
        if (view->annex_bytes > 0) {
            annex += tp_load_u32(view->annex_len + 4 * (size_t)i);
        }
        if (k >= 0) {
            entry += ((size_t)k + 1) * count;
            ranked += count;
        }
    }
    return TP_OK;
}
