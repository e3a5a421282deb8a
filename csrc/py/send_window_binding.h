/* SendWindow: what a lane's sender does with each frame, in one call. */
#ifndef TP_SEND_WINDOW_BINDING_H
#define TP_SEND_WINDOW_BINDING_H

#include "py/core.h"
#include "pack/send_window.h"

typedef struct SendWindow {
    PyObject_HEAD
    tp_send_window window; /* of bytes objects */
    PyObject *put;         /* hands a frame to the transport; NULL: the garbage collector has cleared it */
    tp_state *state;       /* of the module, which outlives its types */
    uint64_t life;         /* state->forks when this was made: in a forked child it is another number */
    uint8_t put_is_socket; /* put is a SocketSend */
} SendWindow;

/* Hands over, numbers and keeps a frame whose header is the window's `next`; the header is not checked.
 * Returns an enum tp_sent, or -1 with an exception. Where put() raised, the frame is kept all the same, for
 * nobody knows whether it was sent: window.next tells whether the frame has its number. */
int tp_py_window_send(SendWindow *self, PyObject *frame);

int tp_init_send_window(PyObject *module);

#endif
