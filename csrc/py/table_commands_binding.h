/* The methods of Table for commands: one per command on a binding or a client. */
#ifndef TP_TABLE_COMMANDS_BINDING_H
#define TP_TABLE_COMMANDS_BINDING_H

#include "py/core.h"

PyObject *tp_table_py_bind(PyObject *self, PyObject *args);
PyObject *tp_table_py_state(PyObject *self, PyObject *arg);
PyObject *tp_table_py_set_state(PyObject *self, PyObject *args);
PyObject *tp_table_py_finish(PyObject *self, PyObject *args);
PyObject *tp_table_py_set_error(PyObject *self, PyObject *args);
PyObject *tp_table_py_error_extras(PyObject *self, PyObject *arg);
PyObject *tp_table_py_hold(PyObject *self, PyObject *arg);
PyObject *tp_table_py_total(PyObject *self, PyObject *arg);
PyObject *tp_table_py_output(PyObject *self, PyObject *arg);
PyObject *tp_table_py_drop(PyObject *self, PyObject *arg);
PyObject *tp_table_py_floor(PyObject *self, PyObject *arg);
PyObject *tp_table_py_busy(PyObject *self, PyObject *arg);
PyObject *tp_table_py_raise_floor(PyObject *self, PyObject *arg);
PyObject *tp_table_py_lose_park(PyObject *self, PyObject *arg);
PyObject *tp_table_py_open_client(PyObject *self, PyObject *arg);
PyObject *tp_table_py_close_client(PyObject *self, PyObject *arg);
PyObject *tp_table_py_stop_string(PyObject *self, PyObject *arg);
PyObject *tp_table_py_text_tail(PyObject *self, PyObject *arg);
PyObject *tp_table_py_extras_offset(PyObject *self, PyObject *arg);
PyObject *tp_table_py_release(PyObject *self, PyObject *arg);
PyObject *tp_table_py_shed(PyObject *self, PyObject *args);

#endif
