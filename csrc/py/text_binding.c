/* The type Text. */
#include "py/text_binding.h"

#include "py/str_binding.h"
#include "py/text_options_binding.h"
#include "py/vocab_binding.h"

typedef struct Text {
    PyObject_HEAD
    tp_text *text;
    PyObject *vocab;
    uint8_t busy; /* a method runs */
} Text;

static PyObject *raise_text(tp_result result) {
    if (result == TP_E_FOREIGN) {
        PyErr_SetString(PyExc_RuntimeError, "the tokenizer failed");
        return NULL;
    }
    return PyErr_NoMemory();
}

static PyObject *text_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"vocab", "options", NULL};
    PyObject *vocab, *tuple;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO!:Text", names, &vocab, &PyTuple_Type, &tuple)) {
        return NULL;
    }
    const tp_vocab *words = tp_py_vocab(vocab);
    tp_py_text_options options;
    if (words == NULL || tp_py_text_options_read(tuple, &options) < 0) {
        return NULL;
    }
    Text *self = (Text *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->vocab = Py_NewRef(vocab);
        const tp_result result = tp_text_new(words, &options.options, &self->text);
        if (result != TP_OK) {
            Py_CLEAR(self);
            raise_text(result);
        }
    }
    tp_py_text_options_free(&options);
    return tp_py_vocab_check(vocab, (PyObject *)self);
}

static void text_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    tp_text_free(((Text *)self)->text);
    Py_XDECREF(((Text *)self)->vocab);
    type->tp_free(self);
    Py_DECREF(type);
}

/* Makes a str from the text that may be sent, and marks this text as sent. */
static PyObject *take_text(tp_text *text) {
    const uint32_t ready = text->ready;
    PyObject *made = tp_py_str(text->buffer, ready);
    if (made != NULL && ready > 0) {
        tp_text_sent(text, ready);
    }
    return made;
}

static PyObject *text_feed(PyObject *self, PyObject *args) {
    tp_text *text = ((Text *)self)->text;
    PyObject *ids;
    uint32_t quiet = 0;
    if (!PyArg_ParseTuple(args, "O|O&:feed", &ids, tp_u32_arg, &quiet)) {
        return NULL;
    }
    int32_t *tokens = NULL, stop = -1;
    uint32_t count, i = 0;
    if (tp_ints(ids, &tokens, &count) < 0) {
        PyMem_Free(tokens);
        return NULL;
    }
    tp_result result = TP_OK;
    while (i < count && stop < 0 && result == TP_OK && !text->ended) {
        result = tp_text_step(text, tokens[i], i >= quiet, &stop);
        i++;
    }
    PyMem_Free(tokens);
    if (result != TP_OK) {
        return raise_text(result);
    }
    tp_text_settle(text);
    PyObject *made = take_text(text);
    return made == NULL ? NULL : Py_BuildValue("NIi", made, i, stop);
}

static PyObject *text_end(PyObject *self, PyObject *none) {
    (void)none;
    tp_text *text = ((Text *)self)->text;
    tp_text_end(text);
    return take_text(text);
}

/* Calls a method, unless one runs: a decoder may call this text again. */
static PyObject *guard(PyObject *object, PyObject *arg, PyCFunction method) {
    Text *self = (Text *)object;
    if (self->busy) {
        PyErr_SetString(PyExc_RuntimeError, "a method of this text runs: its decoder must not call another");
        return NULL;
    }
    self->busy = 1;
    PyObject *result = method(object, arg);
    self->busy = 0;
    return tp_py_vocab_check(self->vocab, result);
}

static PyObject *guarded_feed(PyObject *self, PyObject *args) { return guard(self, args, text_feed); }

static PyObject *guarded_end(PyObject *self, PyObject *none) { return guard(self, none, text_end); }

static PyMethodDef methods[] = {
    {"feed", guarded_feed, METH_VARARGS,
     "Read tokens; return the text, how many tokens were read, and the stop or -1."},
    {"end", guarded_end, METH_NOARGS, "End the text, because no token follows; return the held text."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "The text of one sequence, up to its first stop string."},
    {Py_tp_new, (void *)text_new},
    {Py_tp_dealloc, (void *)text_dealloc},
    {Py_tp_methods, methods},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "tokenpipe._core.Text",
    .basicsize = sizeof(Text),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = slots,
};

int tp_init_text(PyObject *module) { return tp_add_type(module, &spec); }
