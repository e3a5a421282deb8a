/* The type StepPacker: the packer of one worker rank. */
#include "py/packer_binding.h"

#include "py/packer_next_binding.h"
#include "py/packer_object.h"
#include "py/step_arrays_binding.h"
#include "pack/packer_positions.h"

/* The arguments of pack(), in their order. The arrays are those of enum tp_step_array. */
enum { INSTANCE, SENDER, RECEIVER, SEQ, STEP, MONO_NS, INTS, NAMES = INTS + TP_STEP_ARRAYS };

#define REQUIRED (INTS + TP_TOKENS + 1)

static const char *const names[NAMES] = {
    "instance", "sender",  "receiver", "seq",    "step",      "mono_ns",  "handles",    "tokens", "counts",
    "status",   "drained", "lp_k",     "lp_ids", "lp_values", "lp_ranks", "extras_len", "extras"};

static PyObject *packer_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *keywords[] = {"dp", "tp", "slots", "vocab_size", "window", "convert", NULL};
    uint32_t dp, tp, slots, vocab_size = 0x7fffffff;
    tp_state *state = tp_state_of_type(type);
    PyObject *window = NULL, *convert = NULL;
    if (state == NULL ||
        !PyArg_ParseTupleAndKeywords(args, kwargs, "O&O&O&|O&O!O:StepPacker", keywords, tp_u32_arg, &dp,
                                     tp_u32_arg, &tp, tp_u32_arg, &slots, tp_u32_arg, &vocab_size,
                                     state->send_window, &window, &convert)) {
        return NULL;
    }
    if (dp >= 1u << TP_DP_BITS || slots < 1 || slots > 1u << TP_SLOT_BITS || vocab_size < 1 ||
        vocab_size > UINT32_C(1) << 31) {
        PyErr_SetString(PyExc_ValueError, "dp, tp, slots or vocab_size out of range");
        return NULL;
    }
    StepPacker *self = (StepPacker *)type->tp_alloc(type, 0);
    if (self != NULL && tp_packer_init(&self->offer.packer, dp, tp, slots, vocab_size) != TP_OK) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    if (self != NULL) {
        self->state = state;
        self->window = (SendWindow *)Py_XNewRef(window);
        self->offer.window = window == NULL ? NULL : &self->window->window;
        self->convert = Py_XNewRef(convert);
    }
    return (PyObject *)self;
}

static int packer_traverse(StepPacker *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->window);
    Py_VISIT(self->convert);
    return 0;
}

/* The window stays, because the offer points to it. A cycle through the window is broken in the window. */
static int packer_clear(StepPacker *self) {
    Py_CLEAR(self->convert);
    return 0;
}

static void packer_dealloc(StepPacker *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    (void)packer_clear(self);
    Py_CLEAR(self->window);
    tp_packer_free(&self->offer.packer);
    type->tp_free(self);
    Py_DECREF(type);
}

/* Sorts positional and named arguments into `values` by index. NULL: absent, or None. */
static int sort_arguments(PyObject *const *args, Py_ssize_t n, PyObject *keywords, PyObject **values) {
    if (n > NAMES) {
        PyErr_Format(PyExc_TypeError, "pack takes at most %d arguments", NAMES);
        return -1;
    }
    memset(values, 0, NAMES * sizeof *values);
    memcpy(values, args, (size_t)n * sizeof *values);
    const Py_ssize_t named = keywords == NULL ? 0 : PyTuple_GET_SIZE(keywords);
    for (Py_ssize_t k = 0; k < named; k++) {
        PyObject *keyword = PyTuple_GET_ITEM(keywords, k);
        int i = 0;
        while (i < NAMES && PyUnicode_CompareWithASCIIString(keyword, names[i]) != 0) {
            i++;
        }
        if (i == NAMES || i < n) {
            PyErr_Format(PyExc_TypeError, "pack got an unknown or repeated argument %R", keyword);
            return -1;
        }
        values[i] = args[n + k];
    }
    for (int i = 0; i < NAMES; i++) {
        if (values[i] == Py_None) {
            values[i] = NULL;
        }
        if (values[i] == NULL && i < REQUIRED) {
            PyErr_Format(PyExc_TypeError, "pack needs %s", names[i]);
            return -1;
        }
    }
    return 0;
}

static int take_ints(PyObject **values, tp_step_input *in) {
    uint64_t *const into[INTS] = {&in->lane.instance, &in->lane.sender, &in->lane.receiver,
                                  &in->lane.seq,      &in->step,        &in->mono_ns};
    for (int i = 0; i < INTS; i++) {
        *into[i] = PyLong_AsUnsignedLongLong(values[i]);
        if (*into[i] == (uint64_t)-1 && PyErr_Occurred()) {
            return -1;
        }
    }
    return 0;
}

static PyObject *pack(StepPacker *self, const tp_step_input *in) {
    tp_step_rows rows;
    tp_fault fault;
    if (tp_packer_pack(&self->offer.packer, in, &rows, &fault) < 0) {
        return PyErr_Format(self->state->row_error, "%s", fault.text);
    }
    return tp_py_step_frame(&rows);
}

static PyObject *packer_pack(StepPacker *self, PyObject *const *args, Py_ssize_t n, PyObject *keywords) {
    PyObject *values[NAMES], *frame = NULL;
    tp_step_input in;
    tp_step_arrays taken;
    memset(&in, 0, sizeof in);
    if (sort_arguments(args, n, keywords, values) < 0 || take_ints(values, &in) < 0) {
        return NULL;
    }
    if (tp_step_arrays_take(self->state, values + INTS, TP_STEP_ARRAYS, NULL, &in, &taken) == 0) {
        frame = pack(self, &in);
    }
    tp_step_arrays_release(&taken);
    return frame;
}

static PyObject *packer_commit(StepPacker *self, PyObject *unused) {
    (void)unused;
    tp_packer_commit(&self->offer.packer);
    Py_RETURN_NONE;
}

static PyObject *packer_bad_tokens(StepPacker *self, void *unused) {
    (void)unused;
    return PyLong_FromUnsignedLongLong(tp_step_offer_bad_tokens(&self->offer));
}

static PyObject *packer_parts(StepPacker *self, void *unused) {
    (void)unused;
    return PyBool_FromLong(self->offer.parts);
}

static int packer_set_parts(StepPacker *self, PyObject *value, void *unused) {
    (void)unused;
    const int parts = value == NULL ? -1 : PyObject_IsTrue(value);
    if (parts < 0) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_AttributeError, "parts cannot be deleted");
        }
        return -1;
    }
    self->offer.parts = parts;
    return 0;
}

static PyMethodDef packer_methods[] = {
    {"pack", (PyCFunction)(void (*)(void))packer_pack, METH_FASTCALL | METH_KEYWORDS,
     "Return the StepFrame of a step; RowError if its arrays are wrong."},
    {"pack_next", (PyCFunction)(void (*)(void))tp_py_pack_next, METH_FASTCALL,
     "Return the StepFrame that the window must send next. It counts when the window takes it."},
    {"send_next", (PyCFunction)(void (*)(void))tp_py_send_next, METH_FASTCALL,
     "Pack the next frame and send it through the window; return the result of the send."},
    {"withdraw", (PyCFunction)tp_py_withdraw, METH_NOARGS,
     "Forget the last frame of pack_next, unless its window took it."},
    {"commit", (PyCFunction)packer_commit, METH_NOARGS,
     "Count the tokens of the last frame of pack(), after its lane took it."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef packer_attributes[] = {
    {"bad_tokens", (getter)packer_bad_tokens, NULL, "Rows turned into BAD_TOKEN so far.", NULL},
    {"parts", (getter)packer_parts, (setter)packer_set_parts,
     "Whether the next frames may have the number of the newest step, as parts of it.", NULL},
    {"last_step", (getter)tp_py_last_step, NULL, "The newest step that the window took, or None.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot packer_slots[] = {
    {Py_tp_new, (void *)packer_new},
    {Py_tp_dealloc, (void *)packer_dealloc},
    {Py_tp_traverse, (void *)packer_traverse},
    {Py_tp_clear, (void *)packer_clear},
    {Py_tp_methods, packer_methods},
    {Py_tp_getset, packer_attributes},
    {Py_tp_doc, "Packs the steps of one worker rank and counts each handle's position."},
    {0, NULL},
};

static PyType_Spec packer_spec = {
    .name = "tokenpipe._core.StepPacker",
    .basicsize = sizeof(StepPacker),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = packer_slots,
};

int tp_init_packer(PyObject *module) { return tp_add_type(module, &packer_spec); }
