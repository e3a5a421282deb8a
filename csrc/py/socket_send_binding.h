/* SocketSend: calls send(frame, flags) of a socket directly from C. Returns whether the socket took the
 * frame. */
#ifndef TP_SOCKET_SEND_BINDING_H
#define TP_SOCKET_SEND_BINDING_H

#include "py/core.h"

/* 1: taken. 0: not now. -1: an exception. */
int tp_socket_send(PyObject *socket_send, PyObject *frame);

int tp_init_socket_send(PyObject *module);

#endif
