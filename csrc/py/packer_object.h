/* The object StepPacker, for its binding files. */
#ifndef TP_PACKER_OBJECT_H
#define TP_PACKER_OBJECT_H

#include "py/core.h"
#include "py/send_window_binding.h"
#include "pack/step_offer.h"

typedef struct StepPacker {
    PyObject_HEAD
    tp_step_offer offer;
    SendWindow *window; /* NULL: only pack() works */
    PyObject *convert;  /* NULL: arrays are not converted */
    tp_state *state;    /* state of the module; the module lives longer than its types */
} StepPacker;

/* Returns the frame of packed rows, or NULL with an exception. */
PyObject *tp_py_step_frame(const tp_step_rows *rows);

#endif
