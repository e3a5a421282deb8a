/* The type StreamWaiter. */
#include "py/stream_waiter_binding.h"

typedef struct StreamWaiter {
    PyObject_HEAD
    PyObject *loop;
    PyObject *callback, *context; /* of the task that waits; NULL if no task waits */
    uint8_t blocking, cancelled;
} StreamWaiter;

/* Takes the callback away: the task is woken only once. */
static PyObject *take_callback(StreamWaiter *self, PyObject **context) {
    PyObject *callback = self->callback;
    *context = self->context;
    self->callback = self->context = NULL;
    return callback;
}

static int call_soon(StreamWaiter *self, PyObject *callback, PyObject *context) {
    if (self->loop == NULL) {
        return tp_gone("StreamWaiter");
    }
    PyObject *method = PyObject_GetAttrString(self->loop, "call_soon");
    PyObject *args = PyTuple_Pack(2, callback, (PyObject *)self);
    PyObject *kwargs = context == NULL ? NULL : Py_BuildValue("{sO}", "context", context);
    PyObject *done = NULL;
    if (method != NULL && args != NULL && (context == NULL || kwargs != NULL)) {
        done = PyObject_Call(method, args, kwargs);
    }
    Py_XDECREF(method);
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static int call_in(PyObject *context, PyObject *callback, PyObject *argument) {
    if (context != NULL && PyContext_Enter(context) < 0) {
        return -1;
    }
    PyObject *done = PyObject_CallOneArg(callback, argument);
    if (context != NULL) {
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        (void)PyContext_Exit(context);
        PyErr_Restore(type, value, traceback);
    }
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

int tp_stream_waiter_wake(PyObject *object, int at_once) {
    StreamWaiter *self = (StreamWaiter *)object;
    PyObject *context, *callback = take_callback(self, &context);
    int bad = 0;
    if (callback != NULL) {
        bad = at_once ? call_in(context, callback, object) : call_soon(self, callback, context);
    }
    Py_XDECREF(callback);
    Py_XDECREF(context);
    return bad;
}

PyObject *tp_stream_waiter_arm(Stream *stream) {
    Inbox *inbox = stream->inbox;
    if (inbox->loop == NULL || inbox->loop == Py_None) {
        PyErr_SetString(PyExc_RuntimeError, "this stream does not belong to an asynchronous client");
        return NULL;
    }
    StreamWaiter *mine = (StreamWaiter *)stream->waiter;
    if (mine == NULL || mine->cancelled || mine->callback != NULL) {
        /* This is the first wait. Or the last wait was cancelled, and its task must still see this. */
        mine = (StreamWaiter *)inbox->waiter_type->tp_alloc(inbox->waiter_type, 0);
        if (mine == NULL) {
            return NULL;
        }
        mine->loop = Py_NewRef(inbox->loop);
        Py_XSETREF(stream->waiter, (PyObject *)mine);
    }
    mine->blocking = 1;
    return Py_NewRef((PyObject *)mine);
}

/* ---- the part of a future's protocol that a task uses ---- */

static PyObject *waiter_get_blocking(StreamWaiter *self, void *Py_UNUSED(closure)) {
    return PyBool_FromLong(self->blocking);
}

static int waiter_set_blocking(StreamWaiter *self, PyObject *value, void *Py_UNUSED(closure)) {
    int blocking = value == NULL ? 0 : PyObject_IsTrue(value);
    if (blocking < 0) {
        return -1;
    }
    self->blocking = (uint8_t)blocking;
    return 0;
}

static PyObject *waiter_get_loop(StreamWaiter *self, PyObject *Py_UNUSED(ignored)) {
    if (self->loop == NULL) {
        (void)tp_gone("StreamWaiter");
        return NULL;
    }
    return Py_NewRef(self->loop);
}

static PyObject *waiter_add_done_callback(StreamWaiter *self, PyObject *const *args, Py_ssize_t count,
                                          PyObject *names) {
    Py_ssize_t named = names == NULL ? 0 : PyTuple_GET_SIZE(names);
    if (count != 1 || named > 1 ||
        (named == 1 && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), "context") != 0)) {
        PyErr_SetString(PyExc_TypeError, "add_done_callback(callback, *, context=None)");
        return NULL;
    }
    if (self->callback != NULL) {
        PyErr_SetString(PyExc_RuntimeError, "only one task can wait on this");
        return NULL;
    }
    self->callback = Py_NewRef(args[0]);
    self->context = named == 1 && args[1] != Py_None ? Py_NewRef(args[1]) : NULL;
    Py_RETURN_NONE;
}

static PyObject *waiter_result(StreamWaiter *self, PyObject *Py_UNUSED(ignored)) {
    if (!self->cancelled) {
        Py_RETURN_NONE;
    }
    PyObject *asyncio = PyImport_ImportModule("asyncio");
    PyObject *cancelled = asyncio == NULL ? NULL : PyObject_GetAttrString(asyncio, "CancelledError");
    if (cancelled != NULL) {
        PyErr_SetNone(cancelled);
    }
    Py_XDECREF(asyncio);
    Py_XDECREF(cancelled);
    return NULL;
}

/* The task is woken later, because the caller runs in a task itself. */
static PyObject *waiter_cancel(StreamWaiter *self, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs)) {
    PyObject *context, *callback = take_callback(self, &context);
    if (callback == NULL) {
        Py_RETURN_FALSE; /* it is woken already; the task itself remembers that it was cancelled */
    }
    self->cancelled = 1;
    int bad = call_soon(self, callback, context);
    Py_DECREF(callback);
    Py_XDECREF(context);
    return bad ? NULL : Py_NewRef(Py_True);
}

static PyObject *waiter_done(StreamWaiter *self, PyObject *Py_UNUSED(ignored)) {
    return PyBool_FromLong(self->callback == NULL);
}

static int waiter_traverse(StreamWaiter *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->loop);
    Py_VISIT(self->callback);
    Py_VISIT(self->context);
    return 0;
}

static int waiter_clear(StreamWaiter *self) {
    Py_CLEAR(self->loop);
    Py_CLEAR(self->callback);
    Py_CLEAR(self->context);
    return 0;
}

static void waiter_dealloc(StreamWaiter *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    (void)waiter_clear(self);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

static PyMethodDef waiter_methods[] = {
    {"get_loop", (PyCFunction)waiter_get_loop, METH_NOARGS, NULL},
    {"add_done_callback", (PyCFunction)(void (*)(void))waiter_add_done_callback,
     METH_FASTCALL | METH_KEYWORDS, NULL},
    {"result", (PyCFunction)waiter_result, METH_NOARGS, NULL},
    {"cancel", (PyCFunction)(void (*)(void))waiter_cancel, METH_VARARGS | METH_KEYWORDS, NULL},
    {"done", (PyCFunction)waiter_done, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef waiter_getset[] = {
    {"_asyncio_future_blocking", (getter)waiter_get_blocking, (setter)waiter_set_blocking, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot waiter_slots[] = {
    {Py_tp_dealloc, (void *)waiter_dealloc}, {Py_tp_traverse, (void *)waiter_traverse},
    {Py_tp_clear, (void *)waiter_clear},     {Py_tp_methods, waiter_methods},
    {Py_tp_getset, waiter_getset},           {0, NULL},
};

static PyType_Spec waiter_spec = {
    .name = "tokenpipe._core.StreamWaiter",
    .basicsize = sizeof(StreamWaiter),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = waiter_slots,
};

int tp_init_stream_waiter(PyObject *module) {
    tp_state *state = tp_state_of(module);
    state->stream_waiter = tp_make_type(module, &waiter_spec);
    return state->stream_waiter == NULL ? -1 : 0;
}
