/* A client's inbox: it feeds OutputFrames to streams.
 *
 * A row names the token offset at which it begins. So a frame may be fed again: the tokens that the stream
 * already has are cut off. If tokens before a row are missing, the row is not applied, and it gives a note.
 */
#ifndef TP_INBOX_H
#define TP_INBOX_H

#include "stream/stream_map.h"
#include "wire/output.h"
#include "wire/result.h"

enum tp_note_kind {
    TP_NOTE_ENDED = 0, /* the final row was applied, and the inbox has removed the stream */
    TP_NOTE_AHEAD = 1, /* a row begins at `offset`, but tokens before it are missing */
    TP_NOTE_SLOW = 2,  /* more bytes wait than a stream may hold; the inbox has removed the stream */
    TP_NOTE_TORN = 3,  /* text before the row is missing, and will never come */
    TP_NOTE_APART = 4  /* the same for extras */
};

typedef struct tp_note {
    tp_stream *stream;
    uint32_t offset;
    uint32_t kind;
} tp_note;

typedef struct tp_inbox {
    tp_stream_map map;
    size_t stream_bytes; /* most bytes that may wait in a stream */
    /* The results of the last feed. The next feed empties both lists, except the kept notes. */
    tp_stream **woken; /* streams that have become ready */
    uint32_t woken_count, woken_capacity;
    tp_note *notes;
    uint32_t note_count, note_capacity;
    uint32_t kept_notes; /* the caller could not use these notes of earlier feeds, and gets them again */
    uint64_t frames, rows, tokens, repeated_tokens, ahead_rows, unknown_rows;
    uint32_t depth; /* tokens per row of the last frame */
} tp_inbox;

tp_result tp_inbox_init(tp_inbox *inbox, size_t stream_bytes);
void tp_inbox_clear(tp_inbox *inbox);

/* Applies every row. After TP_E_MEMORY the frame may be fed again. */
tp_result tp_inbox_feed(tp_inbox *inbox, const tp_output_view *view);

#endif
