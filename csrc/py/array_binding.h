/* Arrays of a Python caller as the pure half takes them: a pointer, a length, a width. */
#ifndef TP_ARRAY_BINDING_H
#define TP_ARRAY_BINDING_H

#include "py/core.h"
#include "pack/array.h"

/* The types that an argument may have: its name and its types for error texts, and the letters of the struct
 * module that are allowed. The letter 'l' is 4 or 8 bytes wide, so an argument may also fix the width. */
typedef struct tp_array_kind {
    const char *name, *letters, *needs;
    uint32_t only_width; /* 0: any */
} tp_array_kind;

/* The objects that keep the memory of an array in place. All zero: there are none. */
typedef struct tp_held {
    Py_buffer buffer;
    PyObject *converted;
} tp_held;

/* Looks at a plain numpy array or, if `tensors`, at a DLPack tensor, and runs no Python code. 1: *array is
 * set, and valid until Python code runs. 0: the value is something else. */
int tp_array_look(tp_state *state, PyObject *value, const tp_array_kind *kind, int tensors, tp_array *array);

/* Takes any other C-contiguous array of one dimension, through `convert(value, letter, name)` unless that
 * is NULL. 0, or -1 with RowError. The caller gives *held to tp_array_release in either case. */
int tp_array_hold(tp_state *state, PyObject *value, const tp_array_kind *kind, PyObject *convert,
                  tp_held *held, tp_array *array);

static inline int tp_array_is_held(const tp_held *held) { return held->buffer.obj != NULL; }

static inline void tp_array_release(tp_held *held) {
    if (held->buffer.obj != NULL) {
        PyBuffer_Release(&held->buffer);
    }
    Py_CLEAR(held->converted);
}

#endif
