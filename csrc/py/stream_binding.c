/* The type Stream. */
#include "py/stream_binding.h"

#include "py/client_objects.h"
#include "py/inbox_binding.h"
#include "py/item_binding.h"
#include "py/stream_next_binding.h"
#include "py/stream_park_binding.h"

#include <stdlib.h>

/* Gives a new stream its values, and puts it into the inbox. 0, or -1 with an exception. */
static int enter(Stream *self, Inbox *inbox, uint64_t key) {
    tp_stream_map *map = &inbox->inbox.map;
    self->inbox = (Inbox *)Py_NewRef((PyObject *)inbox);
    if (tp_stream_map_find(map, key) != NULL) {
        PyErr_Format(PyExc_ValueError, "key %llu is in use", (unsigned long long)key);
        return -1;
    }
    if (tp_stream_map_add(map, &self->stream) != TP_OK) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

static PyObject *stream_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"inbox", "key", "request_id", "index", "prompt_tokens", "stops", "kind", NULL};
    PyObject *inbox, *request_id, *index = NULL, *stops = NULL;
    uint64_t key;
    uint32_t prompt_tokens = 0;
    unsigned char kind = TP_DELTA;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO&U|O!O&O!b", names, &inbox, tp_u64_arg, &key,
                                     &request_id, &PyLong_Type, &index, tp_u32_arg, &prompt_tokens,
                                     &PyTuple_Type, &stops, &kind)) {
        return NULL;
    }
    if (!tp_is_inbox(inbox)) {
        PyErr_SetString(PyExc_TypeError, "inbox must be an Inbox");
        return NULL;
    }
    if (kind > TP_FINAL_ONLY) {
        return PyErr_Format(PyExc_ValueError, "there is no output kind %d", kind);
    }
    Stream *self = (Stream *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    tp_stream_init(&self->stream, key);
    self->stream.kind = kind;
    self->request_id = Py_NewRef(request_id);
    self->index = index == NULL ? PyLong_FromLong(0) : Py_NewRef(index);
    self->prompt_tokens = prompt_tokens;
    self->stops = Py_XNewRef(stops);
    if (self->index == NULL || enter(self, (Inbox *)inbox, key) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static int stream_traverse(Stream *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->inbox);
    Py_VISIT(self->waiting_on);
    Py_VISIT(self->waiter);
    Py_VISIT(self->reader);
    Py_VISIT(self->exception);
    return 0;
}

static int stream_clear(Stream *self) {
    /* The inbox stays, because dealloc still has to leave it. A stream on which somebody waits is never
     * garbage. */
    Py_CLEAR(self->waiter);
    Py_CLEAR(self->exception);
    return 0;
}

/* Leaves the inbox before anything else of the stream is freed. To free the slots of a subclass may run
 * Python code, which must not find the stream there. */
static void stream_finalize(PyObject *self) { tp_stream_leave((Stream *)self); }

static void stream_dealloc(Stream *self) {
    PyTypeObject *type = Py_TYPE(self);
    if (PyObject_CallFinalizerFromDealloc((PyObject *)self) < 0) {
        return; /* Python code has a reference to it again */
    }
    PyObject_GC_UnTrack(self);
    tp_stream_clear(&self->stream);
    Py_CLEAR(self->exception);
    Py_CLEAR(self->reader);
    Py_CLEAR(self->waiting_on);
    Py_CLEAR(self->waiter);
    Py_CLEAR(self->request_id);
    Py_CLEAR(self->index);
    Py_CLEAR(self->stops);
    Py_CLEAR(self->inbox);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

static PyObject *stream_take(Stream *self, PyObject *const *args, Py_ssize_t n) {
    uint64_t limit = 0;
    if (n > 1) {
        return PyErr_Format(PyExc_TypeError, "take() takes one argument at most, not %zd", n);
    }
    if (n == 1 && !tp_u64_arg(args[0], &limit)) {
        return NULL;
    }
    PyObject *item = tp_item_next(self, limit > UINT32_MAX ? UINT32_MAX : (uint32_t)limit);
    return item == NULL && !PyErr_Occurred() ? Py_NewRef(Py_None) : item;
}

static PyObject *stream_end(Stream *self, PyObject *args) {
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
    uint8_t *error = malloc((size_t)(size + field_size) + 1);
    if (error == NULL) {
        return PyErr_NoMemory();
    }
    memcpy(error, text, (size_t)size);
    memcpy(error + size, field, (size_t)field_size);
    tp_stream_map_remove(&self->inbox->inbox.map, &self->stream);
    const tp_ending ending = {.finish = finish,
                              .error_code = code,
                              .stop_reason = TP_NO_STOP,
                              .stop_string = TP_NO_STOP,
                              .error = error,
                              .error_len = (uint32_t)(size + field_size),
                              .error_field = (uint8_t)field_size};
    tp_stream_end(&self->stream, &ending);
    free(error);
    return tp_stream_rouse(self) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *stream_fail(Stream *self, PyObject *exception) {
    if (!PyExceptionInstance_Check(exception)) {
        PyErr_SetString(PyExc_TypeError, "fail() needs an exception");
        return NULL;
    }
    if (self->stream.finish != TP_FINISH_NONE || tp_stream_is_over(self)) {
        Py_RETURN_NONE; /* it already has its end */
    }
    tp_stream_map_remove(&self->inbox->inbox.map, &self->stream);
    Py_XSETREF(self->exception, Py_NewRef(exception));
    return tp_stream_rouse(self) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *stream_drop(Stream *self, PyObject *Py_UNUSED(ignored)) {
    tp_stream_leave(self);
    self->over = self->dropped = 1;
    tp_stream_clear(&self->stream);
    return tp_stream_rouse(self) < 0 ? NULL : Py_NewRef(Py_None);
}

/* For a consumer that waits on several streams. For a second consumer of one stream it raises. */
static PyObject *stream_park(Stream *self, PyObject *future) {
    if (self->waiting_on != NULL) {
        PyErr_SetString(PyExc_RuntimeError, "another task waits on this stream");
        return NULL;
    }
    tp_stream_park(self, future);
    Py_RETURN_NONE;
}

static PyObject *stream_unpark(Stream *self, PyObject *Py_UNUSED(ignored)) {
    Py_XDECREF(tp_stream_unpark(self));
    Py_RETURN_NONE;
}

static PyObject *get_key(Stream *self, void *Py_UNUSED(closure)) {
    return PyLong_FromUnsignedLongLong(self->stream.key);
}
static PyObject *get_request_id(Stream *self, void *Py_UNUSED(closure)) {
    return Py_NewRef(self->request_id);
}
static PyObject *get_index(Stream *self, void *Py_UNUSED(closure)) { return Py_NewRef(self->index); }
static PyObject *get_received(Stream *self, void *Py_UNUSED(closure)) {
    return PyLong_FromUnsignedLong((unsigned long)self->stream.offset + self->stream.len);
}
static PyObject *get_live(Stream *self, void *Py_UNUSED(closure)) {
    return PyBool_FromLong(self->stream.listed);
}
static PyObject *get_over(Stream *self, void *Py_UNUSED(closure)) {
    return PyBool_FromLong(tp_stream_is_over(self));
}

static PyMethodDef stream_methods[] = {
    {"take", (PyCFunction)(void (*)(void))stream_take, METH_FASTCALL,
     "Return the output that waits as one item, or None."},
    {"end", (PyCFunction)stream_end, METH_VARARGS, "End it with a reason and a text."},
    {"fail", (PyCFunction)stream_fail, METH_O, "Raise this at its consumer, after the output that waits."},
    {"drop", (PyCFunction)stream_drop, METH_NOARGS, "Drop it; its consumer gets no more."},
    {"park", (PyCFunction)stream_park, METH_O, "Let Inbox.wake() set this future when there is more output."},
    {"unpark", (PyCFunction)stream_unpark, METH_NOARGS, "Forget the future of park()."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef stream_getset[] = {
    {"key", (getter)get_key, NULL, "Internal id.", NULL},
    {"request_id", (getter)get_request_id, NULL, "External id.", NULL},
    {"index", (getter)get_index, NULL, "Sample index.", NULL},
    {"received", (getter)get_received, NULL, "Output tokens that arrived so far.", NULL},
    {"live", (getter)get_live, NULL, "Whether rows may still arrive.", NULL},
    {"over", (getter)get_over, NULL, "Whether its consumer got all of it.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot stream_slots[] = {
    {Py_tp_doc, (void *)"One request's output: taken, or awaited item by item."},
    {Py_tp_new, (void *)stream_new},
    {Py_tp_dealloc, (void *)stream_dealloc},
    {Py_tp_finalize, (void *)stream_finalize},
    {Py_tp_traverse, (void *)stream_traverse},
    {Py_tp_clear, (void *)stream_clear},
    {Py_tp_methods, stream_methods},
    {Py_tp_getset, stream_getset},
    {Py_am_aiter, (void *)PyObject_SelfIter},
    {Py_am_anext, (void *)tp_stream_anext},
    {0, NULL},
};

static PyType_Spec stream_spec = {
    .name = "tokenpipe._core.Stream",
    .basicsize = sizeof(Stream),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .slots = stream_slots,
};

int tp_init_stream(PyObject *module) { return tp_add_type(module, &stream_spec); }
