/* The type Inbox: frames in, parked consumers out. */
#include "py/inbox_binding.h"

#include <structmember.h>

static PyObject *inbox_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"stream_bytes", "loop", "on_drop", "annexes", NULL};
    Py_ssize_t stream_bytes;
    PyObject *loop = Py_None, *on_drop = Py_None, *annexes = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "n|OOO", names, &stream_bytes, &loop, &on_drop,
                                     &annexes)) {
        return NULL;
    }
    if (stream_bytes <= 0) {
        PyErr_SetString(PyExc_ValueError, "stream_bytes must be positive");
        return NULL;
    }
    tp_py_inbox *self = (tp_py_inbox *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->loop = Py_NewRef(loop);
    self->on_drop = Py_NewRef(on_drop);
    self->annexes = Py_NewRef(annexes);
    PyObject *module = PyType_GetModule(type);
    self->next_type = module == NULL ? NULL : (PyTypeObject *)PyObject_GetAttrString(module, "StreamNext");
    self->bell_type = module == NULL ? NULL : (PyTypeObject *)PyObject_GetAttrString(module, "Bell");
    if (self->next_type == NULL || self->bell_type == NULL || tp_items_init(&self->items) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    if (tp_inbox_init(&self->inbox, (size_t)stream_bytes) != TP_OK) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}

static int inbox_traverse(tp_py_inbox *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->loop);
    Py_VISIT(self->on_drop);
    Py_VISIT(self->annexes);
    Py_VISIT(self->next_type);
    Py_VISIT(self->bell_type);
    for (Py_ssize_t i = self->woken; i < self->wake_count; i++) {
        Py_VISIT(self->wake[i]);
    }
    return tp_items_visit(&self->items, visit, arg);
}

static int inbox_clear(tp_py_inbox *self) {
    /* Not items and next_type: streams may outlive this moment and still be asked. */
    Py_CLEAR(self->loop);
    Py_CLEAR(self->on_drop);
    while (self->wake_count > self->woken) {
        Py_DECREF(self->wake[--self->wake_count]);
    }
    return 0;
}

void tp_py_inbox_dealloc(PyObject *object) {
    tp_py_inbox *self = (tp_py_inbox *)object;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    (void)inbox_clear(self);
    Py_CLEAR(self->next_type);
    Py_CLEAR(self->bell_type);
    Py_CLEAR(self->annexes);
    tp_items_clear(&self->items);
    tp_inbox_clear(&self->inbox); /* every stream owned it, so none is left */
    PyMem_Free(self->wake);
    type->tp_free(object);
    Py_DECREF(type);
}

/* The notes of the last feed as [(kind, stream, offset)], or None where there are none. */
static PyObject *notes_of(const tp_inbox *inbox) {
    if (inbox->note_count == 0) {
        return Py_NewRef(Py_None);
    }
    PyObject *list = PyList_New(inbox->note_count);
    for (uint32_t i = 0; list != NULL && i < inbox->note_count; i++) {
        const tp_note *note = &inbox->notes[i];
        PyObject *entry =
            Py_BuildValue("IOI", (unsigned int)note->kind, (PyObject *)tp_py_stream_of(note->stream),
                          (unsigned int)note->offset);
        if (entry == NULL) {
            Py_CLEAR(list);
            break;
        }
        PyList_SET_ITEM(list, i, entry);
    }
    return list;
}

/* Makes what the last feed named stay: from here on Python code may run and drop streams.
 * Of the woken only those remain that somebody waits on. */
static void own(tp_inbox *inbox) {
    uint32_t parked = 0;
    for (uint32_t i = 0; i < inbox->woken_count; i++) {
        tp_py_stream *stream = tp_py_stream_of(inbox->woken[i]);
        if (stream->waiter != NULL) {
            Py_INCREF(stream);
            inbox->woken[parked++] = inbox->woken[i];
        }
    }
    inbox->woken_count = parked;
    for (uint32_t i = 0; i < inbox->note_count; i++) {
        Py_INCREF(tp_py_stream_of(inbox->notes[i].stream));
    }
}

static void disown(tp_inbox *inbox) {
    while (inbox->woken_count > 0) {
        Py_DECREF(tp_py_stream_of(inbox->woken[--inbox->woken_count]));
    }
    while (inbox->note_count > 0) {
        Py_DECREF(tp_py_stream_of(inbox->notes[--inbox->note_count].stream));
    }
}

static PyObject *inbox_feed(tp_py_inbox *self, PyObject *frame) {
    Py_buffer buffer;
    if (PyObject_GetBuffer(frame, &buffer, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    tp_output_view view;
    tp_result result = tp_output_parse(buffer.buf, (size_t)buffer.len, &view);
    if (result != TP_OK) {
        PyBuffer_Release(&buffer);
        return tp_raise(tp_state_of_type(Py_TYPE(self)), result, "OutputFrame");
    }
    result = tp_inbox_feed(&self->inbox, &view);
    PyBuffer_Release(&buffer);
    own(&self->inbox);
    /* Also after a failure: rows that were applied must wake their consumers. */
    int bad = 0;
    for (uint32_t i = 0; i < self->inbox.woken_count && !bad; i++) {
        bad = tp_py_stream_ready(tp_py_stream_of(self->inbox.woken[i])) < 0;
    }
    PyObject *notes = NULL;
    if (!bad && result != TP_OK) {
        (void)tp_raise(tp_state_of_type(Py_TYPE(self)), result, "OutputFrame");
    } else if (!bad) {
        notes = notes_of(&self->inbox);
    }
    disown(&self->inbox);
    return notes;
}

/* Sets one future unless it was cancelled, or set by another of its streams, meanwhile. */
static int set_result(PyObject *future) {
    PyObject *done = PyObject_CallMethod(future, "set_result", "O", Py_None);
    if (done == NULL) {
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        PyObject *was_done = PyObject_CallMethod(future, "done", NULL);
        int fine = was_done == Py_True;
        Py_XDECREF(was_done);
        if (!fine) {
            PyErr_Restore(type, value, traceback);
            return -1;
        }
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(traceback);
    }
    Py_XDECREF(done);
    return 0;
}

static PyObject *inbox_wake(tp_py_inbox *self, PyObject *args) {
    int at_once = 0, bad = 0;
    if (!PyArg_ParseTuple(args, "|p", &at_once)) {
        return NULL;
    }
    if (self->waking) {
        Py_RETURN_NONE; /* a consumer that is being woken asks: the outer call goes on with all */
    }
    self->waking = 1;
    while (self->woken < self->wake_count && !bad) { /* a consumer may add to the list */
        PyObject *waiter = self->wake[self->woken++];
        bad = Py_IS_TYPE(waiter, self->bell_type) ? tp_bell_ring(waiter, at_once) : set_result(waiter);
        Py_DECREF(waiter);
    }
    if (self->woken == self->wake_count) {
        self->woken = self->wake_count = 0;
    }
    self->waking = 0;
    return bad ? NULL : Py_NewRef(Py_None);
}

static PyObject *inbox_find(tp_py_inbox *self, PyObject *key_object) {
    unsigned long long key = PyLong_AsUnsignedLongLong(key_object);
    if (key == (unsigned long long)-1 && PyErr_Occurred()) {
        return NULL;
    }
    tp_stream *stream = tp_inbox_find(&self->inbox, key);
    return Py_NewRef(stream == NULL ? Py_None : (PyObject *)tp_py_stream_of(stream));
}

static PyObject *inbox_streams(tp_py_inbox *self, PyObject *Py_UNUSED(ignored)) {
    Py_ssize_t expected = self->inbox.used, count = 0;
    PyObject *list = PyList_New(expected);
    if (list == NULL) {
        return NULL;
    }
    /* Making the list may have dropped streams; filling it makes nothing. */
    for (uint32_t i = 0; i <= self->inbox.mask; i++) {
        if (self->inbox.slots[i] != NULL) {
            PyObject *stream = (PyObject *)tp_py_stream_of(self->inbox.slots[i]);
            PyList_SET_ITEM(list, count++, Py_NewRef(stream));
        }
    }
    if (count < expected && PyList_SetSlice(list, count, expected, NULL) < 0) {
        Py_CLEAR(list);
    }
    return list;
}

static PyObject *inbox_counters(tp_py_inbox *self, PyObject *Py_UNUSED(ignored)) {
    const tp_inbox *inbox = &self->inbox;
    return Py_BuildValue("{sKsKsKsKsKsK}", "frames", (unsigned long long)inbox->frames, "rows",
                         (unsigned long long)inbox->rows, "tokens", (unsigned long long)inbox->tokens,
                         "repeated_tokens", (unsigned long long)inbox->repeated_tokens, "ahead_rows",
                         (unsigned long long)inbox->ahead_rows, "late_rows",
                         (unsigned long long)inbox->unknown_rows);
}

static Py_ssize_t inbox_length(tp_py_inbox *self) { return self->inbox.used; }

static PyMethodDef inbox_methods[] = {
    {"feed", (PyCFunction)inbox_feed, METH_O,
     "Apply an OutputFrame; return notes (kind, stream, offset) of what is rare, or None."},
    {"wake", (PyCFunction)inbox_wake, METH_VARARGS,
     "Wake the consumers that have something now: soon or, outside of any task, at once."},
    {"find", (PyCFunction)inbox_find, METH_O, "Return the live stream of a key, or None."},
    {"streams", (PyCFunction)inbox_streams, METH_NOARGS, "Return all live streams."},
    {"counters", (PyCFunction)inbox_counters, METH_NOARGS, "Return the counts so far."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef inbox_members[] = {
    {"depth", T_UINT, offsetof(tp_py_inbox, inbox) + offsetof(tp_inbox, depth), READONLY,
     "Tokens a row that the last frame had."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot inbox_slots[] = {
    {Py_tp_doc, (void *)"The map from request key to Stream. Streams are held weakly."},
    {Py_tp_new, (void *)inbox_new},
    {Py_tp_dealloc, (void *)tp_py_inbox_dealloc},
    {Py_tp_traverse, (void *)inbox_traverse},
    {Py_tp_clear, (void *)inbox_clear},
    {Py_tp_methods, inbox_methods},
    {Py_tp_members, (void *)inbox_members},
    {Py_sq_length, (void *)inbox_length},
    {0, NULL},
};

static PyType_Spec inbox_spec = {
    .name = "tokenpipe._core.Inbox",
    .basicsize = sizeof(tp_py_inbox),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = inbox_slots,
};

int tp_init_inbox(PyObject *module) {
    PyObject *type = PyType_FromModuleAndSpec(module, &inbox_spec, NULL);
    int bad = type == NULL || PyModule_AddType(module, (PyTypeObject *)type) < 0;
    Py_XDECREF(type);
    return bad ? -1 : tp_init_stream(module);
}
