/* Stream: the output of one request. A consumer takes it without waiting, or awaits it. It is its own
 * asynchronous iterator. A stream that is dropped while its request runs tells its inbox (on_drop). */
#ifndef TP_STREAM_BINDING_H
#define TP_STREAM_BINDING_H

#include "py/core.h"

/* Call it after Inbox is added: a Stream needs it. */
int tp_init_stream(PyObject *module);

#endif
