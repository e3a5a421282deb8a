/* Tensors of frameworks that tell a C caller where their values lie (DLPack 1.2 and later). */
#ifndef TP_DLPACK_BINDING_H
#define TP_DLPACK_BINDING_H

#include "py/core.h"
#include "pack/packer.h"

/* Looks at a tensor without taking hold of it: valid as long as the caller's reference is, and until
 * the framework runs again. 1 for int32 or int64 [n] in host memory; 0, without an error, for all
 * else, which goes the way that says what is wrong. */
int tp_dlpack_look(tp_state *state, PyObject *value, tp_array *array);

#endif
