/* Makes the list of events. */
#include "py/table_events_binding.h"

PyObject *tp_py_events(const tp_table *t) {
    if (t->event_count == 0) {
        Py_RETURN_NONE;
    }
    PyObject *list = PyList_New((Py_ssize_t)t->event_count);
    for (uint32_t i = 0; list != NULL && i < t->event_count; i++) {
        const tp_event *e = &t->events[i];
        PyObject *tuple = Py_BuildValue("ILLLK", (unsigned int)e->kind, (long long)e->handle, (long long)e->a,
                                        (long long)e->b, (unsigned long long)e->step);
        if (tuple == NULL) {
            Py_CLEAR(list);
        } else {
            PyList_SET_ITEM(list, (Py_ssize_t)i, tuple);
        }
    }
    return list;
}
