/* Converts UTF-8 to Python's str. */
#ifndef TP_STR_BINDING_H
#define TP_STR_BINDING_H

#include "py/core.h"

/* Returns the str of the bytes. Bytes that are not UTF-8 become U+FFFD, as with
 * bytes.decode(errors="replace"). */
PyObject *tp_py_str(const uint8_t *text, size_t size);

#endif
