/* The type SendWindow. The caches of the thread that publishes are full of other data, so a send touches as
 * little memory as possible. */
#include "py/send_window_binding.h"

#include "py/socket_send_binding.h"

#include <structmember.h>

static PyObject *window_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *keywords[] = {"bound", "instance", "sender", "put", "max_frame", NULL};
    uint64_t bound, instance = 0, sender = 0, max_frame = UINT32_MAX;
    PyObject *put = Py_None;
    tp_state *state = tp_state_of_type(type);
    if (state == NULL || !PyArg_ParseTupleAndKeywords(args, kwargs, "O&|O&O&OO&:SendWindow", keywords,
                                                      tp_u64_arg, &bound, tp_u64_arg, &instance, tp_u64_arg,
                                                      &sender, &put, tp_u64_arg, &max_frame)) {
        return NULL;
    }
    SendWindow *self = (SendWindow *)type->tp_alloc(type, 0);
    if (self != NULL) {
        tp_send_window_init(&self->window, instance, sender, bound, max_frame);
        self->put = Py_NewRef(put);
        self->put_is_socket = Py_IS_TYPE(put, (PyTypeObject *)state->socket_send);
        self->state = state;
        self->life = state->forks;
    }
    return (PyObject *)self;
}

static int check_bytes(PyObject *frame) {
    if (PyBytes_CheckExact(frame)) {
        return 0;
    }
    PyErr_Format(PyExc_TypeError, "a frame is bytes, not %s", Py_TYPE(frame)->tp_name);
    return -1;
}

static inline const uint8_t *data_of(PyObject *frame) { return (const uint8_t *)PyBytes_AS_STRING(frame); }

static inline size_t size_of(PyObject *frame) { return (size_t)PyBytes_GET_SIZE(frame); }

static int reserve(SendWindow *self) {
    if (tp_send_window_reserve(&self->window) != TP_OK) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

/* Forgets the oldest frames. */
static uint64_t release(SendWindow *self, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        Py_DECREF((PyObject *)tp_send_window_pop(&self->window));
    }
    return count;
}

/* ---- sending ---- */

/* A child process that was forked must not send on the socket of its parent, nor a second thread. */
static inline int is_closed(const SendWindow *self) {
    return self->window.next.receiver == 0 || self->life != self->state->forks || self->put == NULL ||
           (self->thread != 0 && self->thread != PyThread_get_thread_ident());
}

/* Whether put() runs, with RuntimeError. Another frame would get the number of the one that is put. */
static inline int is_sending(const SendWindow *self) {
    if (self->sending) {
        PyErr_SetString(PyExc_RuntimeError, "a frame is being sent: its put() must not send another");
    }
    return self->sending;
}

/* 1: taken. 0: not now. -1: an exception. */
static TP_HOT int hand_over(SendWindow *self, PyObject *frame) {
    if (self->put_is_socket) {
        return tp_socket_send(self->put, frame);
    }
    PyObject *taken = PyObject_CallOneArg(self->put, frame);
    const int yes = taken == NULL ? -1 : PyObject_IsTrue(taken);
    Py_XDECREF(taken);
    return yes;
}

/* put() raised. The frame may have been sent, for example if a signal handler raised after the send. So the
 * frame gets its number. It is put once more, in case it was not sent. Otherwise it would be sent only when
 * the receiver misses it, after all frames that follow. A receiver that gets it twice drops one. */
static void keep_raised(SendWindow *self, PyObject *frame) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (tp_send_window_reserve(&self->window) == TP_OK) {
        tp_send_window_keep(&self->window, Py_NewRef(frame), size_of(frame));
        for (int more = 3; more > 0 && self->put != NULL && hand_over(self, frame) < 0; more--) {
            PyErr_Clear(); /* the signal handler raised again, or there is no connection */
        }
    }
    PyErr_Restore(type, value, traceback);
}

TP_HOT int tp_py_window_send(SendWindow *self, PyObject *frame) {
    if (is_closed(self)) {
        return TP_CLOSED;
    }
    if (is_sending(self)) {
        return -1;
    }
    const enum tp_sent admitted = tp_send_window_admit(&self->window, size_of(frame));
    if (admitted != TP_TAKEN) {
        return admitted;
    }
    if (reserve(self) < 0) {
        return -1;
    }
    self->sending = 1;
    const int taken = hand_over(self, frame);
    if (taken < 0) {
        keep_raised(self, frame);
    }
    self->sending = 0;
    if (taken <= 0) {
        return taken == 0 ? (int)TP_REFUSED : -1;
    }
    return tp_send_window_sent(&self->window, Py_NewRef(frame), size_of(frame));
}

static PyObject *window_send(SendWindow *self, PyObject *frame) {
    enum tp_sent right = TP_TAKEN;
    if (check_bytes(frame) < 0) {
        return NULL;
    }
    if (!is_closed(self)) {
        const tp_result result = tp_send_window_check(&self->window, data_of(frame), size_of(frame), &right);
        if (result != TP_OK) {
            return tp_raise(self->state, result, "frame");
        }
    }
    const int sent = right == TP_TAKEN ? tp_py_window_send(self, frame) : (int)right;
    return sent < 0 ? NULL : PyLong_FromLong(sent); /* CPython keeps small ints: no allocation */
}

static PyObject *window_push(SendWindow *self, PyObject *frame) {
    if (check_bytes(frame) < 0 || is_sending(self) || reserve(self) < 0) {
        return NULL;
    }
    tp_send_window_keep(&self->window, Py_NewRef(frame), size_of(frame));
    Py_RETURN_NONE;
}

/* ---- acknowledgements ---- */

static PyObject *window_ack(SendWindow *self, PyObject *applied) {
    const unsigned long long last = PyLong_AsUnsignedLongLong(applied);
    if (last == (unsigned long long)-1 && PyErr_Occurred()) {
        return NULL;
    }
    return PyLong_FromUnsignedLongLong(release(self, tp_send_window_acknowledged(&self->window, last)));
}

static PyObject *window_hear(SendWindow *self, PyObject *message) {
    uint64_t applied;
    if (check_bytes(message) < 0) {
        return NULL;
    }
    if (is_closed(self) ||
        !tp_send_window_hear(&self->window, data_of(message), size_of(message), &applied)) {
        Py_RETURN_FALSE;
    }
    release(self, tp_send_window_acknowledged(&self->window, applied));
    Py_RETURN_TRUE;
}

static PyObject *window_forget(SendWindow *self, PyObject *Py_UNUSED(ignored)) {
    return PyLong_FromUnsignedLongLong(release(self, tp_send_window_count(&self->window)));
}

static PyObject *window_between(SendWindow *self, PyObject *args) {
    uint64_t first, last;
    if (!PyArg_ParseTuple(args, "O&O&:between", tp_u64_arg, &first, tp_u64_arg, &last)) {
        return NULL;
    }
    const tp_send_window *w = &self->window;
    PyObject *frames = PyList_New(0);
    for (uint64_t seq = first > w->first ? first : w->first;
         frames != NULL && seq < w->next.seq && seq <= last; seq++) {
        PyObject *frame = tp_send_window_find(w, seq);
        if (frame != NULL && PyList_Append(frames, frame) < 0) {
            Py_CLEAR(frames);
        }
    }
    return frames;
}

/* ---- attributes ---- */

static Py_ssize_t window_length(SendWindow *self) { return (Py_ssize_t)tp_send_window_count(&self->window); }

#define READ(name, value)                                                     \
    static PyObject *get_##name(SendWindow *self, void *Py_UNUSED(closure)) { \
        return PyLong_FromUnsignedLongLong(value);                            \
    }
READ(bound, self->window.bound)
READ(used, self->window.used)
READ(first, self->window.first)
READ(next_seq, self->window.next.seq)
READ(receiver, self->window.next.receiver)

static int set_receiver(SendWindow *self, PyObject *value, void *Py_UNUSED(closure)) {
    if (value == NULL) {
        PyErr_SetString(PyExc_AttributeError, "receiver cannot be deleted");
        return -1;
    }
    const unsigned long long receiver = PyLong_AsUnsignedLongLong(value);
    if (receiver == (unsigned long long)-1 && PyErr_Occurred()) {
        return -1;
    }
    self->window.next.receiver = receiver;
    return 0;
}

static PyMemberDef window_members[] = {
    {"thread", T_ULONGLONG, offsetof(SendWindow, thread), 0, "The only thread that may send; 0: any."},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef window_attributes[] = {
    {"bound", (getter)get_bound, NULL, "Bytes that may be kept.", NULL},
    {"used", (getter)get_used, NULL, "Bytes that are kept, overhead included.", NULL},
    {"first", (getter)get_first, NULL, "Number of the oldest frame that is kept, or next_seq.", NULL},
    {"next_seq", (getter)get_next_seq, NULL, "The number that the next frame must carry.", NULL},
    {"receiver", (getter)get_receiver, (setter)set_receiver,
     "The receiver that the next frame must carry; 0: the lane is closed.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef window_methods[] = {
    {"send", (PyCFunction)window_send, METH_O,
     "Check a frame, put() it, number and keep it; return the result of the send."},
    {"push", (PyCFunction)window_push, METH_O, "Number and keep a frame without a check."},
    {"ack", (PyCFunction)window_ack, METH_O, "Forget the frames up to `applied` and return their number."},
    {"hear", (PyCFunction)window_hear, METH_O,
     "Take a message if the receiver acknowledges frames with it; return whether it does."},
    {"between", (PyCFunction)window_between, METH_VARARGS, "Return the kept frames numbered first to last."},
    {"forget", (PyCFunction)window_forget, METH_NOARGS, "Forget all frames and return their number."},
    {NULL, NULL, 0, NULL},
};

static int window_traverse(SendWindow *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->put);
    return 0;
}

static int window_clear(SendWindow *self) {
    Py_CLEAR(self->put);
    return 0;
}

static void window_dealloc(SendWindow *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    release(self, tp_send_window_count(&self->window));
    tp_send_window_free(&self->window);
    (void)window_clear(self);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

static PyType_Slot window_slots[] = {
    {Py_tp_new, (void *)window_new},
    {Py_tp_dealloc, (void *)window_dealloc},
    {Py_tp_traverse, (void *)window_traverse},
    {Py_tp_clear, (void *)window_clear},
    {Py_tp_methods, window_methods},
    {Py_tp_getset, window_attributes},
    {Py_tp_members, window_members},
    {Py_sq_length, (void *)window_length},
    {0, NULL},
};

static PyType_Spec window_spec = {
    .name = "tokenpipe._core.SendWindow",
    .basicsize = sizeof(SendWindow),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = window_slots,
};

int tp_init_send_window(PyObject *module) {
    tp_state *state = tp_state_of(module);
    state->send_window = tp_make_type(module, &window_spec);
    return state->send_window == NULL ? -1 : 0;
}
