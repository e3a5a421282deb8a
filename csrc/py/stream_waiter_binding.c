/* What a parked consumer waits on: a future that can only be rung, and is used again and again.
 *
 * asyncio accepts any object with a future's protocol. With its own Future a wake-up costs a new
 * object, a Handle and a turn through the loop's queue; here the inbox keeps the task's callback
 * and calls it, in the task's context, from the loop callback that fed the frames. That is what the
 * loop would do a moment later. */
#include "py/inbox_binding.h"

typedef struct bell {
    PyObject_HEAD
    PyObject *loop;
    PyObject *callback, *context; /* of the task that waits; NULL while none does */
    uint8_t blocking, cancelled;
} bell;

/* Hands the callback over: the bell is silent afterwards. */
static PyObject *take_callback(bell *self, PyObject **context) {
    PyObject *callback = self->callback;
    *context = self->context;
    self->callback = self->context = NULL;
    return callback;
}

static int call_soon(bell *self, PyObject *callback, PyObject *context) {
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

int tp_bell_ring(PyObject *object, int at_once) {
    bell *self = (bell *)object;
    PyObject *context, *callback = take_callback(self, &context);
    int bad = 0;
    if (callback != NULL) {
        bad = at_once ? call_in(context, callback, object) : call_soon(self, callback, context);
    }
    Py_XDECREF(callback);
    Py_XDECREF(context);
    return bad;
}

PyObject *tp_bell_arm(tp_py_stream *stream) {
    tp_py_inbox *inbox = stream->inbox;
    if (inbox->loop == NULL || inbox->loop == Py_None) {
        PyErr_SetString(PyExc_RuntimeError, "this stream is not of an asynchronous client");
        return NULL;
    }
    bell *mine = (bell *)stream->bell;
    if (mine == NULL || mine->cancelled || mine->callback != NULL) {
        /* The first wait; or a cancelled one, whose task must still find it cancelled. */
        mine = (bell *)inbox->bell_type->tp_alloc(inbox->bell_type, 0);
        if (mine == NULL) {
            return NULL;
        }
        mine->loop = Py_NewRef(inbox->loop);
        Py_XSETREF(stream->bell, (PyObject *)mine);
    }
    mine->blocking = 1;
    return Py_NewRef((PyObject *)mine);
}

/* ---- a future's protocol, as far as a task uses it ---- */

static PyObject *bell_get_blocking(bell *self, void *Py_UNUSED(closure)) {
    return PyBool_FromLong(self->blocking);
}

static int bell_set_blocking(bell *self, PyObject *value, void *Py_UNUSED(closure)) {
    int blocking = value == NULL ? 0 : PyObject_IsTrue(value);
    if (blocking < 0) {
        return -1;
    }
    self->blocking = (uint8_t)blocking;
    return 0;
}

static PyObject *bell_get_loop(bell *self, PyObject *Py_UNUSED(ignored)) { return Py_NewRef(self->loop); }

static PyObject *bell_add_done_callback(bell *self, PyObject *const *args, Py_ssize_t count,
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

static PyObject *bell_result(bell *self, PyObject *Py_UNUSED(ignored)) {
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

/* Not at once: whoever cancels is a running task itself. */
static PyObject *bell_cancel(bell *self, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs)) {
    PyObject *context, *callback = take_callback(self, &context);
    if (callback == NULL) {
        Py_RETURN_FALSE; /* rung already: the task itself remembers */
    }
    self->cancelled = 1;
    int bad = call_soon(self, callback, context);
    Py_DECREF(callback);
    Py_XDECREF(context);
    return bad ? NULL : Py_NewRef(Py_True);
}

static PyObject *bell_done(bell *self, PyObject *Py_UNUSED(ignored)) {
    return PyBool_FromLong(self->callback == NULL);
}

static int bell_traverse(bell *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->loop);
    Py_VISIT(self->callback);
    Py_VISIT(self->context);
    return 0;
}

static int bell_clear(bell *self) {
    Py_CLEAR(self->loop);
    Py_CLEAR(self->callback);
    Py_CLEAR(self->context);
    return 0;
}

static void bell_dealloc(bell *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    (void)bell_clear(self);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

static PyMethodDef bell_methods[] = {
    {"get_loop", (PyCFunction)bell_get_loop, METH_NOARGS, NULL},
    {"add_done_callback", (PyCFunction)(void (*)(void))bell_add_done_callback, METH_FASTCALL | METH_KEYWORDS,
     NULL},
    {"result", (PyCFunction)bell_result, METH_NOARGS, NULL},
    {"cancel", (PyCFunction)(void (*)(void))bell_cancel, METH_VARARGS | METH_KEYWORDS, NULL},
    {"done", (PyCFunction)bell_done, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef bell_getset[] = {
    {"_asyncio_future_blocking", (getter)bell_get_blocking, (setter)bell_set_blocking, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot bell_slots[] = {
    {Py_tp_dealloc, (void *)bell_dealloc}, {Py_tp_traverse, (void *)bell_traverse},
    {Py_tp_clear, (void *)bell_clear},     {Py_tp_methods, bell_methods},
    {Py_tp_getset, bell_getset},           {0, NULL},
};

static PyType_Spec bell_spec = {
    .name = "tokenpipe._core.Bell",
    .basicsize = sizeof(bell),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = bell_slots,
};

int tp_init_bell(PyObject *module) {
    PyObject *type = PyType_FromModuleAndSpec(module, &bell_spec, NULL);
    int bad = type == NULL || PyModule_AddType(module, (PyTypeObject *)type) < 0;
    Py_XDECREF(type);
    return bad ? -1 : 0;
}
