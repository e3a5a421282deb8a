/* The state and the functions that the binding files share. Every file in csrc/py/ includes this header
 * first, because it includes Python.h. */
#ifndef TP_CORE_H
#define TP_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "wire/layout.h"
#include "wire/result.h"

/* The state of the module _core. */
typedef struct tp_state {
    PyObject *frame_error;           /* tokenpipe.errors.FrameError */
    PyObject *row_error;             /* tokenpipe.errors.RowError */
    PyObject *ndarray;               /* numpy.ndarray */
    PyObject *tensor;                /* the type of the last tensor, or NULL */
    const struct exchange *exchange; /* the DLPack functions of that type, or NULL */
    PyObject *send_window;           /* the type SendWindow */
    PyObject *socket_send;           /* the type SocketSend */
    PyObject *stream_next;           /* the type StreamNext */
    PyObject *stream_waiter;         /* the type StreamWaiter */
    uint64_t forks; /* grows in a forked child, because a child must not use its parent's objects */
} tp_state;

tp_state *tp_state_of(PyObject *module);

/* Returns the state from a type that tp_make_type made. */
tp_state *tp_state_of_type(PyTypeObject *type);

/* Makes a type of the module and adds it to the module. Returns a new reference, or NULL with an
 * exception. */
PyObject *tp_make_type(PyObject *module, PyType_Spec *spec);
/* The same without a reference. Returns 0, or -1 with an exception. */
int tp_add_type(PyObject *module, PyType_Spec *spec);

/* Turns a tp_result into an exception. Returns NULL. */
PyObject *tp_raise(tp_state *state, tp_result result, const char *what);

/* Reads an int from 0 to 2**64 - 1 for the format "O&" of PyArg_Parse*. Unlike "K", it raises OverflowError
 * for any other int. */
int tp_u64_arg(PyObject *value, void *out);

/* The same for an int from 0 to 2**32 - 1, and a uint32_t. */
int tp_u32_arg(PyObject *value, void *out);

/* The garbage collector has cleared an object that is still used. Sets ReferenceError. Returns -1. */
int tp_gone(const char *what);

/* Returns a frame as bytes: itself, or a copy of any other buffer, which somebody may write to while it is
 * read. A new reference, or NULL with an exception. */
PyObject *tp_frame(PyObject *object);

static inline const uint8_t *tp_bytes_of(PyObject *bytes) {
    return (const uint8_t *)PyBytes_AS_STRING(bytes);
}

/* Reads a sequence of ints into a PyMem array: 0, or -1 with an exception. The caller frees the array in
 * either case. */
int tp_ints(PyObject *sequence, int32_t **values, uint32_t *count);

#endif
