/* What `await anext(stream)` awaits.
 *
 * While tokens wait, an item costs no future and no trip through the event loop; only a consumer
 * that finds nothing parks on a bell. A parked stream owns itself, as everything an event loop
 * waits on is owned: nobody else need hold the task that waits. */
#include "py/inbox_binding.h"

#define STREAK 16 /* items without giving way to the loop's other callbacks */

typedef struct stream_next {
    PyObject_HEAD
    tp_py_stream *stream;
    int parked; /* it is this one that waits */
} stream_next;

PyObject *tp_py_stream_anext(tp_py_stream *self) {
    PyTypeObject *type = self->inbox->next_type;
    stream_next *next = (stream_next *)type->tp_alloc(type, 0);
    if (next != NULL) {
        next->stream = (tp_py_stream *)Py_NewRef((PyObject *)self);
    }
    return (PyObject *)next;
}

PyObject *tp_py_stream_unpark(tp_py_stream *self) {
    PyObject *waiter = self->waiter;
    if (waiter != NULL) {
        self->waiter = NULL;
        Py_DECREF(self);
    }
    return waiter;
}

static PyObject *park(tp_py_stream *self) {
    PyObject *bell = tp_bell_arm(self);
    if (bell != NULL) {
        self->waiter = Py_NewRef(bell);
        Py_INCREF(self);
        self->streak = 0;
    }
    return bell;
}

static PySendResult next_send(stream_next *next, PyObject *Py_UNUSED(value), PyObject **result) {
    tp_py_stream *self = next->stream;
    *result = NULL;
    if (self == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "cannot await this again");
        return PYGEN_ERROR;
    }
    next->parked = 0;
    if (self->waiter != NULL) {
        PyErr_SetString(PyExc_RuntimeError, "another task waits on this stream");
        return PYGEN_ERROR;
    }
    if (self->streak >= STREAK) {
        self->streak = 0;
        *result = Py_NewRef(Py_None); /* to a task, None is: let others run first */
        return PYGEN_NEXT;
    }
    if ((*result = tp_py_stream_next(self, 0)) != NULL) {
        self->streak++;
        Py_CLEAR(next->stream);
        return PYGEN_RETURN;
    }
    if (PyErr_Occurred()) {
        return PYGEN_ERROR;
    }
    if (tp_py_stream_over(self)) {
        PyErr_SetNone(PyExc_StopAsyncIteration);
        return PYGEN_ERROR;
    }
    *result = park(self);
    next->parked = *result != NULL;
    return *result == NULL ? PYGEN_ERROR : PYGEN_NEXT;
}

static PyObject *next_step(stream_next *next, PyObject *value) {
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

static PyObject *next_iternext(stream_next *next) { return next_step(next, Py_None); }

/* The consumer no longer waits: it was cancelled, or is gone. */
static void stop_waiting(stream_next *next) {
    if (next->parked) {
        next->parked = 0;
        Py_XDECREF(tp_py_stream_unpark(next->stream));
    }
    Py_CLEAR(next->stream);
}

static PyObject *next_throw(stream_next *next, PyObject *args) {
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

static PyObject *next_close(stream_next *next, PyObject *Py_UNUSED(ignored)) {
    stop_waiting(next);
    Py_RETURN_NONE;
}

static void next_dealloc(stream_next *next) {
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
    .basicsize = sizeof(stream_next),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = next_slots,
};

int tp_init_stream_next(PyObject *module) {
    PyObject *type = PyType_FromModuleAndSpec(module, &next_spec, NULL);
    int bad = type == NULL || PyModule_AddType(module, (PyTypeObject *)type) < 0;
    Py_XDECREF(type);
    return bad ? -1 : 0;
}
