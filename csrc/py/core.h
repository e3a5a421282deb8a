/* What the binding files share. They know Python and no algorithm; the other half the reverse. */
#ifndef TP_CORE_H
#define TP_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "wire/layout.h"

typedef struct tp_state {
    PyObject *frame_error;           /* tokenpipe.errors.FrameError */
    PyObject *row_error;             /* tokenpipe.errors.RowError */
    PyObject *ndarray;               /* numpy.ndarray */
    PyObject *tensor;                /* the type of tensor that was seen last, or NULL */
    const struct exchange *exchange; /* its table, NULL where it has none */
    PyObject *send_window;           /* types */
    PyObject *handoff;
    uint64_t forks; /* grows in a forked child: what was made before is its parent's */
} tp_state;

tp_state *tp_state_of(PyObject *module);

/* Finds the state from a type made with PyType_FromModuleAndSpec (PyType_GetModule). */
tp_state *tp_state_of_type(PyTypeObject *type);

/* The str of UTF-8; what is none of it is U+FFFD, as bytes.decode(errors="replace") has it. */
PyObject *tp_py_str(const uint8_t *text, size_t size);

/* The one place where a tp_result becomes an exception. Returns NULL. */
PyObject *tp_raise(tp_state *state, tp_result result, const char *what);

/* Each binding file adds its types and functions; 0, or -1 with an exception set. */
int tp_init_constants(PyObject *module);
int tp_init_frames(PyObject *module);
int tp_init_handoff(PyObject *module);
int tp_init_intake(PyObject *module);
int tp_init_send_window(PyObject *module); /* before the packer, which writes its headers from it */
int tp_init_packer(PyObject *module);
int tp_init_table(PyObject *module);
int tp_init_inbox(PyObject *module);
int tp_init_vocab(PyObject *module);

#endif
