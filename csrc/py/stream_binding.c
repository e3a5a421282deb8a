/* The type Stream: one request's output, taken at once or awaited.
 *
 * It is its own asynchronous iterator. A stream that is let go while its request runs tells the
 * inbox (on_drop). */
#include "py/inbox_binding.h"

#include <stdlib.h>
#include <string.h>

int tp_py_stream_ready(tp_py_stream *self) {
    tp_py_inbox *inbox = self->inbox;
    if (self->waiter == NULL) {
        return 0;
    }
    if (inbox->wake_count == inbox->wake_cap) {
        Py_ssize_t cap = inbox->wake_cap == 0 ? 64 : inbox->wake_cap * 2;
        PyObject **larger = PyMem_Resize(inbox->wake, PyObject *, (size_t)cap);
        if (larger == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        inbox->wake = larger;
        inbox->wake_cap = cap;
    }
    inbox->wake[inbox->wake_count++] = tp_py_stream_unpark(self);
    return 0;
}

static PyObject *stream_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"inbox", "key", "request_id", "index", "prompt_tokens", "stops", "kind", NULL};
    PyObject *inbox, *key_object, *request_id, *index = NULL, *stops = NULL;
    unsigned int prompt_tokens = 0;
    unsigned char kind = TP_DELTA;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO!U|O!IO!b", names, &inbox, &PyLong_Type, &key_object,
                                     &request_id, &PyLong_Type, &index, &prompt_tokens, &PyTuple_Type, &stops,
                                     &kind)) {
        return NULL;
    }
    if (kind > TP_FINAL_ONLY) {
        return PyErr_Format(PyExc_ValueError, "there is no output kind %d", kind);
    }
    if (Py_TYPE(inbox)->tp_dealloc != tp_py_inbox_dealloc) {
        PyErr_SetString(PyExc_TypeError, "inbox must be an Inbox");
        return NULL;
    }
    unsigned long long key = PyLong_AsUnsignedLongLong(key_object);
    if (key == (unsigned long long)-1 && PyErr_Occurred()) {
        return NULL;
    }
    tp_inbox *map = &((tp_py_inbox *)inbox)->inbox;
    if (tp_inbox_find(map, key) != NULL) {
        return PyErr_Format(PyExc_ValueError, "key %llu is in use", key);
    }
    tp_py_stream *self = (tp_py_stream *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    tp_stream_init(&self->stream, key);
    self->inbox = (tp_py_inbox *)Py_NewRef(inbox);
    self->request_id = Py_NewRef(request_id);
    self->index = index == NULL ? PyLong_FromLong(0) : Py_NewRef(index);
    self->prompt_tokens = prompt_tokens;
    self->stops = Py_XNewRef(stops);
    self->stream.kind = kind;
    if (self->index == NULL || tp_inbox_add(map, &self->stream) != TP_OK) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}

void tp_py_stream_leave(tp_py_stream *self) {
    tp_py_inbox *inbox = self->inbox;
    if (inbox == NULL || !self->stream.listed) {
        return;
    }
    tp_inbox_remove(&inbox->inbox, &self->stream);
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

static int stream_traverse(tp_py_stream *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->inbox);
    Py_VISIT(self->waiter);
    Py_VISIT(self->bell);
    Py_VISIT(self->annexes);
    Py_VISIT(self->exception);
    return 0;
}

static int stream_clear(tp_py_stream *self) {
    /* Not the inbox: dealloc still has to leave it. A parked stream is never garbage. */
    Py_CLEAR(self->bell);
    Py_CLEAR(self->exception);
    return 0;
}

static void stream_dealloc(tp_py_stream *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    tp_py_stream_leave(self);
    tp_stream_clear(&self->stream);
    Py_CLEAR(self->exception);
    Py_CLEAR(self->annexes);
    Py_CLEAR(self->waiter);
    Py_CLEAR(self->bell);
    Py_CLEAR(self->request_id);
    Py_CLEAR(self->index);
    Py_CLEAR(self->stops);
    Py_CLEAR(self->inbox);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

PyObject *tp_py_stream_next(tp_py_stream *self, uint32_t limit) {
    PyObject *item = self->over ? NULL : tp_item_take(self, limit);
    if (item == NULL && !PyErr_Occurred() && self->exception != NULL) {
        PyObject *exception = self->exception;
        self->exception = NULL;
        self->over = 1;
        PyErr_SetObject((PyObject *)Py_TYPE(exception), exception);
        Py_DECREF(exception);
    }
    return item;
}

static PyObject *stream_take(tp_py_stream *self, PyObject *args) {
    unsigned int limit = 0;
    if (!PyArg_ParseTuple(args, "|I", &limit)) {
        return NULL;
    }
    PyObject *item = tp_py_stream_next(self, limit);
    return item == NULL && !PyErr_Occurred() ? Py_NewRef(Py_None) : item;
}

static PyObject *stream_end(tp_py_stream *self, PyObject *args) {
    unsigned char finish, code;
    const char *text, *field = "";
    Py_ssize_t size, field_size = 0;
    if (!PyArg_ParseTuple(args, "bbs#|s#", &finish, &code, &text, &size, &field, &field_size)) {
        return NULL;
    }
    if (finish == TP_FINISH_NONE || finish >= TP_FINISH_END || code >= TP_ERROR_END ||
        size > INT32_MAX - UINT8_MAX || field_size > UINT8_MAX) {
        PyErr_SetString(PyExc_ValueError, "finish, error code, error text or field out of range");
        return NULL;
    }
    uint8_t *both = malloc((size_t)(size + field_size) + 1);
    if (both == NULL) {
        return PyErr_NoMemory();
    }
    memcpy(both, text, (size_t)size);
    memcpy(both + size, field, (size_t)field_size);
    tp_inbox_remove(&self->inbox->inbox, &self->stream);
    const tp_ending ending = {.finish = finish,
                              .error_code = code,
                              .stop_reason = TP_NO_STOP,
                              .stop_string = TP_NO_STOP,
                              .error = both,
                              .error_len = (uint32_t)(size + field_size),
                              .error_field = (uint8_t)field_size};
    tp_stream_end(&self->stream, &ending);
    free(both);
    return tp_py_stream_ready(self) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *stream_fail(tp_py_stream *self, PyObject *exception) {
    if (!PyExceptionInstance_Check(exception)) {
        PyErr_SetString(PyExc_TypeError, "an exception is wanted");
        return NULL;
    }
    if (self->stream.finish != TP_FINISH_NONE || tp_py_stream_over(self)) {
        Py_RETURN_NONE; /* its end is already known */
    }
    tp_inbox_remove(&self->inbox->inbox, &self->stream);
    Py_XSETREF(self->exception, Py_NewRef(exception));
    return tp_py_stream_ready(self) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *stream_drop(tp_py_stream *self, PyObject *Py_UNUSED(ignored)) {
    tp_py_stream_leave(self);
    self->over = 1;
    tp_stream_clear(&self->stream);
    return tp_py_stream_ready(self) < 0 ? NULL : Py_NewRef(Py_None);
}

/* For one consumer of several streams; one of several on a single stream is refused. */
static PyObject *stream_park(tp_py_stream *self, PyObject *future) {
    if (self->waiter != NULL) {
        PyErr_SetString(PyExc_RuntimeError, "another task waits on this stream");
        return NULL;
    }
    self->waiter = Py_NewRef(future);
    Py_INCREF(self);
    Py_RETURN_NONE;
}

static PyObject *stream_unpark(tp_py_stream *self, PyObject *Py_UNUSED(ignored)) {
    Py_XDECREF(tp_py_stream_unpark(self));
    Py_RETURN_NONE;
}

static PyObject *get_key(tp_py_stream *self, void *Py_UNUSED(closure)) {
    return PyLong_FromUnsignedLongLong(self->stream.key);
}
static PyObject *get_request_id(tp_py_stream *self, void *Py_UNUSED(closure)) {
    return Py_NewRef(self->request_id);
}
static PyObject *get_index(tp_py_stream *self, void *Py_UNUSED(closure)) { return Py_NewRef(self->index); }
static PyObject *get_received(tp_py_stream *self, void *Py_UNUSED(closure)) {
    return PyLong_FromUnsignedLong((unsigned long)self->stream.offset + self->stream.len);
}
static PyObject *get_live(tp_py_stream *self, void *Py_UNUSED(closure)) {
    return PyBool_FromLong(self->stream.listed);
}
static PyObject *get_over(tp_py_stream *self, void *Py_UNUSED(closure)) {
    return PyBool_FromLong(tp_py_stream_over(self));
}

static PyMethodDef stream_methods[] = {
    {"take", (PyCFunction)stream_take, METH_VARARGS, "Return what waits as one item, or None."},
    {"end", (PyCFunction)stream_end, METH_VARARGS, "End it here with a reason and a text."},
    {"fail", (PyCFunction)stream_fail, METH_O, "Raise this at its consumer, after what waits."},
    {"drop", (PyCFunction)stream_drop, METH_NOARGS, "Give it up; its consumer gets no more."},
    {"park", (PyCFunction)stream_park, METH_O, "Let Inbox.wake() set this future once it has more."},
    {"unpark", (PyCFunction)stream_unpark, METH_NOARGS, "Forget the future of park()."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef stream_getset[] = {
    {"key", (getter)get_key, NULL, "Internal id.", NULL},
    {"request_id", (getter)get_request_id, NULL, "External id.", NULL},
    {"index", (getter)get_index, NULL, "Sample index.", NULL},
    {"received", (getter)get_received, NULL, "Output tokens that arrived so far.", NULL},
    {"live", (getter)get_live, NULL, "Whether rows may still arrive.", NULL},
    {"over", (getter)get_over, NULL, "Whether its consumer got the last of it.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot stream_slots[] = {
    {Py_tp_doc, (void *)"One request's output: taken, or awaited item by item."},
    {Py_tp_new, (void *)stream_new},
    {Py_tp_dealloc, (void *)stream_dealloc},
    {Py_tp_traverse, (void *)stream_traverse},
    {Py_tp_clear, (void *)stream_clear},
    {Py_tp_methods, stream_methods},
    {Py_tp_getset, stream_getset},
    {Py_am_aiter, (void *)PyObject_SelfIter},
    {Py_am_anext, (void *)tp_py_stream_anext},
    {0, NULL},
};

static PyType_Spec stream_spec = {
    .name = "tokenpipe._core.Stream",
    .basicsize = sizeof(tp_py_stream),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .slots = stream_slots,
};

int tp_init_stream(PyObject *module) {
    PyObject *type = PyType_FromModuleAndSpec(module, &stream_spec, NULL);
    int bad = type == NULL || PyModule_AddType(module, (PyTypeObject *)type) < 0;
    Py_XDECREF(type);
    return bad ? -1 : tp_init_stream_next(module) < 0 ? -1 : tp_init_bell(module);
}
