/* Table: every live binding of some DP ranks. */
#ifndef TP_TABLE_BINDING_H
#define TP_TABLE_BINDING_H

#include "py/core.h"

int tp_init_table(PyObject *module);

#endif
