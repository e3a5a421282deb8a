/* Parks and wakes the consumers of streams. */
#include "py/stream_park_binding.h"

#include "buffer.h"

void tp_stream_park(Stream *self, PyObject *waiting_on) {
    self->waiting_on = Py_NewRef(waiting_on);
    self->waits++;
    Py_INCREF(self);
}

PyObject *tp_stream_unpark(Stream *self) {
    PyObject *waiting_on = self->waiting_on; /* holds waiting_on: the caller owns it from now on */
    if (waiting_on != NULL) {
        self->waiting_on = NULL;
        Py_DECREF(self);
    }
    return waiting_on;
}

int tp_stream_rouse(Stream *self) {
    Inbox *inbox = self->inbox;
    if (self->waiting_on == NULL) {
        return 0;
    }
    if (tp_buffer_grow(&inbox->wake, sizeof *inbox->wake, &inbox->wake_capacity,
                       inbox->wake_count + UINT64_C(1)) != TP_OK) {
        PyErr_NoMemory();
        return -1;
    }
    inbox->wake[inbox->wake_count++] = tp_stream_unpark(self);
    return 0;
}

void tp_stream_leave(Stream *self) {
    Inbox *inbox = self->inbox;
    if (inbox == NULL || !self->stream.listed) {
        return;
    }
    tp_stream_map_remove(&inbox->inbox.map, &self->stream);
    if (inbox->on_drop == NULL || inbox->on_drop == Py_None) {
        return;
    }
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *done =
        PyObject_CallFunction(inbox->on_drop, "KO", (unsigned long long)self->stream.key, self->request_id);
    if (done == NULL) {
        PyErr_WriteUnraisable(inbox->on_drop);
    }
    Py_XDECREF(done);
    PyErr_Restore(type, value, traceback);
}
