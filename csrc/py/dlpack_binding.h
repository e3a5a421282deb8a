/* Tensors of a framework that offers C functions to read them (DLPack 1.2 and later). */
#ifndef TP_DLPACK_BINDING_H
#define TP_DLPACK_BINDING_H

#include "py/core.h"
#include "pack/array.h"

/* Looks at a tensor. 1: it is an int32 or int64 tensor [n] in host memory, and *array is set; *array is valid
 * until the framework runs again, and only while the caller has a reference. 0, without an exception: the
 * object is something else. */
int tp_dlpack_look(tp_state *state, PyObject *value, tp_array *array);

#endif
