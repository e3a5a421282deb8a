/* How a consumer waits for a stream, and how a stream leaves its inbox. */
#ifndef TP_STREAM_PARK_BINDING_H
#define TP_STREAM_PARK_BINDING_H

#include "py/client_objects.h"

/* A consumer waits on this object, and the stream owns itself: nobody else need hold it. */
void tp_stream_park(Stream *self, PyObject *waiting_on);

/* Ends the wait. Returns the object that the consumer waits on (a reference), or NULL where nobody waits. */
PyObject *tp_stream_unpark(Stream *self);

/* Moves what a consumer waits on to the inbox's list of those to wake. 0, or -1 with an exception. */
int tp_stream_rouse(Stream *self);

/* Takes the stream out of the inbox, and reports a live one to on_drop. A set exception stays set. */
void tp_stream_leave(Stream *self);

#endif
