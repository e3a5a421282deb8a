/* Handoff: calls a socket's own send(frame, flags), as a bool, without a Python frame in between. */
#include "py/send_window_binding.h"

#include <structmember.h>

typedef struct handoff {
    PyObject_HEAD PyObject *send, *flags, *again;
    char idle; /* what is handed over may swallow the bell of something that came */
} handoff;

static PyObject *handoff_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *keywords[] = {"send", "flags", "again", NULL};
    PyObject *send, *flags, *again;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOO:Handoff", keywords, &send, &flags, &again)) {
        return NULL;
    }
    handoff *self = (handoff *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->send = Py_NewRef(send);
        self->flags = Py_NewRef(flags);
        self->again = Py_NewRef(again);
    }
    return (PyObject *)self;
}

TP_HOT int tp_handoff_give(PyObject *object, PyObject *frame) {
    handoff *self = (handoff *)object;
    PyObject *args[2] = {frame, self->flags};
    self->idle = 0;
    PyObject *done = PyObject_Vectorcall(self->send, args, 2, NULL);
    if (done != NULL) {
        Py_DECREF(done);
        return 1;
    }
    if (PyErr_ExceptionMatches(self->again)) {
        PyErr_Clear();
        return 0;
    }
    return -1;
}

static PyObject *handoff_call(handoff *self, PyObject *args, PyObject *kwargs) {
    PyObject *frame;
    if ((kwargs != NULL && PyDict_GET_SIZE(kwargs) > 0) || !PyArg_ParseTuple(args, "O", &frame)) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError, "a Handoff takes a frame and no keywords");
        }
        return NULL;
    }
    const int taken = tp_handoff_give((PyObject *)self, frame);
    return taken < 0 ? NULL : PyBool_FromLong(taken);
}

static PyMemberDef handoff_members[] = {
    {"idle", T_BOOL, offsetof(handoff, idle), 0, "False from each call on, until it is set."},
    {NULL, 0, 0, 0, NULL},
};

static int handoff_traverse(handoff *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->send);
    Py_VISIT(self->flags);
    Py_VISIT(self->again);
    return 0;
}

static int handoff_clear(handoff *self) {
    Py_CLEAR(self->send);
    Py_CLEAR(self->flags);
    Py_CLEAR(self->again);
    return 0;
}

static void handoff_dealloc(handoff *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    (void)handoff_clear(self);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

static PyType_Slot handoff_slots[] = {
    {Py_tp_new, (void *)handoff_new},
    {Py_tp_dealloc, (void *)handoff_dealloc},
    {Py_tp_traverse, (void *)handoff_traverse},
    {Py_tp_clear, (void *)handoff_clear},
    {Py_tp_call, (void *)handoff_call},
    {Py_tp_members, (void *)handoff_members},
    {0, NULL},
};

static PyType_Spec handoff_spec = {
    .name = "tokenpipe._core.Handoff",
    .basicsize = sizeof(handoff),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = handoff_slots,
};

int tp_init_handoff(PyObject *module) {
    tp_state *state = tp_state_of(module);
    state->handoff = PyType_FromModuleAndSpec(module, &handoff_spec, NULL);
    return state->handoff == NULL ? -1 : PyModule_AddObjectRef(module, "Handoff", state->handoff);
}
