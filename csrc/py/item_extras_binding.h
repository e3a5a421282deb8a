/* The extras of an item, which Python reads, and the usage, of which a part may come as extras. */
#ifndef TP_ITEM_EXTRAS_BINDING_H
#define TP_ITEM_EXTRAS_BINDING_H

#include "py/client_objects.h"

/* Takes the extras of a stream that has some, and returns what the stream's reader makes of them and of the
 * first `count` tokens: an OutputExtras or None. NULL with an exception. Where the bytes are malformed, the
 * stream ends here with an error, and *last becomes 1. */
PyObject *tp_item_extras(Stream *self, uint32_t count, int *last);

/* Returns the Usage after the first `count` tokens; NULL with an exception. */
PyObject *tp_item_usage(Stream *self, uint32_t count);

#endif
