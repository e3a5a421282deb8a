/* StreamWaiter: a task that finds nothing in its stream waits on it. Each wait uses the same one.
 *
 * asyncio accepts any object that has the protocol of a future. With asyncio's own Future, a wake-up costs a
 * new object, a Handle and a pass through the loop's queue. Here the inbox keeps the task's callback. It
 * calls the callback in the task's context, from the loop callback that fed the frames. The loop would do the
 * same a moment later. */
#ifndef TP_STREAM_WAITER_BINDING_H
#define TP_STREAM_WAITER_BINDING_H

#include "py/client_objects.h"

/* Prepares the waiter of a stream for a task. Returns a new reference, or NULL with an exception. */
PyObject *tp_stream_waiter_arm(Stream *stream);

/* Wakes the task, before it returns or later from the loop. 0, or -1 with an exception. */
int tp_stream_waiter_wake(PyObject *waiter, int at_once);

int tp_init_stream_waiter(PyObject *module);

#endif
