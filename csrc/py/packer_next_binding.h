/* The methods of StepPacker that use a window: they pack the next frame of a lane, and may send it. */
#ifndef TP_PACKER_NEXT_BINDING_H
#define TP_PACKER_NEXT_BINDING_H

#include "py/packer_object.h"

PyObject *tp_py_pack_next(StepPacker *self, PyObject *const *args, Py_ssize_t n);
PyObject *tp_py_send_next(StepPacker *self, PyObject *const *args, Py_ssize_t n);
PyObject *tp_py_withdraw(StepPacker *self, PyObject *unused);
PyObject *tp_py_last_step(StepPacker *self, void *unused);

#endif
