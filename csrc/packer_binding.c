/* StepPacker: a packer and the arguments of publish(). */
#include "core.h"
#include "packer.h"

enum { INSTANCE, SENDER, RECEIVER, SEQ, STEP, MONO_NS, INTS,
       HANDLES = INTS, TOKENS, COUNTS, STATUS, DRAINED, LP_K, LP_IDS, LP_VALUES, LP_RANKS, NAMES };

#define ARRAYS (NAMES - INTS)
#define REQUIRED (TOKENS + 1)

static const char *const names[NAMES] = {
    "instance", "sender",  "receiver", "seq",  "step",   "mono_ns",   "handles", "tokens",
    "counts",   "status",  "drained",  "lp_k", "lp_ids", "lp_values", "lp_ranks"};

/* By array: the struct module's letters it may have. 'l' is 4 or 8 bytes, itemsize says which. */
static const char *const letters[ARRAYS] = {"lq", "ilq", "Hilq", "B", "lq", "ilq", "ilq", "f", "ilq"};

typedef struct {
    PyObject_HEAD
    tp_packer packer;
} StepPacker;

static PyObject *packer_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *keywords[] = {"dp", "tp", "slots", "vocab_size", NULL};
    unsigned long dp, tp, slots, vocab_size = 0x7fffffff;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "kkk|k:StepPacker", keywords, &dp, &tp, &slots,
                                     &vocab_size)) {
        return NULL;
    }
    if (dp >= 1u << TP_DP_BITS || tp > UINT32_MAX || slots < 1 || slots > 1u << TP_SLOT_BITS ||
        vocab_size < 1 || vocab_size > UINT32_C(1) << 31) {
        PyErr_SetString(PyExc_ValueError, "dp, tp, slots or vocab_size out of range");
        return NULL;
    }
    StepPacker *self = (StepPacker *)type->tp_alloc(type, 0);
    if (self != NULL && tp_packer_init(&self->packer, (uint32_t)dp, (uint32_t)tp, (uint32_t)slots,
                                       (uint32_t)vocab_size) < 0) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}

static void packer_dealloc(StepPacker *self) {
    PyTypeObject *type = Py_TYPE(self);
    tp_packer_free(&self->packer);
    type->tp_free(self);
    Py_DECREF(type);
}

/* Sorts positional and named arguments into `values` by index; absent ones and None are NULL. */
static int sort_arguments(PyObject *const *args, Py_ssize_t n, PyObject *keywords,
                          PyObject **values) {
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
            PyErr_Format(PyExc_TypeError, "pack got an unexpected or repeated argument %R", keyword);
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

static int take_array(tp_state *state, PyObject *value, int which, Py_buffer *buffer,
                      tp_array *array) {
    const char *name = names[INTS + which];
    if (PyObject_GetBuffer(value, buffer, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0) {
        buffer->obj = NULL;
        PyErr_Clear();
        PyErr_Format(state->row_error, "%s: %s is no C-contiguous buffer", name,
                     Py_TYPE(value)->tp_name);
        return -1;
    }
    const char *format = buffer->format == NULL ? "B" : buffer->format;
    const char *letter = format + (*format == '<' || *format == '=' || *format == '@');
    if (letter[0] == '\0' || letter[1] != '\0' || strchr(letters[which], letter[0]) == NULL ||
        (buffer->itemsize == 4 && which + INTS == HANDLES)) {
        PyErr_Format(state->row_error, "%s: entries of type %s do not belong there", name, format);
        return -1;
    }
    array->data = buffer->buf;
    array->n = (size_t)(buffer->len / buffer->itemsize);
    array->width = (uint32_t)buffer->itemsize;
    return 0;
}

static PyObject *packed(StepPacker *self, tp_state *state, const tp_step_input *in) {
    tp_step_rows rows;
    tp_fault fault;
    if (tp_packer_pack(&self->packer, in, &rows, &fault) < 0) {
        return PyErr_Format(state->row_error, "%s", fault.text);
    }
    PyObject *frame = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)tp_step_size(&rows));
    if (frame != NULL) {
        tp_step_write(&rows, (uint8_t *)PyBytes_AS_STRING(frame));
    }
    return frame;
}

static PyObject *packer_pack(StepPacker *self, PyObject *const *args, Py_ssize_t n,
                             PyObject *keywords) {
    tp_state *state = tp_state_of_type(Py_TYPE(self));
    PyObject *values[NAMES], *frame = NULL;
    Py_buffer buffers[ARRAYS];
    tp_step_input in;
    memset(&in, 0, sizeof in);
    if (state == NULL || sort_arguments(args, n, keywords, values) < 0 ||
        take_ints(values, &in) < 0) {
        return NULL;
    }
    tp_array *const into[ARRAYS] = {&in.handles, &in.tokens, &in.counts,    &in.status,  &in.drained,
                                    &in.lp_k,    &in.lp_ids, &in.lp_values, &in.lp_ranks};
    int ok = 1, held = 0;
    for (; ok && held < ARRAYS; held++) {
        buffers[held].obj = NULL;
        if (values[INTS + held] != NULL) {
            ok = take_array(state, values[INTS + held], held, &buffers[held], into[held]) == 0;
        }
    }
    if (ok) {
        frame = packed(self, state, &in);
    }
    while (held > 0) {
        held--;
        if (buffers[held].obj != NULL) {
            PyBuffer_Release(&buffers[held]);
        }
    }
    return frame;
}

static PyObject *packer_commit(StepPacker *self, PyObject *unused) {
    (void)unused;
    tp_packer_commit(&self->packer);
    Py_RETURN_NONE;
}

static PyObject *packer_bad_tokens(StepPacker *self, void *unused) {
    (void)unused;
    return PyLong_FromUnsignedLongLong(self->packer.bad_tokens);
}

static PyMethodDef packer_methods[] = {
    {"pack", (PyCFunction)(void (*)(void))packer_pack, METH_FASTCALL | METH_KEYWORDS,
     "Return the StepFrame of a step; RowError says what is wrong with its arrays."},
    {"commit", (PyCFunction)packer_commit, METH_NOARGS,
     "Count the tokens of the last packed frame: its lane has taken it."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef packer_attributes[] = {
    {"bad_tokens", (getter)packer_bad_tokens, NULL, "Rows turned into BAD_TOKEN so far.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot packer_slots[] = {
    {Py_tp_new, (void *)packer_new},
    {Py_tp_dealloc, (void *)packer_dealloc},
    {Py_tp_methods, packer_methods},
    {Py_tp_getset, packer_attributes},
    {Py_tp_doc, "Packs the steps of one worker rank and counts each handle's position."},
    {0, NULL},
};

static PyType_Spec packer_spec = {
    .name = "tokenpipe._core.StepPacker",
    .basicsize = sizeof(StepPacker),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = packer_slots,
};

int tp_init_packer(PyObject *module) {
    PyObject *type = PyType_FromModuleAndSpec(module, &packer_spec, NULL);
    if (type == NULL) {
        return -1;
    }
    int added = PyModule_AddObjectRef(module, "StepPacker", type);
    Py_DECREF(type);
    return added;
}
