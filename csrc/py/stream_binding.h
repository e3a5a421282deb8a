/* Stream: the output of one request, taken at once or awaited. It is its own asynchronous iterator. A stream
 * that is dropped while its request runs tells its inbox (on_drop). */
#ifndef TP_STREAM_BINDING_H
#define TP_STREAM_BINDING_H

#include "py/core.h"

/* After Inbox, which a Stream needs. */
int tp_init_stream(PyObject *module);

#endif
