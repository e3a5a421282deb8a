/* The type Inbox: takes frames, and wakes consumers. */
#include "py/inbox_binding.h"

#include "py/client_objects.h"
#include "py/items_binding.h"
#include "py/stream_park_binding.h"
#include "py/stream_waiter_binding.h"
#include "buffer.h"

#include <structmember.h>

static int find_current_task(Inbox *self) {
    if (self->loop == Py_None) {
        return 0;
    }
    PyObject *asyncio = PyImport_ImportModule("asyncio");
    self->current_task = asyncio == NULL ? NULL : PyObject_GetAttrString(asyncio, "current_task");
    Py_XDECREF(asyncio);
    return self->current_task == NULL ? -1 : 0;
}

static PyObject *inbox_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"stream_bytes", "loop", "on_drop", "extras", NULL};
    tp_state *state = tp_state_of_type(type);
    Py_ssize_t stream_bytes;
    PyObject *loop = Py_None, *on_drop = Py_None, *extras = Py_None;
    if (state == NULL ||
        !PyArg_ParseTupleAndKeywords(args, kwargs, "n|OOO", names, &stream_bytes, &loop, &on_drop, &extras)) {
        return NULL;
    }
    if (stream_bytes <= 0) {
        PyErr_SetString(PyExc_ValueError, "stream_bytes must be positive");
        return NULL;
    }
    Inbox *self = (Inbox *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->state = state;
    self->loop = Py_NewRef(loop);
    self->on_drop = Py_NewRef(on_drop);
    self->make_reader = Py_NewRef(extras);
    self->next_type = (PyTypeObject *)Py_NewRef(state->stream_next);
    self->waiter_type = (PyTypeObject *)Py_NewRef(state->stream_waiter);
    if (tp_items_init(&self->items) < 0 || find_current_task(self) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    if (tp_inbox_init(&self->inbox, (size_t)stream_bytes) != TP_OK) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}

static int inbox_traverse(Inbox *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->loop);
    Py_VISIT(self->on_drop);
    Py_VISIT(self->current_task);
    Py_VISIT(self->make_reader);
    Py_VISIT(self->next_type);
    Py_VISIT(self->waiter_type);
    for (uint32_t i = self->woken; i < self->wake_count; i++) {
        Py_VISIT(self->wake[i]);
    }
    return tp_items_visit(&self->items, visit, arg);
}

static int inbox_clear(Inbox *self) {
    /* The types and the items stay: the streams may live longer than the inbox, and consumers may still call
     * their methods. */
    Py_CLEAR(self->loop);
    Py_CLEAR(self->on_drop);
    while (self->wake_count > self->woken) {
        Py_DECREF(self->wake[--self->wake_count]);
    }
    return 0;
}

static void inbox_dealloc(PyObject *object) {
    Inbox *self = (Inbox *)object;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    (void)inbox_clear(self);
    Py_CLEAR(self->next_type);
    Py_CLEAR(self->waiter_type);
    Py_CLEAR(self->current_task);
    Py_CLEAR(self->make_reader);
    tp_items_clear(&self->items);
    tp_inbox_clear(&self->inbox); /* each stream has a reference to the inbox, so the map is empty */
    free(self->wake);
    type->tp_free(object);
    Py_DECREF(type);
}

/* Returns the notes of the last feed as [(kind, stream, offset)], or None. */
static PyObject *notes_of(const tp_inbox *inbox) {
    if (inbox->note_count == 0) {
        return Py_NewRef(Py_None);
    }
    PyObject *list = PyList_New(inbox->note_count);
    for (uint32_t i = 0; list != NULL && i < inbox->note_count; i++) {
        const tp_note *note = &inbox->notes[i];
        PyObject *entry =
            Py_BuildValue("IOI", (unsigned int)note->kind, (PyObject *)tp_stream_object(note->stream),
                          (unsigned int)note->offset);
        if (entry == NULL) {
            Py_CLEAR(list);
            break;
        }
        PyList_SET_ITEM(list, i, entry);
    }
    return list;
}

/* Takes references to the streams in the lists of the last feed: Python code that runs from here on may drop
 * streams. A woken stream stays in the list only if somebody waits on it. */
static void own(tp_inbox *inbox) {
    uint32_t parked = 0;
    for (uint32_t i = 0; i < inbox->woken_count; i++) {
        Stream *stream = tp_stream_object(inbox->woken[i]);
        if (stream->waiting_on != NULL) {
            Py_INCREF(stream);
            inbox->woken[parked++] = inbox->woken[i];
        }
    }
    inbox->woken_count = parked;
    for (uint32_t i = inbox->kept_notes; i < inbox->note_count; i++) {
        Py_INCREF(tp_stream_object(inbox->notes[i].stream));
    }
}

static void disown_woken(tp_inbox *inbox) {
    while (inbox->woken_count > 0) {
        Py_DECREF(tp_stream_object(inbox->woken[--inbox->woken_count]));
    }
}

static void disown_notes(tp_inbox *inbox) {
    inbox->kept_notes = 0;
    while (inbox->note_count > 0) {
        Py_DECREF(tp_stream_object(inbox->notes[--inbox->note_count].stream));
    }
}

/* Makes room in the list `wake` for all streams that a frame may wake, so that no stream stays out of it. */
static tp_result reserve_wake(Inbox *self, uint32_t rows) {
    return tp_buffer_grow(&self->wake, sizeof *self->wake, &self->wake_capacity,
                          self->wake_count + (uint64_t)rows);
}

/* Applies a parsed frame, and wakes consumers. If a row failed, the consumers of the rows before it are
 * woken. */
static PyObject *apply(Inbox *self, const tp_output_view *view) {
    tp_inbox *inbox = &self->inbox;
    tp_result result = reserve_wake(self, view->rows);
    if (result != TP_OK) {
        return tp_raise(self->state, result, "OutputFrame");
    }
    result = tp_inbox_feed(inbox, view);
    own(inbox);
    for (uint32_t i = 0; i < inbox->woken_count; i++) {
        (void)tp_stream_rouse(tp_stream_object(inbox->woken[i])); /* there is room */
    }
    disown_woken(inbox);
    PyObject *notes = result == TP_OK ? notes_of(inbox) : tp_raise(self->state, result, "OutputFrame");
    if (notes == NULL) {
        inbox->kept_notes = inbox->note_count;
    } else {
        disown_notes(inbox);
    }
    return notes;
}

static PyObject *inbox_feed(Inbox *self, PyObject *object) {
    tp_output_view view;
    PyObject *frame = tp_frame(object);
    if (frame == NULL) {
        return NULL;
    }
    PyObject *notes = NULL;
    const tp_result result = tp_output_parse(tp_bytes_of(frame), (size_t)PyBytes_GET_SIZE(frame), &view);
    if (self->feeding) { /* a finalizer called this within a feed, which still uses its lists */
        PyErr_SetString(PyExc_RuntimeError, "feed() is running");
    } else if (result != TP_OK) {
        (void)tp_raise(self->state, result, "OutputFrame");
    } else {
        self->feeding = 1;
        notes = apply(self, &view);
        self->feeding = 0;
    }
    Py_DECREF(frame);
    return notes;
}

/* Sets a future, unless it was cancelled or another stream has set it. */
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

/* Whether the caller runs in a task. asyncio does not let a task run within another one. -1: an exception. */
static int in_task(const Inbox *self) {
    if (self->current_task == NULL || self->loop == NULL) {
        return 0;
    }
    PyObject *task = PyObject_CallOneArg(self->current_task, self->loop);
    const int yes = task == NULL ? -1 : task != Py_None;
    Py_XDECREF(task);
    return yes;
}

static PyObject *inbox_wake(Inbox *self, PyObject *args) {
    int at_once = 0, bad = 0;
    if (!PyArg_ParseTuple(args, "|p", &at_once)) {
        return NULL;
    }
    if (self->waking) {
        Py_RETURN_NONE; /* called by a consumer that was just woken; the outer call wakes all */
    }
    if (at_once && self->wake_count > 0) {
        const int within = in_task(self);
        if (within < 0) {
            return NULL;
        }
        at_once = !within;
    }
    self->waking = 1;
    while (self->woken < self->wake_count && !bad) { /* a consumer may add to the list */
        PyObject *waiter = self->wake[self->woken++];
        bad = Py_IS_TYPE(waiter, self->waiter_type) ? tp_stream_waiter_wake(waiter, at_once)
                                                    : set_result(waiter);
        Py_DECREF(waiter);
    }
    if (self->woken == self->wake_count) {
        self->woken = self->wake_count = 0;
    }
    self->waking = 0;
    return bad ? NULL : Py_NewRef(Py_None);
}

static PyObject *inbox_find(Inbox *self, PyObject *key_object) {
    unsigned long long key = PyLong_AsUnsignedLongLong(key_object);
    if (key == (unsigned long long)-1 && PyErr_Occurred()) {
        return NULL;
    }
    tp_stream *stream = tp_stream_map_find(&self->inbox.map, key);
    return Py_NewRef(stream == NULL ? Py_None : (PyObject *)tp_stream_object(stream));
}

static PyObject *inbox_streams(Inbox *self, PyObject *Py_UNUSED(ignored)) {
    Py_ssize_t expected = self->inbox.map.used, count = 0;
    PyObject *list = PyList_New(expected);
    if (list == NULL) {
        return NULL;
    }
    /* PyList_New may have run a finalizer that dropped streams; filling the list runs nothing. */
    for (uint32_t i = 0; i <= self->inbox.map.mask; i++) {
        if (self->inbox.map.slots[i] != NULL) {
            PyObject *stream = (PyObject *)tp_stream_object(self->inbox.map.slots[i]);
            PyList_SET_ITEM(list, count++, Py_NewRef(stream));
        }
    }
    if (count < expected && PyList_SetSlice(list, count, expected, NULL) < 0) {
        Py_CLEAR(list);
    }
    return list;
}

static PyObject *inbox_counters(Inbox *self, PyObject *Py_UNUSED(ignored)) {
    const tp_inbox *inbox = &self->inbox;
    return Py_BuildValue("{sKsKsKsKsKsK}", "frames", (unsigned long long)inbox->frames, "rows",
                         (unsigned long long)inbox->rows, "tokens", (unsigned long long)inbox->tokens,
                         "repeated_tokens", (unsigned long long)inbox->repeated_tokens, "ahead_rows",
                         (unsigned long long)inbox->ahead_rows, "late_rows",
                         (unsigned long long)inbox->unknown_rows);
}

static Py_ssize_t inbox_length(Inbox *self) { return self->inbox.map.used; }

static PyMethodDef inbox_methods[] = {
    {"feed", (PyCFunction)inbox_feed, METH_O,
     "Apply an OutputFrame; return notes (kind, stream, offset) of rare cases, or None."},
    {"wake", (PyCFunction)inbox_wake, METH_VARARGS,
     "Wake the consumers that can take an item: at once, but in a task soon."},
    {"find", (PyCFunction)inbox_find, METH_O, "Return the live stream of a key, or None."},
    {"streams", (PyCFunction)inbox_streams, METH_NOARGS, "Return all live streams."},
    {"counters", (PyCFunction)inbox_counters, METH_NOARGS, "Return the counts so far."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef inbox_members[] = {
    {"depth", T_UINT, offsetof(Inbox, inbox) + offsetof(tp_inbox, depth), READONLY,
     "Tokens a row that the last frame had."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot inbox_slots[] = {
    {Py_tp_doc, (void *)"The map from request key to Stream. Streams are held weakly."},
    {Py_tp_new, (void *)inbox_new},
    {Py_tp_dealloc, (void *)inbox_dealloc},
    {Py_tp_traverse, (void *)inbox_traverse},
    {Py_tp_clear, (void *)inbox_clear},
    {Py_tp_methods, inbox_methods},
    {Py_tp_members, (void *)inbox_members},
    {Py_sq_length, (void *)inbox_length},
    {0, NULL},
};

static PyType_Spec inbox_spec = {
    .name = "tokenpipe._core.Inbox",
    .basicsize = sizeof(Inbox),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = inbox_slots,
};

int tp_is_inbox(PyObject *object) { return Py_TYPE(object)->tp_dealloc == inbox_dealloc; }

int tp_init_inbox(PyObject *module) { return tp_add_type(module, &inbox_spec); }
