/* How a consumer waits for a stream, and how a stream leaves its inbox. */
#ifndef TP_STREAM_PARK_BINDING_H
#define TP_STREAM_PARK_BINDING_H

#include "py/client_objects.h"

/* A consumer waits on this object. Meanwhile the stream owns itself, so nobody else has to hold it. */
void tp_stream_park(Stream *self, PyObject *waiting_on);

/* Ends the wait. Returns a reference to the object that the consumer waits on. NULL: nobody waits. */
PyObject *tp_stream_unpark(Stream *self);

/* Moves the object that a consumer waits on to the inbox's list `wake`. 0, or -1 with an exception. */
int tp_stream_rouse(Stream *self);

/* Takes the stream out of the inbox, and reports a live one to on_drop. A set exception stays set. */
void tp_stream_leave(Stream *self);

#endif
