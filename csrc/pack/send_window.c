/* The ring of kept frames, and the handling of acknowledgements. */
#include "pack/send_window.h"

#include <stdlib.h>
#include <string.h>

#include "wire/envelope.h"

#define FIRST_SLOTS 64u

void tp_send_window_init(tp_send_window *w, uint64_t instance, uint64_t sender, uint64_t bound,
                         uint64_t max_frame) {
    memset(w, 0, sizeof *w);
    w->next = (tp_lane_header){instance, sender, 0, 1};
    w->first = 1;
    w->bound = bound;
    w->most = max_frame < UINT32_MAX ? max_frame + TP_FRAME_OVERHEAD : UINT64_MAX;
    w->until_look = TP_LOOK_EVERY;
}

void tp_send_window_free(tp_send_window *w) {
    free(w->ring);
    w->ring = NULL;
}

tp_result tp_send_window_grow(tp_send_window *w) {
    const uint64_t capacity = w->ring == NULL ? FIRST_SLOTS : 2 * (w->mask + 1);
    tp_kept *ring = calloc((size_t)capacity, sizeof *ring);
    if (ring == NULL) {
        return TP_E_MEMORY;
    }
    for (uint64_t seq = w->first; seq < w->next.seq; seq++) { /* a frame's place depends on the capacity */
        ring[seq & (capacity - 1)] = w->ring[seq & w->mask];
    }
    free(w->ring);
    w->ring = ring;
    w->mask = capacity - 1;
    return TP_OK;
}

void *tp_send_window_pop(tp_send_window *w) {
    if (tp_send_window_count(w) == 0) {
        return NULL;
    }
    tp_kept *oldest = &w->ring[w->first & w->mask];
    void *frame = oldest->frame;
    w->used -= oldest->size + TP_FRAME_OVERHEAD;
    *oldest = (tp_kept){NULL, 0};
    w->first++;
    return frame;
}

void *tp_send_window_find(const tp_send_window *w, uint64_t seq) {
    return seq >= w->first && seq < w->next.seq ? w->ring[seq & w->mask].frame : NULL;
}

uint64_t tp_send_window_acknowledged(const tp_send_window *w, uint64_t applied) {
    if (applied < w->first) {
        return 0;
    }
    return applied < w->next.seq ? applied - w->first + 1 : tp_send_window_count(w);
}

int tp_send_window_hear(const tp_send_window *w, const uint8_t *data, size_t size, uint64_t *applied) {
    tp_lane_header lane;
    return w->next.receiver != 0 && tp_ack_read(data, size, &lane, applied) == TP_OK &&
           lane.instance == w->next.instance && lane.sender == w->next.receiver &&
           lane.receiver == w->next.sender;
}

tp_result tp_send_window_check(const tp_send_window *w, const uint8_t *data, size_t size,
                               enum tp_sent *sent) {
    uint32_t kind;
    tp_lane_header lane;
    TP_TRY(tp_frame_peek(data, size, &kind, &lane));
    *sent = lane.seq == w->next.seq && lane.receiver == w->next.receiver ? TP_TAKEN : TP_MISADDRESSED;
    return TP_OK;
}
