/* Saves and loads a Table. */
#include "py/table_saved_binding.h"

#include "py/table_object.h"
#include "py/text_options_binding.h"
#include "table/table.h"
#include "table/table_load.h"
#include "table/table_reread.h"
#include "table/table_save.h"

PyObject *tp_table_py_save(PyObject *self, PyObject *none) {
    (void)none;
    const tp_table *t = tp_py_table(self);
    for (uint32_t i = 0; i < t->client_count; i++) {
        if (t->clients[i].kept.rows > 0) { /* a flush that was not used: memory lacks */
            return PyErr_NoMemory();
        }
    }
    PyObject *saved = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)tp_table_save(t, NULL));
    if (saved != NULL) {
        (void)tp_table_save(t, (uint8_t *)PyBytes_AS_STRING(saved));
    }
    return saved;
}

/* Returns the handles of the bindings that need the options of their text. */
static PyObject *without_text(const tp_table *t) {
    PyObject *list = PyList_New(0);
    for (uint32_t r = 0; r < t->rank_count; r++) {
        for (uint32_t i = 0; i < t->slots; i++) {
            for (const tp_binding *b = t->ranks[r].slots[i].newest; list != NULL && b != NULL; b = b->older) {
                PyObject *handle = tp_binding_lacks_text(b) ? PyLong_FromLongLong(b->handle) : NULL;
                if (handle == NULL ? PyErr_Occurred() != NULL : PyList_Append(list, handle) < 0) {
                    Py_CLEAR(list);
                }
                Py_XDECREF(handle);
            }
        }
    }
    return list;
}

PyObject *tp_table_py_load(PyObject *self, PyObject *saved) {
    Py_buffer bytes;
    if (PyObject_GetBuffer(saved, &bytes, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    const tp_result result = tp_table_load(tp_py_table(self), bytes.buf, (size_t)bytes.len);
    PyBuffer_Release(&bytes);
    if (result != TP_OK) {
        return tp_raise(((Table *)self)->state, result, "saved table");
    }
    return without_text(tp_py_table(self));
}

PyObject *tp_table_py_reread(PyObject *self, PyObject *args) {
    long long handle;
    PyObject *text;
    tp_py_text_options options;
    if (!PyArg_ParseTuple(args, "LO:reread", &handle, &text) || tp_py_text_options_read(text, &options) < 0) {
        return NULL;
    }
    tp_result result = TP_E_HEADER;
    tp_binding *b = tp_table_find(tp_py_table(self), handle);
    if (b != NULL && tp_binding_lacks_text(b)) {
        result = tp_binding_reread(tp_py_table(self), b, &options.options);
    }
    tp_py_text_options_free(&options);
    if (result != TP_OK) {
        return PyErr_Occurred() ? NULL : tp_raise(((Table *)self)->state, result, "saved text");
    }
    Py_RETURN_NONE;
}
