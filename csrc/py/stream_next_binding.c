/* The type StreamNext. */
#include "py/stream_next_binding.h"

#include "py/item_binding.h"
#include "py/stream_park_binding.h"
#include "py/stream_waiter_binding.h"

#define STREAK 16 /* items that a consumer takes before the loop runs others */

typedef struct StreamNext {
    PyObject_HEAD
    Stream *stream;
    uint64_t wait; /* stream->waits when its consumer began to wait; 0: it does not wait */
} StreamNext;

PyObject *tp_stream_anext(Stream *self) {
    PyTypeObject *type = self->inbox->next_type;
    StreamNext *next = (StreamNext *)type->tp_alloc(type, 0);
    if (next != NULL) {
        next->stream = (Stream *)Py_NewRef((PyObject *)self);
    }
    return (PyObject *)next;
}

static PyObject *park(StreamNext *next, Stream *self) {
    PyObject *waiter = tp_stream_waiter_arm(self);
    if (waiter != NULL) {
        tp_stream_park(self, waiter);
        next->wait = self->waits;
        self->streak = 0;
    }
    return waiter;
}

static PySendResult send_of(StreamNext *next, Stream *self, PyObject **result) {
    next->wait = 0;
    if (self->waiting_on != NULL) {
        PyErr_SetString(PyExc_RuntimeError, "another task waits on this stream");
        return PYGEN_ERROR;
    }
    if (self->streak >= STREAK) {
        self->streak = 0;
        *result = Py_NewRef(Py_None); /* None tells the task to let others run first */
        return PYGEN_NEXT;
    }
    if ((*result = tp_item_next(self, 0)) != NULL) {
        self->streak++;
        Py_CLEAR(next->stream);
        return PYGEN_RETURN;
    }
    if (PyErr_Occurred()) {
        return PYGEN_ERROR;
    }
    if (tp_stream_is_over(self)) {
        PyErr_SetNone(PyExc_StopAsyncIteration);
        return PYGEN_ERROR;
    }
    *result = park(next, self);
    return *result == NULL ? PYGEN_ERROR : PYGEN_NEXT;
}

static PySendResult next_send(StreamNext *next, PyObject *Py_UNUSED(value), PyObject **result) {
    *result = NULL;
    if (next->stream == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "cannot await this again");
        return PYGEN_ERROR;
    }
    Stream *self = (Stream *)Py_NewRef(next->stream); /* a reader of extras may close `next` */
    const PySendResult state = send_of(next, self, result);
    Py_DECREF(self);
    return state;
}

static PyObject *next_step(StreamNext *next, PyObject *value) {
    PyObject *result;
    PySendResult state = next_send(next, value, &result);
    if (state == PYGEN_RETURN) {
        PyObject *stop = PyObject_CallOneArg(PyExc_StopIteration, result);
        Py_CLEAR(result);
        if (stop != NULL) {
            PyErr_SetObject(PyExc_StopIteration, stop);
            Py_DECREF(stop);
        }
    }
    return result;
}

static PyObject *next_iternext(StreamNext *next) { return next_step(next, Py_None); }

/* The consumer no longer waits: it was cancelled, or is gone. Another consumer may wait already. */
static void stop_waiting(StreamNext *next) {
    if (next->wait != 0 && next->wait == next->stream->waits) {
        Py_XDECREF(tp_stream_unpark(next->stream));
    }
    next->wait = 0;
    Py_CLEAR(next->stream);
}

static PyObject *next_throw(StreamNext *next, PyObject *args) {
    PyObject *type, *value = NULL, *traceback = NULL;
    if (!PyArg_UnpackTuple(args, "throw", 1, 3, &type, &value, &traceback)) {
        return NULL;
    }
    stop_waiting(next);
    if (PyExceptionInstance_Check(type)) {
        PyErr_SetObject((PyObject *)Py_TYPE(type), type);
    } else {
        PyErr_SetObject(type, value);
    }
    return NULL;
}

static PyObject *next_close(StreamNext *next, PyObject *Py_UNUSED(ignored)) {
    stop_waiting(next);
    Py_RETURN_NONE;
}

static void next_dealloc(StreamNext *next) {
    PyTypeObject *type = Py_TYPE(next);
    Py_CLEAR(next->stream);
    type->tp_free((PyObject *)next);
    Py_DECREF(type);
}

static PyMethodDef next_methods[] = {
    {"send", (PyCFunction)next_step, METH_O, NULL},
    {"throw", (PyCFunction)next_throw, METH_VARARGS, NULL},
    {"close", (PyCFunction)next_close, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot next_slots[] = {
    {Py_tp_dealloc, (void *)next_dealloc},
    {Py_tp_methods, next_methods},
    {Py_tp_iter, (void *)PyObject_SelfIter},
    {Py_tp_iternext, (void *)next_iternext},
    {Py_am_await, (void *)PyObject_SelfIter},
    {Py_am_send, (void *)next_send},
    {0, NULL},
};

static PyType_Spec next_spec = {
    .name = "tokenpipe._core.StreamNext",
    .basicsize = sizeof(StreamNext),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = next_slots,
};

int tp_init_stream_next(PyObject *module) {
    tp_state *state = tp_state_of(module);
    state->stream_next = tp_make_type(module, &next_spec);
    return state->stream_next == NULL ? -1 : 0;
}
