/* Feeds a Table. */
#include "py/table_feed_binding.h"

#include "py/table_events_binding.h"
#include "py/table_object.h"
#include "table/table_feed.h"
#include "table/table_run.h"

/* Tells the table the time in seconds. */
static void set_clock(tp_table *t, double now) {
    t->now_ns = now >= 0 && now < 1e10 ? (uint64_t)(now * 1e9) : UINT64_MAX;
}

PyObject *tp_table_py_feed(PyObject *self, PyObject *args) {
    Table *table = (Table *)self;
    uint32_t dp, tp;
    PyObject *object;
    double now = -1;
    if (!PyArg_ParseTuple(args, "O&O&O|d:feed", tp_u32_arg, &dp, tp_u32_arg, &tp, &object, &now)) {
        return NULL;
    }
    PyObject *frame = tp_frame(object);
    if (frame == NULL) {
        return NULL;
    }
    set_clock(&table->table, now);
    tp_result result =
        tp_table_feed(&table->table, dp, tp, tp_bytes_of(frame), (size_t)PyBytes_GET_SIZE(frame));
    Py_DECREF(frame);
    return result == TP_OK ? tp_py_events(&table->table) : tp_raise(table->state, result, "StepFrame");
}

/* Feeds the next frames of a list, and returns how many. 0: the next entry cannot be fed. */
static uint32_t feed_some(tp_table *t, unsigned int dp, PyObject *list, Py_ssize_t at) {
    tp_bytes frames[TP_RUN_MOST];
    uint32_t n = 0;
    for (; n < TP_RUN_MOST && at < PyList_GET_SIZE(list); at++, n++) {
        PyObject *frame = PyList_GET_ITEM(list, at);
        if (!PyBytes_CheckExact(frame)) {
            break;
        }
        frames[n] = (tp_bytes){tp_bytes_of(frame), (size_t)PyBytes_GET_SIZE(frame)};
    }
    const uint32_t fed = n == 0 ? 0 : tp_table_feed_run(t, dp, frames, n);
    if (fed > 0 || n == 0) {
        return fed;
    }
    PyObject *first = Py_NewRef(PyList_GET_ITEM(list, at - n)); /* a decoder may change the list */
    const tp_result result = tp_table_feed(t, dp, 0, frames[0].data, frames[0].size);
    Py_DECREF(first);
    return result == TP_OK;
}

/* Stops after a frame that gave events, and before an entry that it cannot feed. */
PyObject *tp_table_py_feed_run(PyObject *self, PyObject *args) {
    tp_table *t = tp_py_table(self);
    uint32_t dp;
    PyObject *frames;
    Py_ssize_t at;
    double now = -1;
    if (!PyArg_ParseTuple(args, "O&O!n|d:feed_run", tp_u32_arg, &dp, &PyList_Type, &frames, &at, &now)) {
        return NULL;
    }
    set_clock(t, now);
    t->event_count = 0;
    while (at >= 0 && at < PyList_GET_SIZE(frames) && t->event_count == 0) {
        const uint32_t fed = feed_some(t, dp, frames, at);
        if (fed == 0) {
            break;
        }
        at += fed;
    }
    PyObject *events = tp_py_events(t);
    return events == NULL ? NULL : Py_BuildValue("nN", at, events);
}
