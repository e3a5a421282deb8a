/* SocketRecv: takes messages from a ROUTER socket while each is the sender's next data frame. */
#ifndef TP_SOCKET_RECV_BINDING_H
#define TP_SOCKET_RECV_BINDING_H

#include "py/core.h"

int tp_init_socket_recv(PyObject *module);

#endif
