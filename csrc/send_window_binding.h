/* The sending end of a lane, as far as every frame passes it: numbers, retains and hands over. */
#ifndef TP_SEND_WINDOW_BINDING_H
#define TP_SEND_WINDOW_BINDING_H

#include <sys/types.h>

#include "core.h"

#define TP_FRAME_OVERHEAD 64u /* bytes charged per retained frame beside its own: bounds tiny ones */

/* What became of a frame. Up to TP_LOOK it is taken. */
enum tp_sent { TP_TAKEN, TP_FIRST, TP_LOOK, TP_CLOSED, TP_MISADDRESSED, TP_FULL, TP_REFUSED };

typedef struct tp_send_window {
    PyObject_HEAD
    tp_lane_header next; /* what the next frame must carry; receiver 0: the lane takes nothing now */
    uint64_t first;      /* oldest retained, or next.seq */
    uint64_t bound, used;
    PyObject **ring; /* frame n at n & mask */
    uint64_t mask;   /* capacity - 1; the ring is NULL before the first frame */
    PyObject *put;
    pid_t pid;
    uint32_t until_look;
} tp_send_window;

#endif
