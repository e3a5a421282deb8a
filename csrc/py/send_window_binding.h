/* SendWindow: the work of a lane's sender on each frame, in one call. */
#ifndef TP_SEND_WINDOW_BINDING_H
#define TP_SEND_WINDOW_BINDING_H

#include "py/core.h"
#include "pack/send_window.h"

typedef struct SendWindow {
    PyObject_HEAD
    tp_send_window window; /* of bytes objects */
    PyObject *put;         /* hands a frame to the transport; NULL: the garbage collector has cleared it */
    tp_state *state;       /* state of the module; the module lives longer than its types */
    uint64_t life;         /* state->forks when this was made; a forked child has another number */
    uint64_t thread;       /* the only thread that may send; 0: any */
    uint8_t put_is_socket; /* put is a SocketSend */
    uint8_t sending;       /* put() runs */
} SendWindow;

/* Puts, numbers and keeps a frame. Its header must be the window's `next`; it is not checked. Returns an enum
 * tp_sent, or -1 with an exception. If put() raised, nobody knows whether the frame was sent, so the frame is
 * kept. window.next tells whether the frame has its number. */
int tp_py_window_send(SendWindow *self, PyObject *frame);

int tp_init_send_window(PyObject *module);

#endif
