/* Methods of Table that save it and load it. */
#ifndef TP_TABLE_SAVED_BINDING_H
#define TP_TABLE_SAVED_BINDING_H

#include "py/core.h"

PyObject *tp_table_py_save(PyObject *self, PyObject *none);
PyObject *tp_table_py_load(PyObject *self, PyObject *saved);
PyObject *tp_table_py_reread(PyObject *self, PyObject *args);

#endif
