/* SocketRecv: takes messages from a ROUTER socket, as long as each is the next data frame of the sender. */
#ifndef TP_SOCKET_RECV_BINDING_H
#define TP_SOCKET_RECV_BINDING_H

#include "py/core.h"

int tp_init_socket_recv(PyObject *module);

#endif
