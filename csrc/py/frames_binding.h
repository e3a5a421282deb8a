/* The functions for frames. */
#ifndef TP_FRAMES_BINDING_H
#define TP_FRAMES_BINDING_H

#include "py/core.h"

int tp_init_frames(PyObject *module);

#endif
