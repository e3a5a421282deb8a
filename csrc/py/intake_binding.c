/* Intake: takes a row of messages from a ROUTER, as long as each is the sender's next data frame. */
#include "py/core.h"
#include "wire/frame.h"

#include <structmember.h>

typedef struct intake {
    PyObject_HEAD PyObject *recv, *flags, *again;
    char idle; /* the last call found nothing more */
} intake;

static PyObject *intake_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *keywords[] = {"recv", "flags", "again", NULL};
    PyObject *recv, *flags, *again;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOO:Intake", keywords, &recv, &flags, &again)) {
        return NULL;
    }
    intake *self = (intake *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->recv = Py_NewRef(recv);
        self->flags = Py_NewRef(flags);
        self->again = Py_NewRef(again);
    }
    return (PyObject *)self;
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

static PyObject *intake_take(intake *self, PyObject *args) {
    Py_ssize_t limit;
    unsigned long long instance, sender, receiver, seq;
    PyObject *out;
    if (!PyArg_ParseTuple(args, "n(KKKK)O!:take", &limit, &instance, &sender, &receiver, &seq, &PyList_Type,
                          &out)) {
        return NULL;
    }
    tp_lane_header next = {instance, sender, receiver, seq};
    for (; limit > 0; limit--) {
        PyObject *route = PyObject_CallOneArg(self->recv, self->flags);
        if (route == NULL) {
            if (!PyErr_ExceptionMatches(self->again)) {
                return NULL;
            }
            PyErr_Clear();
            self->idle = 1;
            Py_RETURN_NONE;
        }
        self->idle = 0;
        PyObject *frame = PyObject_CallOneArg(self->recv, self->flags);
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

static PyMethodDef intake_methods[] = {
    {"take", (PyCFunction)intake_take, METH_VARARGS,
     "Append data frames with the header and those that follow it, at most limit messages; return "
     "the first other one as (route, frame), or None."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef intake_members[] = {
    {"idle", T_BOOL, offsetof(intake, idle), 0, "Whether take() found nothing more."},
    {NULL, 0, 0, 0, NULL},
};

static int intake_traverse(intake *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->recv);
    Py_VISIT(self->flags);
    Py_VISIT(self->again);
    return 0;
}

static int intake_clear(intake *self) {
    Py_CLEAR(self->recv);
    Py_CLEAR(self->flags);
    Py_CLEAR(self->again);
    return 0;
}

static void intake_dealloc(intake *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    (void)intake_clear(self);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

static PyType_Slot intake_slots[] = {
    {Py_tp_new, (void *)intake_new},
    {Py_tp_dealloc, (void *)intake_dealloc},
    {Py_tp_traverse, (void *)intake_traverse},
    {Py_tp_clear, (void *)intake_clear},
    {Py_tp_methods, intake_methods},
    {Py_tp_members, (void *)intake_members},
    {0, NULL},
};

static PyType_Spec intake_spec = {
    .name = "tokenpipe._core.Intake",
    .basicsize = sizeof(intake),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = intake_slots,
};

int tp_init_intake(PyObject *module) {
    PyObject *type = PyType_FromModuleAndSpec(module, &intake_spec, NULL);
    const int bad = type == NULL || PyModule_AddType(module, (PyTypeObject *)type) < 0;
    Py_XDECREF(type);
    return bad ? -1 : 0;
}
