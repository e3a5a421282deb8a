/* SendWindow: what a lane's sender does with each frame, in one call. A frame is published by a
 * thread whose caches are full of other things, so what is touched is what it costs. */
#include "py/send_window_binding.h"

#include "wire/frame.h"

#define LOOK_EVERY 32u /* frames between two looks for acknowledgements */

static PyObject *window_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *keywords[] = {"bound", "instance", "sender", "put", "max_frame", NULL};
    unsigned long long bound, instance = 0, sender = 0, most = UINT32_MAX;
    PyObject *put = Py_None;
    tp_state *state = tp_state_of_type(type);
    if (state == NULL || !PyArg_ParseTupleAndKeywords(args, kwargs, "K|KKOK:SendWindow", keywords, &bound,
                                                      &instance, &sender, &put, &most)) {
        return NULL;
    }
    tp_send_window *self = (tp_send_window *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->next = (tp_lane_header){instance, sender, 0, 1};
        self->first = 1;
        self->bound = bound;
        self->most = most < UINT32_MAX ? most + TP_FRAME_OVERHEAD : UINT64_MAX;
        self->put = Py_NewRef(put);
        self->put_is_handoff = Py_IS_TYPE(put, (PyTypeObject *)state->handoff);
        self->state = state;
        self->life = state->forks;
        self->until_look = LOOK_EVERY;
    }
    return (PyObject *)self;
}

/* ---- the ring ---- */

static inline uint64_t kept(const tp_send_window *self) { return self->next.seq - self->first; }

static inline PyObject **at(const tp_send_window *self, uint64_t seq) {
    return &self->ring[seq & self->mask];
}

/* Makes room for one more frame. */
static int reserve(tp_send_window *self) {
    if (self->ring != NULL && kept(self) <= self->mask) {
        return 0;
    }
    const uint64_t mask = self->ring == NULL ? 63 : 2 * self->mask + 1;
    PyObject **ring = PyMem_Calloc((size_t)mask + 1, sizeof *ring);
    if (ring == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (uint64_t seq = self->first; seq < self->next.seq; seq++) {
        ring[seq & mask] = *at(self, seq);
    }
    PyMem_Free(self->ring);
    self->ring = ring;
    self->mask = mask;
    return 0;
}

static inline uint64_t charge(PyObject *frame) {
    return (uint64_t)PyBytes_GET_SIZE(frame) + TP_FRAME_OVERHEAD;
}

static void keep(tp_send_window *self, PyObject *frame) {
    *at(self, self->next.seq) = Py_NewRef(frame);
    self->used += charge(frame);
    self->next.seq++;
}

static uint64_t let_go(tp_send_window *self, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        PyObject *frame = *at(self, self->first);
        *at(self, self->first++) = NULL;
        self->used -= charge(frame);
        Py_DECREF(frame);
    }
    return count;
}

/* ---- sending ---- */

static int check_bytes(PyObject *frame) {
    if (PyBytes_CheckExact(frame)) {
        return 0;
    }
    PyErr_Format(PyExc_TypeError, "a frame is bytes, not %s", Py_TYPE(frame)->tp_name);
    return -1;
}

/* Whether a frame is addressed as the next one must be: 1, 0, or -1 with an error. */
static int addressed(const tp_send_window *self, PyObject *frame) {
    uint32_t kind;
    tp_lane_header lane;
    const tp_result result = tp_frame_peek((const uint8_t *)PyBytes_AS_STRING(frame),
                                           (size_t)PyBytes_GET_SIZE(frame), &kind, &lane);
    if (result != TP_OK) {
        tp_raise(self->state, result, "frame");
        return -1;
    }
    return lane.seq == self->next.seq && lane.receiver == self->next.receiver;
}

static inline int closed(const tp_send_window *self) {
    return self->next.receiver == 0 || self->life != self->state->forks;
}

/* 1 taken, 0 not now, -1 with an error. */
static TP_HOT int hand_over(tp_send_window *self, PyObject *frame) {
    if (self->put_is_handoff) {
        return tp_handoff_give(self->put, frame);
    }
    PyObject *taken = PyObject_CallOneArg(self->put, frame);
    const int yes = taken == NULL ? -1 : PyObject_IsTrue(taken);
    Py_XDECREF(taken);
    return yes;
}

/* put() raised, maybe behind its work, as the handler of a signal does: what may be on its way has
 * its number. It is put once more, in case it was not: sent again when it is missed, it would stand
 * behind all that follows. Of two the receiver drops one. */
static void keep_raised(tp_send_window *self, PyObject *frame) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (reserve(self) == 0) {
        keep(self, frame);
        for (int more = 3; more > 0 && hand_over(self, frame) < 0; more--) {
            PyErr_Clear(); /* the handler again, or there is no wire */
        }
    } else {
        PyErr_Clear();
    }
    PyErr_Restore(type, value, traceback);
}

TP_HOT int tp_send_window_send_own(tp_send_window *self, PyObject *frame) {
    if (closed(self)) {
        return TP_CLOSED;
    }
    const uint64_t cost = charge(frame);
    if (self->used > self->bound || cost > self->bound - self->used || cost > self->most) {
        return TP_FULL;
    }
    if (reserve(self) < 0) {
        return -1;
    }
    const int taken = hand_over(self, frame);
    if (taken == 0) {
        return TP_REFUSED;
    }
    if (taken < 0) {
        keep_raised(self, frame);
        return -1;
    }
    if (reserve(self) < 0) { /* again: put() is foreign code */
        return -1;
    }
    const int alone = kept(self) == 0;
    keep(self, frame);
    if (--self->until_look == 0) {
        self->until_look = LOOK_EVERY;
        return TP_LOOK;
    }
    return alone ? TP_FIRST : TP_TAKEN;
}

static PyObject *window_send(tp_send_window *self, PyObject *frame) {
    if (check_bytes(frame) < 0) {
        return NULL;
    }
    const int right = closed(self) ? 1 : addressed(self, frame);
    const int sent = right < 0 ? -1 : right == 0 ? TP_MISADDRESSED : tp_send_window_send_own(self, frame);
    return sent < 0 ? NULL : PyLong_FromLong(sent); /* a small one: nothing is allocated */
}

static PyObject *window_push(tp_send_window *self, PyObject *frame) {
    if (check_bytes(frame) < 0 || reserve(self) < 0) {
        return NULL;
    }
    keep(self, frame);
    Py_RETURN_NONE;
}

/* ---- what the receiver says ---- */

static uint64_t acknowledge(tp_send_window *self, uint64_t last) {
    uint64_t count = 0;
    if (last >= self->first) {
        count = last < self->next.seq - 1 ? last - self->first + 1 : kept(self);
    }
    return let_go(self, count);
}

static PyObject *window_ack(tp_send_window *self, PyObject *applied) {
    const unsigned long long last = PyLong_AsUnsignedLongLong(applied);
    if (last == (unsigned long long)-1 && PyErr_Occurred()) {
        return NULL;
    }
    return PyLong_FromUnsignedLongLong(acknowledge(self, last));
}

static PyObject *window_hear(tp_send_window *self, PyObject *message) {
    tp_lane_header lane;
    uint64_t applied;
    if (check_bytes(message) < 0) {
        return NULL;
    }
    if (closed(self) ||
        tp_ack_read((const uint8_t *)PyBytes_AS_STRING(message), (size_t)PyBytes_GET_SIZE(message), &lane,
                    &applied) != TP_OK ||
        lane.instance != self->next.instance || lane.sender != self->next.receiver ||
        lane.receiver != self->next.sender) {
        Py_RETURN_FALSE;
    }
    acknowledge(self, applied);
    Py_RETURN_TRUE;
}

static PyObject *window_forget(tp_send_window *self, PyObject *Py_UNUSED(ignored)) {
    return PyLong_FromUnsignedLongLong(let_go(self, kept(self)));
}

static PyObject *window_between(tp_send_window *self, PyObject *args) {
    unsigned long long first, last;
    if (!PyArg_ParseTuple(args, "KK:between", &first, &last)) {
        return NULL;
    }
    PyObject *frames = PyList_New(0);
    for (uint64_t seq = first > self->first ? first : self->first;
         frames != NULL && seq < self->next.seq && seq <= last; seq++) {
        if (PyList_Append(frames, *at(self, seq)) < 0) {
            Py_CLEAR(frames);
        }
    }
    return frames;
}

/* ---- attributes ---- */

static Py_ssize_t window_length(tp_send_window *self) { return (Py_ssize_t)kept(self); }

#define READ(name, value)                                                         \
    static PyObject *get_##name(tp_send_window *self, void *Py_UNUSED(closure)) { \
        return PyLong_FromUnsignedLongLong(value);                                \
    }
READ(bound, self->bound)
READ(used, self->used)
READ(first, self->first)
READ(next_seq, self->next.seq)
READ(receiver, self->next.receiver)

static int set_receiver(tp_send_window *self, PyObject *value, void *Py_UNUSED(closure)) {
    if (value == NULL) {
        PyErr_SetString(PyExc_AttributeError, "receiver cannot be deleted");
        return -1;
    }
    const unsigned long long receiver = PyLong_AsUnsignedLongLong(value);
    if (receiver == (unsigned long long)-1 && PyErr_Occurred()) {
        return -1;
    }
    self->next.receiver = receiver;
    return 0;
}

static PyGetSetDef window_attributes[] = {
    {"bound", (getter)get_bound, NULL, "Bytes that may be retained.", NULL},
    {"used", (getter)get_used, NULL, "Bytes retained, overhead included.", NULL},
    {"first", (getter)get_first, NULL, "Oldest frame retained, or next_seq.", NULL},
    {"next_seq", (getter)get_next_seq, NULL, "The number the next frame must carry.", NULL},
    {"receiver", (getter)get_receiver, (setter)set_receiver,
     "The receiver the next frame must carry; 0: the lane takes nothing now.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef window_methods[] = {
    {"send", (PyCFunction)window_send, METH_O,
     "Judge a frame, put() it, number and keep it; returns what became of it."},
    {"push", (PyCFunction)window_push, METH_O, "Number and keep a frame; nothing is judged."},
    {"ack", (PyCFunction)window_ack, METH_O,
     "Let go of everything up to `applied` and return how many frames that was."},
    {"hear", (PyCFunction)window_hear, METH_O,
     "Take a message of the receiver if it is an acknowledgement; False: it is to be looked at."},
    {"between", (PyCFunction)window_between, METH_VARARGS,
     "Return the retained frames numbered first to last."},
    {"forget", (PyCFunction)window_forget, METH_NOARGS,
     "Let go of everything, unacknowledged, and return how many frames that was."},
    {NULL, NULL, 0, NULL},
};

static int window_traverse(tp_send_window *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->put);
    return 0;
}

static int window_clear(tp_send_window *self) {
    Py_CLEAR(self->put);
    return 0;
}

static void window_dealloc(tp_send_window *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    (void)let_go(self, kept(self));
    PyMem_Free(self->ring);
    (void)window_clear(self);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

static PyType_Slot window_slots[] = {
    {Py_tp_new, (void *)window_new},           {Py_tp_dealloc, (void *)window_dealloc},
    {Py_tp_traverse, (void *)window_traverse}, {Py_tp_clear, (void *)window_clear},
    {Py_tp_methods, window_methods},           {Py_tp_getset, window_attributes},
    {Py_sq_length, (void *)window_length},     {0, NULL},
};

static PyType_Spec window_spec = {
    .name = "tokenpipe._core.SendWindow",
    .basicsize = sizeof(tp_send_window),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = window_slots,
};

int tp_init_send_window(PyObject *module) {
    tp_state *state = tp_state_of(module);
    state->send_window = PyType_FromModuleAndSpec(module, &window_spec, NULL);
    if (state->send_window == NULL) {
        return -1;
    }
    return PyModule_AddObjectRef(module, "SendWindow", state->send_window);
}
