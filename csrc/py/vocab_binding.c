/* Vocab: a table of words from Python's bytes, and the wish for a request's text. */
#include "py/table_binding.h"
#include "py/text_binding.h"

/* ---- a decoder in Python: factory(skip, spaces) makes streams with step(token), end(), copy() ---- */

static void *checked(PyObject *made, void *context) {
    if (made == NULL) { /* the request that asked for it fails; the frame goes on */
        PyErr_WriteUnraisable(((VocabObject *)context)->factory);
    }
    return made;
}

static void *foreign_begin(void *context, int skip_special, int spaces) {
    PyObject *factory = ((VocabObject *)context)->factory;
    return checked(
        PyObject_CallFunction(factory, "NN", PyBool_FromLong(skip_special), PyBool_FromLong(spaces)),
        context);
}

static void *foreign_copy(void *context, void *stream) {
    return checked(PyObject_CallMethod(stream, "copy", NULL), context);
}

static void foreign_drop(void *context, void *stream) {
    (void)context;
    Py_DECREF((PyObject *)stream);
}

static int foreign_step(void *context, void *stream, int32_t token, const char **text, size_t *size) {
    VocabObject *self = context;
    PyObject *made = token < 0 ? PyObject_CallMethod(stream, "end", NULL)
                               : PyObject_CallMethod(stream, "step", "i", token);
    Py_ssize_t length = 0;
    *text = made == NULL ? NULL : PyUnicode_AsUTF8AndSize(made, &length);
    Py_XSETREF(self->last, made);
    if (*text == NULL) {
        checked(NULL, context);
        return -1;
    }
    *size = (size_t)length;
    return 0;
}

static void vocab_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    tp_vocab_clear(&((VocabObject *)self)->vocab);
    Py_XDECREF(((VocabObject *)self)->factory);
    Py_XDECREF(((VocabObject *)self)->last);
    type->tp_free(self);
    Py_DECREF(type);
}

const tp_vocab *tp_py_vocab(PyObject *object) {
    if (Py_TYPE(object)->tp_dealloc != vocab_dealloc) {
        PyErr_SetString(PyExc_TypeError, "a Vocab is needed");
        return NULL;
    }
    return &((VocabObject *)object)->vocab;
}

/* One form: (bytes, sizes as u16). */
static int read_form(PyObject *form, uint32_t *count, tp_words *words) {
    const char *text, *sizes;
    Py_ssize_t text_size, sizes_size;
    if (!PyArg_ParseTuple(form, "y#y#:form", &text, &text_size, &sizes, &sizes_size)) {
        return -1;
    }
    if (sizes_size % 2 != 0 || sizes_size / 2 > INT32_MAX ||
        (*count != UINT32_MAX && *count != (uint32_t)(sizes_size / 2))) {
        PyErr_SetString(PyExc_ValueError, "the forms have sizes of other numbers of words");
        return -1;
    }
    *count = (uint32_t)(sizes_size / 2);
    words->bytes = (const uint8_t *)text;
    words->byte_count = (uint64_t)text_size;
    uint16_t *aligned = PyMem_Malloc((size_t)sizes_size + 2);
    if (aligned == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    memcpy(aligned, sizes, (size_t)sizes_size);
    words->sizes = aligned;
    return 0;
}

static PyObject *vocab_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"words", "flags", "bytewise", "strip", "first", "raw", "foreign", NULL};
    PyObject *forms[3] = {NULL, NULL, NULL}, *factory = NULL;
    const char *flags;
    Py_ssize_t flag_count;
    int bytewise;
    unsigned char strip;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!y#pb|O!O!O:Vocab", names, &PyTuple_Type, &forms[0],
                                     &flags, &flag_count, &bytewise, &strip, &PyTuple_Type, &forms[1],
                                     &PyTuple_Type, &forms[2], &factory)) {
        return NULL;
    }
    tp_words words[3] = {{NULL, NULL, 0}, {NULL, NULL, 0}, {NULL, NULL, 0}};
    uint32_t count = UINT32_MAX;
    VocabObject *self = NULL;
    int good = 1;
    for (int i = 0; good && i < 3; i++) {
        good = forms[i] == NULL || read_form(forms[i], &count, &words[i]) == 0;
    }
    if (good && (uint32_t)flag_count != count) {
        PyErr_SetString(PyExc_ValueError, "not one flag a word");
        good = 0;
    }
    if (good) {
        self = (VocabObject *)type->tp_alloc(type, 0);
    }
    if (self != NULL) {
        const tp_result result = tp_vocab_init(&self->vocab, count, (const uint8_t *)flags, &words[0],
                                               forms[1] == NULL ? NULL : &words[1],
                                               forms[2] == NULL ? NULL : &words[2], (uint8_t)bytewise, strip);
        if (result == TP_E_MEMORY) {
            PyErr_NoMemory();
        } else if (result != TP_OK) {
            PyErr_Format(PyExc_ValueError, "Vocab: %s", tp_result_text(result));
        }
        if (result != TP_OK) {
            Py_CLEAR(self);
        }
    }
    if (self != NULL && factory != NULL) {
        self->factory = Py_NewRef(factory);
        self->foreign = (tp_foreign){self, foreign_begin, foreign_copy, foreign_drop, foreign_step};
        self->vocab.foreign = &self->foreign;
    }
    for (int i = 0; i < 3; i++) {
        PyMem_Free((void *)words[i].sizes);
    }
    return (PyObject *)self;
}

static Py_ssize_t vocab_length(PyObject *self) { return ((VocabObject *)self)->vocab.count; }

void tp_py_wish_free(tp_py_wish *w) {
    PyMem_Free(w->stops);
    PyMem_Free(w->sizes);
    PyMem_Free(w->prompt);
    memset(w, 0, sizeof *w);
}

/* Lays the strings one after another. */
static int read_stops(PyObject *strings, tp_py_wish *w) {
    const Py_ssize_t count = PyTuple_GET_SIZE(strings);
    size_t total = 0;
    w->sizes = PyMem_Malloc(((size_t)count + 1) * sizeof *w->sizes);
    w->stops = PyMem_Malloc(TP_MAX_STOP_BYTES);
    if (w->sizes == NULL || w->stops == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_ssize_t size;
        const char *text = PyUnicode_AsUTF8AndSize(PyTuple_GET_ITEM(strings, i), &size);
        if (text == NULL) {
            return -1;
        }
        if (size == 0 || total + (size_t)size > TP_MAX_STOP_BYTES) {
            PyErr_Format(PyExc_ValueError, "stop strings must not be empty, and have %u bytes at most",
                         TP_MAX_STOP_BYTES);
            return -1;
        }
        memcpy(w->stops + total, text, (size_t)size);
        w->sizes[i] = (uint32_t)size;
        total += (size_t)size;
    }
    w->wish.stops = w->stops;
    w->wish.stop_sizes = w->sizes;
    w->wish.stop_count = (uint32_t)count;
    return 0;
}

int tp_py_wish_read(PyObject *tuple, tp_py_wish *w) {
    int skip, spaces, include, cut;
    PyObject *stops, *prompt;
    memset(w, 0, sizeof *w);
    if (!PyArg_ParseTuple(tuple, "pppO!Op:text", &skip, &spaces, &include, &PyTuple_Type, &stops, &prompt,
                          &cut) ||
        read_stops(stops, w) < 0 || tp_ints(prompt, &w->prompt, &w->wish.prompt_count) < 0) {
        tp_py_wish_free(w);
        return -1;
    }
    w->wish.skip_special = (uint8_t)skip;
    w->wish.spaces = (uint8_t)spaces;
    w->wish.include_stop = (uint8_t)include;
    w->wish.prompt = w->prompt;
    w->wish.prompt_cut = (uint8_t)cut;
    return 0;
}

static PyType_Slot slots[] = {
    {Py_tp_doc, "What each token id of a tokenizer reads as. Immutable."},
    {Py_tp_new, (void *)vocab_new},
    {Py_tp_dealloc, (void *)vocab_dealloc},
    {Py_sq_length, (void *)vocab_length},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "tokenpipe._core.Vocab",
    .basicsize = sizeof(VocabObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = slots,
};

int tp_init_vocab(PyObject *module) {
    PyObject *type = PyType_FromModuleAndSpec(module, &spec, NULL);
    const int result = type == NULL ? -1 : PyModule_AddType(module, (PyTypeObject *)type);
    Py_XDECREF(type);
    return result < 0 ? result : tp_init_text(module);
}
