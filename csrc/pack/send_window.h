/* The sending end of a lane: it numbers the frames, keeps those that the receiver has not acknowledged, and
 * bounds how many bytes it keeps. It does not read frames: the caller gives a pointer and a size, and
 * gets each pointer back once. The functions that run for every frame are inline. */
#ifndef TP_SEND_WINDOW_H
#define TP_SEND_WINDOW_H

#include "wire/layout.h"
#include "wire/result.h"

#define TP_FRAME_OVERHEAD 64u /* added to the bytes of each frame, to bound the number of tiny frames */
#define TP_LOOK_EVERY     32u /* frames between two looks for acknowledgements */

/* The result of a send. Up to TP_LOOK, the lane has taken the frame. */
enum tp_sent {
    TP_TAKEN,
    TP_FIRST,  /* taken, and it is the only kept frame */
    TP_LOOK,   /* taken, and it is time to look for acknowledgements */
    TP_CLOSED, /* the lane has no receiver now */
    TP_MISADDRESSED,
    TP_FULL,
    TP_REFUSED /* the transport could not take it now */
};

typedef struct tp_kept {
    void *frame;
    uint64_t size; /* its bytes */
} tp_kept;

typedef struct tp_send_window {
    tp_lane_header next; /* what the next frame must carry; receiver 0: the lane is closed */
    uint64_t first;      /* number of the oldest frame that is kept, or next.seq */
    uint64_t bound;      /* bytes that may be kept, overhead included */
    uint64_t used;       /* bytes that are kept, overhead included */
    uint64_t most;       /* most bytes of one frame, overhead included */
    tp_kept *ring;       /* frame n is at n & mask; NULL before the first frame */
    uint64_t mask;       /* capacity - 1 */
    uint32_t until_look; /* frames until the next TP_LOOK */
} tp_send_window;

/* max_frame UINT32_MAX or more: a frame may have any size. */
void tp_send_window_init(tp_send_window *w, uint64_t instance, uint64_t sender, uint64_t bound,
                         uint64_t max_frame);
/* Frees the ring. The caller has taken all frames before. */
void tp_send_window_free(tp_send_window *w);

/* Doubles the ring. */
tp_result tp_send_window_grow(tp_send_window *w);

static inline uint64_t tp_send_window_count(const tp_send_window *w) { return w->next.seq - w->first; }

/* Makes room for one more frame. */
static inline tp_result tp_send_window_reserve(tp_send_window *w) {
    return w->ring != NULL && tp_send_window_count(w) <= w->mask ? TP_OK : tp_send_window_grow(w);
}

/* Whether a frame of this size may be sent now: TP_TAKEN, TP_CLOSED or TP_FULL. */
static inline enum tp_sent tp_send_window_admit(const tp_send_window *w, uint64_t size) {
    const uint64_t cost = size + TP_FRAME_OVERHEAD;
    if (w->next.receiver == 0) {
        return TP_CLOSED;
    }
    return w->used > w->bound || cost > w->bound - w->used || cost > w->most ? TP_FULL : TP_TAKEN;
}

/* Numbers a frame and keeps it. There must be room: see tp_send_window_reserve. */
static inline void tp_send_window_keep(tp_send_window *w, void *frame, uint64_t size) {
    w->ring[w->next.seq & w->mask] = (tp_kept){frame, size};
    w->used += size + TP_FRAME_OVERHEAD;
    w->next.seq++;
}

/* The same for a frame that the transport took: TP_TAKEN, TP_FIRST or TP_LOOK. */
static inline enum tp_sent tp_send_window_sent(tp_send_window *w, void *frame, uint64_t size) {
    const int alone = tp_send_window_count(w) == 0;
    tp_send_window_keep(w, frame, size);
    if (--w->until_look == 0) {
        w->until_look = TP_LOOK_EVERY;
        return TP_LOOK;
    }
    return alone ? TP_FIRST : TP_TAKEN;
}

/* Returns the oldest frame and forgets it. NULL: no frame is kept. */
void *tp_send_window_pop(tp_send_window *w);

/* Returns the kept frame with this number. NULL: it is not kept. */
void *tp_send_window_find(const tp_send_window *w, uint64_t seq);

/* `applied` is the number of the last frame that the receiver applied. Returns how many kept frames this
 * acknowledges. */
uint64_t tp_send_window_acknowledged(const tp_send_window *w, uint64_t applied);

/* Reads a message. 1: it acknowledges frames of this sender and comes from its receiver; *applied is set.
 * 0: it is another message. */
int tp_send_window_hear(const tp_send_window *w, const uint8_t *data, size_t size, uint64_t *applied);

/* Checks that a frame has the number and the receiver that the next frame must have. Sets *sent to TP_TAKEN
 * or TP_MISADDRESSED. Fails if the bytes are not a frame. */
tp_result tp_send_window_check(const tp_send_window *w, const uint8_t *data, size_t size, enum tp_sent *sent);

#endif
