/* Arrays of a caller as the pure half takes them: a pointer, a length, a width. */
#ifndef TP_ARRAY_BINDING_H
#define TP_ARRAY_BINDING_H

#include "py/core.h"
#include "pack/packer.h"

/* What may stand in an argument: its name and types for errors, the struct module's letters it may
 * have. 'l' is 4 or 8 bytes, itemsize says which, so handles also say how wide they must be. */
typedef struct tp_array_kind {
    const char *name, *letters, *needs;
    uint32_t only_width; /* 0: any */
} tp_array_kind;

/* What holds an array's memory; all zero where nothing is held. */
typedef struct tp_held {
    Py_buffer buffer;
    PyObject *converted;
} tp_held;

/* Takes a C-contiguous array of one dimension. What is not a plain one of numpy is given to
 * `convert(value, letter, name)` first, where there is one. 0, or -1 with RowError set; *held is to be given to tp_array_release. */
int tp_array_take(tp_state *state, PyObject *value, const tp_array_kind *kind, PyObject *convert,
                  tp_held *held, tp_array *array);

static inline void tp_array_release(tp_held *held) {
    if (held->buffer.obj != NULL) {
        PyBuffer_Release(&held->buffer);
    }
    Py_CLEAR(held->converted);
}

#endif
