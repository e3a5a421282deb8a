/* The Python type Table, for the files csrc/py/table*.c. */
#ifndef TP_TABLE_OBJECT_H
#define TP_TABLE_OBJECT_H

#include "py/core.h"
#include "table/table_types.h"

typedef struct Table {
    PyObject_HEAD
    tp_table table;
    tp_state *state;
    PyObject *vocab; /* the Vocab that the table reads, or None */
    uint8_t busy;    /* a method runs */
} Table;

static inline tp_table *tp_py_table(PyObject *self) { return &((Table *)self)->table; }

#endif
