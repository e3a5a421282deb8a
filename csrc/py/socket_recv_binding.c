/* The type SocketRecv. A ROUTER gives a message as its route and then its parts. Reading does not ask which
 * part is the last, because pyzmq needs longer for this question than for the part. So each part is judged by
 * itself: a part that begins like a frame is a frame of the last route, and any other part is a route. */
#include "py/socket_recv_binding.h"

#include "wire/envelope.h"

#include <structmember.h>

typedef struct SocketRecv {
    PyObject_HEAD
    PyObject *recv, *flags, *again;
    PyObject *route; /* of the frames that come next, or NULL */
    uint64_t malformed, bytes;
    char idle; /* the last call found nothing more */
    char odd;  /* an odd number of parts that are no frames came since the last frame */
} SocketRecv;

static PyObject *socket_recv_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *keywords[] = {"recv", "flags", "again", NULL};
    PyObject *recv, *flags, *again;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOO:SocketRecv", keywords, &recv, &flags, &again)) {
        return NULL;
    }
    SocketRecv *self = (SocketRecv *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->recv = Py_NewRef(recv);
        self->flags = Py_NewRef(flags);
        self->again = Py_NewRef(again);
    }
    return (PyObject *)self;
}

/* Receives one part; NULL with an exception. */
static PyObject *receive(const SocketRecv *self) {
    if (self->recv == NULL) { /* the garbage collector has cleared it */
        (void)tp_gone("SocketRecv");
        return NULL;
    }
    return PyObject_CallOneArg(self->recv, self->flags);
}

static inline const uint8_t *data_of(PyObject *part) { return (const uint8_t *)PyBytes_AS_STRING(part); }

static inline size_t size_of(PyObject *part) { return (size_t)PyBytes_GET_SIZE(part); }

/* Whether a part is the data frame that `next` describes. */
static int is_next(PyObject *part, const tp_lane_header *next) {
    uint32_t kind;
    tp_lane_header lane;
    return next->sender != 0 && tp_frame_peek(data_of(part), size_of(part), &kind, &lane) == TP_OK &&
           kind != TP_KIND_LANE && lane.instance == next->instance && lane.sender == next->sender &&
           lane.receiver == next->receiver && lane.seq == next->seq;
}

/* Counts the bytes of a part as ZMTP sends them. */
static inline void count_bytes(SocketRecv *self, PyObject *part) {
    const size_t size = size_of(part);
    self->bytes += size + (size > UINT8_MAX ? 9 : 2);
}

/* Receives parts up to a frame, which *part then is; NULL at the end. -1 with an exception. `limit` falls
 * with each frame and each malformed part. */
static int next_frame(SocketRecv *self, Py_ssize_t *limit, PyObject **part) {
    for (*part = NULL; *limit > 0;) {
        PyObject *got = receive(self);
        if (got == NULL) {
            if (self->again == NULL || !PyErr_ExceptionMatches(self->again)) {
                return -1;
            }
            PyErr_Clear();
            if (self->odd && self->route != NULL) { /* a part at the end of a message */
                self->malformed++;
                count_bytes(self, self->route);
            }
            self->odd = 0;
            self->idle = 1;
            return 0;
        }
        self->idle = 0;
        if (!PyBytes_CheckExact(got)) {
            PyErr_Format(PyExc_TypeError, "recv returned %s, not bytes", Py_TYPE(got)->tp_name);
            Py_DECREF(got);
            return -1;
        }
        if (!tp_frame_looks(data_of(got), size_of(got))) { /* a route, or a part that is no frame */
            self->odd = !self->odd;
            if (!self->odd &&
                self->route !=
                    NULL) { /* one of two is no route; or the first is, and its message has no frame */
                self->malformed++;
                *limit -= 1;
                count_bytes(self, self->route);
                count_bytes(self, got);
            }
            Py_XSETREF(self->route, got);
            continue;
        }
        *limit -= 1;
        count_bytes(self, got);
        self->odd = 0;
        if (self->route != NULL) {
            *part = got;
            return 0;
        }
        self->malformed++;
        Py_DECREF(got);
    }
    return 0;
}

/* Returns (route, frame). What comes after bytes that are not a frame needs a route of its own: they may have
 * been the route of a stranger. */
static PyObject *other(SocketRecv *self, PyObject *frame) {
    uint32_t kind;
    tp_lane_header lane;
    PyObject *route = Py_NewRef(self->route);
    if (tp_frame_peek(data_of(frame), size_of(frame), &kind, &lane) != TP_OK) {
        Py_CLEAR(self->route);
    }
    return Py_BuildValue("NN", route, frame);
}

static PyObject *socket_recv_take(SocketRecv *self, PyObject *args) {
    Py_ssize_t limit;
    unsigned long long instance, sender, receiver, seq;
    PyObject *out, *frame;
    if (!PyArg_ParseTuple(args, "n(KKKK)O!:take", &limit, &instance, &sender, &receiver, &seq, &PyList_Type,
                          &out)) {
        return NULL;
    }
    tp_lane_header next = {instance, sender, receiver, seq};
    while (limit > 0) {
        if (next_frame(self, &limit, &frame) < 0) {
            return NULL;
        }
        if (frame == NULL) {
            break;
        }
        if (!is_next(frame, &next)) {
            return other(self, frame);
        }
        const int added = PyList_Append(out, frame);
        Py_DECREF(frame);
        if (added < 0) {
            return NULL;
        }
        next.seq++;
    }
    Py_RETURN_NONE;
}

static PyMethodDef socket_recv_methods[] = {
    {"take", (PyCFunction)socket_recv_take, METH_VARARGS,
     "Append data frames with the header and those that follow it, at most limit messages; return "
     "the first other one as (route, frame), or None."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef socket_recv_members[] = {
    {"idle", T_BOOL, offsetof(SocketRecv, idle), 0, "Whether take() found nothing more."},
    {"malformed", T_ULONGLONG, offsetof(SocketRecv, malformed), READONLY,
     "Messages with parts that are not frames, so far: an estimate, never 0 if there was one."},
    {"wire_bytes", T_ULONGLONG, offsetof(SocketRecv, bytes), READONLY, "Bytes of all parts so far, as sent."},
    {NULL, 0, 0, 0, NULL},
};

static int socket_recv_traverse(SocketRecv *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->recv);
    Py_VISIT(self->flags);
    Py_VISIT(self->again);
    Py_VISIT(self->route);
    return 0;
}

static int socket_recv_clear(SocketRecv *self) {
    Py_CLEAR(self->recv);
    Py_CLEAR(self->flags);
    Py_CLEAR(self->again);
    Py_CLEAR(self->route);
    return 0;
}

static void socket_recv_dealloc(SocketRecv *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    (void)socket_recv_clear(self);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

static PyType_Slot socket_recv_slots[] = {
    {Py_tp_new, (void *)socket_recv_new},
    {Py_tp_dealloc, (void *)socket_recv_dealloc},
    {Py_tp_traverse, (void *)socket_recv_traverse},
    {Py_tp_clear, (void *)socket_recv_clear},
    {Py_tp_methods, socket_recv_methods},
    {Py_tp_members, (void *)socket_recv_members},
    {0, NULL},
};

static PyType_Spec socket_recv_spec = {
    .name = "tokenpipe._core.SocketRecv",
    .basicsize = sizeof(SocketRecv),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = socket_recv_slots,
};

int tp_init_socket_recv(PyObject *module) { return tp_add_type(module, &socket_recv_spec); }
