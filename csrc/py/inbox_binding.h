/* Inbox: the map from request key to Stream, fed with OutputFrames. */
#ifndef TP_INBOX_BINDING_H
#define TP_INBOX_BINDING_H

#include "py/core.h"

/* Whether an object is an Inbox. */
int tp_is_inbox(PyObject *object);

/* Call it after StreamNext and StreamWaiter are added: an Inbox uses them. */
int tp_init_inbox(PyObject *module);

#endif
