/* StepPacker: packs the steps of one worker rank. */
#ifndef TP_PACKER_BINDING_H
#define TP_PACKER_BINDING_H

#include "py/core.h"

int tp_init_packer(PyObject *module);

#endif
