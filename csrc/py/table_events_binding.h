/* The events of a table, as Python objects. */
#ifndef TP_TABLE_EVENTS_BINDING_H
#define TP_TABLE_EVENTS_BINDING_H

#include "py/core.h"
#include "table/table_types.h"

/* Returns the events of the last call as a list of tuples (kind, handle, a, b, step), or None. */
PyObject *tp_py_events(const tp_table *t);

#endif
