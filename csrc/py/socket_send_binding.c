/* The type SocketSend. */
#include "py/socket_send_binding.h"

#include <structmember.h>

typedef struct SocketSend {
    PyObject_HEAD
    PyObject *send, *flags, *again;
    char idle; /* False after each send: a send may use up the signal that a message has come */
} SocketSend;

static PyObject *socket_send_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *keywords[] = {"send", "flags", "again", NULL};
    PyObject *send, *flags, *again;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOO:SocketSend", keywords, &send, &flags, &again)) {
        return NULL;
    }
    SocketSend *self = (SocketSend *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->send = Py_NewRef(send);
        self->flags = Py_NewRef(flags);
        self->again = Py_NewRef(again);
    }
    return (PyObject *)self;
}

TP_HOT int tp_socket_send(PyObject *object, PyObject *frame) {
    SocketSend *self = (SocketSend *)object;
    PyObject *args[2] = {frame, self->flags};
    if (self->send == NULL) { /* the garbage collector has cleared it */
        return tp_gone("SocketSend");
    }
    self->idle = 0;
    PyObject *done = PyObject_Vectorcall(self->send, args, 2, NULL);
    if (done != NULL) {
        Py_DECREF(done);
        return 1;
    }
    if (self->again != NULL && PyErr_ExceptionMatches(self->again)) {
        PyErr_Clear();
        return 0;
    }
    return -1;
}

static PyObject *socket_send_call(SocketSend *self, PyObject *args, PyObject *kwargs) {
    PyObject *frame;
    if ((kwargs != NULL && PyDict_GET_SIZE(kwargs) > 0) || !PyArg_ParseTuple(args, "O", &frame)) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError, "SocketSend takes a frame and no keywords");
        }
        return NULL;
    }
    const int taken = tp_socket_send((PyObject *)self, frame);
    return taken < 0 ? NULL : PyBool_FromLong(taken);
}

static PyMemberDef socket_send_members[] = {
    {"idle", T_BOOL, offsetof(SocketSend, idle), 0, "Each call sets it to False."},
    {NULL, 0, 0, 0, NULL},
};

static int socket_send_traverse(SocketSend *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->send);
    Py_VISIT(self->flags);
    Py_VISIT(self->again);
    return 0;
}

static int socket_send_clear(SocketSend *self) {
    Py_CLEAR(self->send);
    Py_CLEAR(self->flags);
    Py_CLEAR(self->again);
    return 0;
}

static void socket_send_dealloc(SocketSend *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    (void)socket_send_clear(self);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

static PyType_Slot socket_send_slots[] = {
    {Py_tp_new, (void *)socket_send_new},
    {Py_tp_dealloc, (void *)socket_send_dealloc},
    {Py_tp_traverse, (void *)socket_send_traverse},
    {Py_tp_clear, (void *)socket_send_clear},
    {Py_tp_call, (void *)socket_send_call},
    {Py_tp_members, (void *)socket_send_members},
    {0, NULL},
};

static PyType_Spec socket_send_spec = {
    .name = "tokenpipe._core.SocketSend",
    .basicsize = sizeof(SocketSend),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = socket_send_slots,
};

int tp_init_socket_send(PyObject *module) {
    tp_state *state = tp_state_of(module);
    state->socket_send = tp_make_type(module, &socket_send_spec);
    return state->socket_send == NULL ? -1 : 0;
}
