/* The sending end of a lane, as far as every frame passes it: numbers, retains and hands over. */
#ifndef TP_SEND_WINDOW_BINDING_H
#define TP_SEND_WINDOW_BINDING_H

#include "py/core.h"

#define TP_FRAME_OVERHEAD 64u /* bytes charged per retained frame beside its own: bounds tiny ones */

/* What became of a frame. Up to TP_LOOK it is taken. */
enum tp_sent { TP_TAKEN, TP_FIRST, TP_LOOK, TP_CLOSED, TP_MISADDRESSED, TP_FULL, TP_REFUSED };

typedef struct tp_send_window {
    PyObject_HEAD tp_lane_header
        next;       /* what the next frame must carry; receiver 0: the lane takes nothing now */
    uint64_t first; /* oldest retained, or next.seq */
    uint64_t bound, used;
    uint64_t most;   /* of one frame, overhead included */
    PyObject **ring; /* frame n at n & mask */
    uint64_t mask;   /* capacity - 1; the ring is NULL before the first frame */
    PyObject *put;
    tp_state *state; /* of the module, which outlives its types */
    uint64_t life;   /* of the process, by the module's count of forks */
    uint32_t until_look;
    uint8_t put_is_handoff;
} tp_send_window;

/* Hands a frame over, numbers and keeps it: an enum tp_sent, or -1 with an error. Its header is
 * the window's `next`, and is not looked at again. Where put() raised it is kept all the same, for
 * nobody knows how far it came; the window's `next` tells. */
int tp_send_window_send_own(tp_send_window *self, PyObject *frame);

/* handoff_binding.c: 1 taken, 0 not now, -1 with an error. */
int tp_handoff_give(PyObject *handoff, PyObject *frame);

#endif
