/* The client's inbox: a map from request key to stream, fed with whole OutputFrames.
 *
 * Output is idempotent: a row says at which offset of its request it begins, so a row that comes
 * again is trimmed to what is new. A row that begins behind what is known is not applied but noted;
 * its frame may be fed again later, for the same reason. */
#ifndef TP_INBOX_H
#define TP_INBOX_H

#include "stream/stream.h"
#include "wire/output.h"
#include "wire/result.h"

enum tp_note_kind {
    TP_NOTE_ENDED = 0, /* its final row was applied; the inbox no longer knows it */
    TP_NOTE_AHEAD = 1, /* a row begins at `offset`, tokens before it are missing */
    TP_NOTE_SLOW = 2,  /* more bytes wait than a stream may hold; the inbox no longer knows it */
    TP_NOTE_TORN = 3,  /* text before the row's is missing, which no lane can bring any more */
    TP_NOTE_APART = 4  /* annexes before the row's are missing, in the same way */
};

typedef struct tp_note {
    tp_stream *stream;
    uint32_t offset;
    uint32_t kind;
} tp_note;

typedef struct tp_inbox {
    tp_stream **slots; /* open addressing, linear probing, no tombstones; a power of two */
    uint32_t mask, used;
    size_t stream_bytes;
    /* What the last feed did. Both lists are emptied when the next one begins. */
    tp_stream **woken; /* had nothing to take before and has something now */
    uint32_t woken_count, woken_cap;
    tp_note *notes;
    uint32_t note_count, note_cap;
    uint64_t frames, rows, tokens, repeated_tokens, ahead_rows, unknown_rows;
    uint32_t depth; /* tokens a row that the last frame had */
} tp_inbox;

tp_result tp_inbox_init(tp_inbox *inbox, size_t stream_bytes);
void tp_inbox_clear(tp_inbox *inbox);

/* The stream stays the caller's and must be removed before it goes. Keys must differ. */
tp_result tp_inbox_add(tp_inbox *inbox, tp_stream *stream);
void tp_inbox_remove(tp_inbox *inbox, tp_stream *stream); /* nothing happens if not listed */

static inline uint32_t tp_inbox_home(const tp_inbox *inbox, uint64_t key) {
    /* Keys of one client differ in their low bits; multiplying spreads neighbours over the map. */
    return (uint32_t)((key * UINT64_C(0x9E3779B97F4A7C15)) >> 32) & inbox->mask;
}

static inline tp_stream *tp_inbox_find(const tp_inbox *inbox, uint64_t key) {
    for (uint32_t i = tp_inbox_home(inbox, key);; i = (i + 1) & inbox->mask) {
        tp_stream *stream = inbox->slots[i];
        if (stream == NULL || stream->key == key) {
            return stream;
        }
    }
}

/* Applies every row. After TP_E_MEMORY the frame may be fed again. */
tp_result tp_inbox_feed(tp_inbox *inbox, const tp_output_view *view);

#endif
