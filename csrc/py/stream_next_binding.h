/* StreamNext: what `await anext(stream)` awaits.
 *
 * While tokens wait, an item costs no future and no pass through the event loop. Only a consumer that finds
 * nothing waits on a StreamWaiter. */
#ifndef TP_STREAM_NEXT_BINDING_H
#define TP_STREAM_NEXT_BINDING_H

#include "py/client_objects.h"

PyObject *tp_stream_anext(Stream *self);

int tp_init_stream_next(PyObject *module);

#endif
