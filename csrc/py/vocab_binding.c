/* The type Vocab. */
#include "py/vocab_binding.h"

#define FORMS 3 /* of a word: words, first, raw */

typedef struct Vocab {
    PyObject_HEAD
    tp_vocab vocab;
    tp_foreign foreign;
    PyObject *factory;   /* makes the streams of a foreign decoder, or NULL */
    PyObject *last;      /* the result of the last call of a stream; it holds the text */
    PyObject *raised[3]; /* what a decoder raised that is no Exception: type, value, traceback */
} Vocab;

/* ---- a decoder in Python: factory(skip, spaces) makes streams with step(token), end() and copy() ---- */

static void *checked(PyObject *made, void *context) {
    Vocab *self = context;
    if (made == NULL && self->raised[0] == NULL && !PyErr_ExceptionMatches(PyExc_Exception)) {
        PyErr_Fetch(&self->raised[0], &self->raised[1], &self->raised[2]);
    } else if (made == NULL) { /* its request fails; the other rows of the frame are still applied */
        PyErr_WriteUnraisable(self->factory);
    }
    return made;
}

static void *foreign_begin(void *context, int skip_special, int spaces) {
    PyObject *factory = ((Vocab *)context)->factory;
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
    Vocab *self = context;
    PyObject *made = token < 0 ? PyObject_CallMethod(stream, "end", NULL)
                               : PyObject_CallMethod(stream, "step", "i", token);
    Py_ssize_t length = 0;
    if (made != NULL && !PyUnicode_CheckExact(made)) { /* to free a subclass may run Python code */
        PyErr_Format(PyExc_TypeError, "a decoder must return str, not %s", Py_TYPE(made)->tp_name);
        Py_CLEAR(made);
    }
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
    tp_vocab_clear(&((Vocab *)self)->vocab);
    Py_XDECREF(((Vocab *)self)->factory);
    Py_XDECREF(((Vocab *)self)->last);
    for (int i = 0; i < 3; i++) {
        Py_XDECREF(((Vocab *)self)->raised[i]);
    }
    type->tp_free(self);
    Py_DECREF(type);
}

const tp_vocab *tp_py_vocab(PyObject *object) {
    if (Py_TYPE(object)->tp_dealloc != vocab_dealloc) {
        PyErr_SetString(PyExc_TypeError, "a Vocab is needed");
        return NULL;
    }
    return &((Vocab *)object)->vocab;
}

PyObject *tp_py_vocab_check(PyObject *vocab, PyObject *result) {
    Vocab *self = (Vocab *)vocab;
    if (vocab == Py_None || self->raised[0] == NULL) {
        return result;
    }
    Py_XDECREF(result);
    PyErr_Restore(self->raised[0], self->raised[1], self->raised[2]); /* in place of another exception */
    memset(self->raised, 0, sizeof self->raised);
    return NULL;
}

/* Reads a form: (bytes of all words, their sizes as u16). */
static int read_form(PyObject *form, uint32_t *count, tp_words *words) {
    const char *text, *sizes;
    Py_ssize_t text_size, sizes_size;
    if (!PyArg_ParseTuple(form, "y#y#:form", &text, &text_size, &sizes, &sizes_size)) {
        return -1;
    }
    if (sizes_size % 2 != 0 || sizes_size / 2 > INT32_MAX ||
        (*count != UINT32_MAX && *count != (uint32_t)(sizes_size / 2))) {
        PyErr_SetString(PyExc_ValueError, "the forms do not have the same number of words");
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

/* Fills a Vocab that is all zero. forms[1] and forms[2] may be absent. 0, or -1 with an exception. */
static int fill(Vocab *self, PyObject *const *forms, const char *flags, Py_ssize_t flag_count, int bytewise,
                uint8_t strip) {
    tp_words words[FORMS] = {{NULL, NULL, 0}, {NULL, NULL, 0}, {NULL, NULL, 0}};
    const tp_words *given[FORMS];
    uint32_t count = UINT32_MAX;
    int good = 1;
    for (int i = 0; i < FORMS; i++) {
        given[i] = forms[i] == NULL ? NULL : &words[i];
        good = good && (forms[i] == NULL || read_form(forms[i], &count, &words[i]) == 0);
    }
    if (good && (uint32_t)flag_count != count) {
        PyErr_SetString(PyExc_ValueError, "there must be one flag per word");
        good = 0;
    }
    if (good) {
        const tp_result result = tp_vocab_init(&self->vocab, count, (const uint8_t *)flags, given[0],
                                               given[1], given[2], (uint8_t)bytewise, strip);
        if (result == TP_E_MEMORY) {
            PyErr_NoMemory();
        } else if (result != TP_OK) {
            PyErr_Format(PyExc_ValueError, "Vocab: %s", tp_result_text(result));
        }
        good = result == TP_OK;
    }
    for (int i = 0; i < FORMS; i++) {
        PyMem_Free((void *)words[i].sizes);
    }
    return good ? 0 : -1;
}

static PyObject *vocab_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"words", "flags", "bytewise", "strip", "first", "raw", "foreign", NULL};
    PyObject *forms[FORMS] = {NULL, NULL, NULL}, *factory = NULL;
    const char *flags;
    Py_ssize_t flag_count;
    int bytewise;
    unsigned char strip;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!y#pb|O!O!O:Vocab", names, &PyTuple_Type, &forms[0],
                                     &flags, &flag_count, &bytewise, &strip, &PyTuple_Type, &forms[1],
                                     &PyTuple_Type, &forms[2], &factory)) {
        return NULL;
    }
    Vocab *self = (Vocab *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    if (fill(self, forms, flags, flag_count, bytewise, strip) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    if (factory != NULL) {
        self->factory = Py_NewRef(factory);
        self->foreign = (tp_foreign){self, foreign_begin, foreign_copy, foreign_drop, foreign_step};
        self->vocab.foreign = &self->foreign;
    }
    return (PyObject *)self;
}

static Py_ssize_t vocab_length(PyObject *self) { return ((Vocab *)self)->vocab.count; }

static PyObject *vocab_word(PyObject *self, PyObject *number) {
    const tp_vocab *v = &((Vocab *)self)->vocab;
    const Py_ssize_t token = PyNumber_AsSsize_t(number, PyExc_IndexError);
    if (token == -1 && PyErr_Occurred()) {
        return NULL;
    }
    if (token < 0 || (size_t)token >= v->count) {
        PyErr_SetString(PyExc_IndexError, "there is no such token id");
        return NULL;
    }
    const tp_word *word = &v->words[token];
    return PyBytes_FromStringAndSize((const char *)v->bytes + word->at, word->size);
}

static PyMethodDef methods[] = {
    {"word", vocab_word, METH_O, "The bytes of a token after another one. IndexError: no such id."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_methods, methods},
    {Py_tp_doc, "The text of each token id of a tokenizer. Immutable."},
    {Py_tp_new, (void *)vocab_new},
    {Py_tp_dealloc, (void *)vocab_dealloc},
    {Py_sq_length, (void *)vocab_length},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "tokenpipe._core.Vocab",
    .basicsize = sizeof(Vocab),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = slots,
};

int tp_init_vocab(PyObject *module) { return tp_add_type(module, &spec); }
