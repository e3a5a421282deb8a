/* An item of a stream. A consumer takes items. */
#ifndef TP_ITEM_BINDING_H
#define TP_ITEM_BINDING_H

#include "py/client_objects.h"

/* Takes the output that waits as one RequestOutput: at most `limit` tokens, or all if `limit` is 0. When
 * nothing waits any more, raises the exception of the stream, once. NULL without an exception: nothing waits.
 */
PyObject *tp_item_next(Stream *self, uint32_t limit);

#endif
