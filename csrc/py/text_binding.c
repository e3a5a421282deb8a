/* Text: the text of one sequence, for those who have tokens and no pipeline. */
#include "py/text_binding.h"
#include "py/str_binding.h"
#include "py/table_binding.h"

typedef struct {
    PyObject_HEAD
    tp_text *text;
    PyObject *vocab;
} TextObject;

static PyObject *text_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"vocab", "wish", NULL};
    PyObject *vocab, *tuple;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO!:Text", names, &vocab, &PyTuple_Type, &tuple)) {
        return NULL;
    }
    const tp_vocab *words = tp_py_vocab(vocab);
    tp_py_wish wish;
    if (words == NULL || tp_py_wish_read(tuple, &wish) < 0) {
        return NULL;
    }
    TextObject *self = (TextObject *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->vocab = Py_NewRef(vocab);
        self->text = tp_text_new(words, &wish.wish);
        if (self->text == NULL) {
            Py_CLEAR(self);
            PyErr_NoMemory();
        }
    }
    tp_py_wish_free(&wish);
    return (PyObject *)self;
}

static void text_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    tp_text_free(((TextObject *)self)->text);
    Py_XDECREF(((TextObject *)self)->vocab);
    type->tp_free(self);
    Py_DECREF(type);
}

PyObject *tp_py_text_take(tp_text *text) {
    const uint32_t ready = text->ready;
    PyObject *made = tp_py_str(text->buffer, ready);
    if (made != NULL && ready > 0) {
        tp_text_sent(text, ready);
    }
    return made;
}

static PyObject *text_feed(PyObject *self, PyObject *args) {
    tp_text *text = ((TextObject *)self)->text;
    PyObject *ids;
    unsigned int quiet = 0;
    if (!PyArg_ParseTuple(args, "O|I:feed", &ids, &quiet)) {
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
    if (result == TP_E_FOREIGN) {
        PyErr_SetString(PyExc_RuntimeError, "the tokenizer failed on a token");
        return NULL;
    }
    if (result != TP_OK) {
        return PyErr_NoMemory();
    }
    tp_text_settle(text);
    PyObject *made = tp_py_text_take(text);
    return made == NULL ? NULL : Py_BuildValue("NIi", made, i, stop);
}

static PyObject *text_end(PyObject *self, PyObject *none) {
    (void)none;
    tp_text *text = ((TextObject *)self)->text;
    tp_text_end(text);
    return tp_py_text_take(text);
}

static PyMethodDef methods[] = {
    {"feed", text_feed, METH_VARARGS, "Read tokens; return the text, how many were read, the stop."},
    {"end", text_end, METH_NOARGS, "No token follows: return what was held back."},
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
    .basicsize = sizeof(TextObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = slots,
};

int tp_init_text(PyObject *module) {
    PyObject *type = PyType_FromModuleAndSpec(module, &spec, NULL);
    const int result = type == NULL ? -1 : PyModule_AddType(module, (PyTypeObject *)type);
    Py_XDECREF(type);
    return result;
}
