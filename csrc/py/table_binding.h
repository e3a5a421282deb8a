/* What the files of the Table type share. */
#ifndef TP_TABLE_BINDING_H
#define TP_TABLE_BINDING_H

#include "py/core.h"
#include "table/table.h"

typedef struct {
    PyObject_HEAD
    tp_table table;
    tp_state *state;
    PyObject *vocab; /* whose table it reads; None without text */
} TableObject;

/* The events of the last call as a list of tuples, None where there are none. */
PyObject *tp_table_events(const tp_table *t);

/* table_feed_binding.c: what workers sent. */
PyObject *tp_table_py_feed(PyObject *self, PyObject *args);
PyObject *tp_table_py_feed_run(PyObject *self, PyObject *args);

/* table_commands_binding.c: one method per command on a binding or client. */
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
PyObject *tp_table_py_annex_offset(PyObject *self, PyObject *arg);
PyObject *tp_table_py_release(PyObject *self, PyObject *arg);
PyObject *tp_table_py_shed(PyObject *self, PyObject *args);

int tp_init_table(PyObject *module);

#endif
