/* The type SocketRecv. */
#include "py/socket_recv_binding.h"

#include "wire/envelope.h"

#include <structmember.h>

typedef struct SocketRecv {
    PyObject_HEAD
    PyObject *recv, *flags, *again;
    char idle; /* the last call found nothing more */
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
        PyErr_SetString(PyExc_ReferenceError, "this SocketRecv is being deleted");
        return NULL;
    }
    return PyObject_CallOneArg(self->recv, self->flags);
}

/* Whether a part is the data frame that `next` describes. */
static int is_next(PyObject *part, const tp_lane_header *next) {
    uint32_t kind;
    tp_lane_header lane;
    return PyBytes_CheckExact(part) && next->sender != 0 &&
           tp_frame_peek((const uint8_t *)PyBytes_AS_STRING(part), (size_t)PyBytes_GET_SIZE(part), &kind,
                         &lane) == TP_OK &&
           kind != TP_KIND_LANE && lane.instance == next->instance && lane.sender == next->sender &&
           lane.receiver == next->receiver && lane.seq == next->seq;
}

static PyObject *socket_recv_take(SocketRecv *self, PyObject *args) {
    Py_ssize_t limit;
    unsigned long long instance, sender, receiver, seq;
    PyObject *out;
    if (!PyArg_ParseTuple(args, "n(KKKK)O!:take", &limit, &instance, &sender, &receiver, &seq, &PyList_Type,
                          &out)) {
        return NULL;
    }
    tp_lane_header next = {instance, sender, receiver, seq};
    for (; limit > 0; limit--) {
        PyObject *route = receive(self);
        if (route == NULL) {
            if (self->again == NULL || !PyErr_ExceptionMatches(self->again)) {
                return NULL;
            }
            PyErr_Clear();
            self->idle = 1;
            Py_RETURN_NONE;
        }
        self->idle = 0;
        PyObject *frame = receive(self);
        if (frame == NULL) {
            Py_DECREF(route);
            return NULL;
        }
        if (!is_next(frame, &next)) {
            return Py_BuildValue("NN", route, frame);
        }
        const int added = PyList_Append(out, frame);
        Py_DECREF(route);
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
    {NULL, 0, 0, 0, NULL},
};

static int socket_recv_traverse(SocketRecv *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->recv);
    Py_VISIT(self->flags);
    Py_VISIT(self->again);
    return 0;
}

static int socket_recv_clear(SocketRecv *self) {
    Py_CLEAR(self->recv);
    Py_CLEAR(self->flags);
    Py_CLEAR(self->again);
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
