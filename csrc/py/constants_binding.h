/* The numbers that C and Python share. */
#ifndef TP_CONSTANTS_BINDING_H
#define TP_CONSTANTS_BINDING_H

#include "py/core.h"

int tp_init_constants(PyObject *module);

#endif
