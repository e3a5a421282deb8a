/* Reads text options from a Python tuple. */
#include "py/text_options_binding.h"

void tp_py_text_options_free(tp_py_text_options *o) {
    PyMem_Free(o->stops);
    PyMem_Free(o->sizes);
    PyMem_Free(o->prompt);
    memset(o, 0, sizeof *o);
}

/* Copies the strings, one after another. */
static int read_stops(PyObject *strings, tp_py_text_options *o) {
    const Py_ssize_t count = PyTuple_GET_SIZE(strings);
    size_t total = 0;
    o->sizes = PyMem_Malloc(((size_t)count + 1) * sizeof *o->sizes);
    o->stops = PyMem_Malloc(TP_MAX_STOP_BYTES);
    if (o->sizes == NULL || o->stops == NULL) {
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
            PyErr_Format(PyExc_ValueError, "stop strings must not be empty, and have at most %u bytes in all",
                         TP_MAX_STOP_BYTES);
            return -1;
        }
        memcpy(o->stops + total, text, (size_t)size);
        o->sizes[i] = (uint32_t)size;
        total += (size_t)size;
    }
    o->options.stops = o->stops;
    o->options.stop_sizes = o->sizes;
    o->options.stop_count = (uint32_t)count;
    return 0;
}

int tp_py_text_options_read(PyObject *tuple, tp_py_text_options *o) {
    int skip, spaces, include, cut;
    PyObject *stops, *prompt;
    memset(o, 0, sizeof *o);
    if (!PyArg_ParseTuple(tuple, "pppO!Op:text", &skip, &spaces, &include, &PyTuple_Type, &stops, &prompt,
                          &cut) ||
        read_stops(stops, o) < 0 || tp_ints(prompt, &o->prompt, &o->options.prompt_count) < 0) {
        tp_py_text_options_free(o);
        return -1;
    }
    o->options.skip_special = (uint8_t)skip;
    o->options.spaces = (uint8_t)spaces;
    o->options.include_stop = (uint8_t)include;
    o->options.prompt = o->prompt;
    o->options.prompt_cut = (uint8_t)cut;
    return 0;
}
