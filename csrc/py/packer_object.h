/* The object StepPacker, which its binding files share. */
#ifndef TP_PACKER_OBJECT_H
#define TP_PACKER_OBJECT_H

#include "py/core.h"
#include "py/send_window_binding.h"
#include "pack/step_offer.h"

typedef struct StepPacker {
    PyObject_HEAD
    tp_step_offer offer;
    SendWindow *window; /* NULL: the packer has pack() only */
    PyObject *convert;  /* NULL: arrays are not converted */
    tp_state *state;    /* of the module, which outlives its types */
} StepPacker;

/* Returns the frame of packed rows, or NULL with an exception. */
PyObject *tp_py_step_frame(const tp_step_rows *rows);

#endif
