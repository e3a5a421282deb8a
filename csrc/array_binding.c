/* Takes numpy's arrays by their struct. The buffer protocol says the same, but makes a format string
 * and a descriptor for each array at each call: with cold caches that is half of a publish. */
#include "array_binding.h"

#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#include <numpy/ndarraytypes.h>

static int wrong_type(tp_state *state, const tp_array_kind *kind, const char *format) {
    PyErr_Format(state->row_error, "%s: entries of type %s do not belong there", kind->name, format);
    return -1;
}

static inline int allowed(const tp_array_kind *kind, char letter, Py_ssize_t width) {
    return letter != '\0' && strchr(kind->letters, letter) != NULL &&
           (kind->only_width == 0 || width == (Py_ssize_t)kind->only_width);
}

static inline uint32_t width_of(char letter) {
    return letter == 'q' ? 8 : letter == 'l' ? sizeof(long) : letter == 'H' ? 2 : letter == 'B' ? 1 : 4;
}

/* 1 where it was taken; 0 where its memory or its type is not as simple as that. */
static TP_HOT int take_plain(PyArrayObject *value, const tp_array_kind *kind, tp_array *array) {
    const PyArray_Descr *type = PyArray_DESCR(value);
    const uint32_t width = width_of(type->type);
    if (!(PyArray_FLAGS(value) & NPY_ARRAY_C_CONTIGUOUS) || type->byteorder == NPY_SWAP ||
        type->byteorder == NPY_OPPBYTE || !allowed(kind, type->type, width)) {
        return 0;
    }
    size_t n = 1;
    for (int i = 0; i < PyArray_NDIM(value); i++) {
        n *= (size_t)PyArray_DIM(value, i);
    }
    *array = (tp_array){PyArray_DATA(value), n, width};
    return 1;
}

static int take_buffer(tp_state *state, PyObject *value, const tp_array_kind *kind,
                       Py_buffer *buffer, tp_array *array) {
    if (PyObject_GetBuffer(value, buffer, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0) {
        buffer->obj = NULL;
        PyErr_Clear();
        PyErr_Format(state->row_error, "%s: %s is no C-contiguous buffer", kind->name,
                     Py_TYPE(value)->tp_name);
        return -1;
    }
    const char *format = buffer->format == NULL ? "B" : buffer->format;
    const char *letter = format + (*format == '<' || *format == '=' || *format == '@');
    if (letter[0] == '\0' || letter[1] != '\0' || !allowed(kind, letter[0], buffer->itemsize)) {
        return wrong_type(state, kind, format);
    }
    *array = (tp_array){buffer->buf, (size_t)(buffer->len / buffer->itemsize),
                        (uint32_t)buffer->itemsize};
    return 0;
}

TP_HOT int tp_array_take(tp_state *state, PyObject *value, const tp_array_kind *kind, PyObject *convert,
                  tp_held *held, tp_array *array) {
    if (PyObject_TypeCheck(value, (PyTypeObject *)state->ndarray) &&
        take_plain((PyArrayObject *)value, kind, array)) {
        return 0; /* the caller's arguments keep it alive */
    }
    if (convert != NULL) {
        held->converted = PyObject_CallFunction(convert, "OC", value, kind->letters[0]);
        if (held->converted == NULL) {
            return -1;
        }
        value = held->converted;
    }
    return take_buffer(state, value, kind, &held->buffer, array);
}
