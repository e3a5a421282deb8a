/* Table.feed and Table.feed_run. */
#ifndef TP_TABLE_FEED_BINDING_H
#define TP_TABLE_FEED_BINDING_H

#include "py/core.h"

PyObject *tp_table_py_feed(PyObject *self, PyObject *args);
PyObject *tp_table_py_feed_run(PyObject *self, PyObject *args);

#endif
