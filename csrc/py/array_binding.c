/* Reads numpy's arrays by their C struct. The buffer protocol would work too, but each call would make a
 * format string and a descriptor for each array. With cold caches this takes half of the time of a publish.
 */
#include "py/array_binding.h"

#include "py/dlpack_binding.h"

#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#include <numpy/ndarraytypes.h>

/* Returns numpy's name of a type, from its format of the struct module and its size. A name that is not a
 * constant is written to *text. */
static const char *type_in_words(const char *format, Py_ssize_t size, char *text, size_t most) {
    const int other = *format == '>' || *format == '!';
    const char *letter = format + (other || *format == '<' || *format == '=' || *format == '@');
    const char *stem = letter[0] == '\0' || letter[1] != '\0' ? NULL
                       : strchr("bhilqn", letter[0]) != NULL  ? "int"
                       : strchr("BHILQN", letter[0]) != NULL  ? "uint"
                       : strchr("efdg", letter[0]) != NULL    ? "float"
                                                              : NULL;
    if (stem != NULL) {
        snprintf(text, most, "%s%s%zd", other ? "big-endian " : "", stem, 8 * size);
    } else if (strcmp(letter, "?") == 0 || strcmp(letter, "O") == 0) {
        return *letter == 'O' ? "Python objects" : "bool";
    } else {
        snprintf(text, most, "entries of struct format %.20s", format);
    }
    return text;
}

static int wrong_type(tp_state *state, const tp_array_kind *kind, const char *format, Py_ssize_t size) {
    char text[64];
    PyErr_Format(state->row_error, "%s: %s, needs %s", kind->name,
                 type_in_words(format, size, text, sizeof text), kind->needs);
    return -1;
}

static int wrong_shape(tp_state *state, const tp_array_kind *kind, const Py_buffer *buffer) {
    char text[128] = "[]";
    size_t at = 0;
    for (int i = 0; i < buffer->ndim && i < 4; i++) {
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%zd", i == 0 ? "[" : ", ", buffer->shape[i]);
    }
    if (at > 0) {
        snprintf(text + at, sizeof text - at, buffer->ndim > 4 ? ", ...]" : "]");
    }
    PyErr_Format(state->row_error, "%s: shape %s, needs one dimension, [n]", kind->name, text);
    return -1;
}

static int no_array(tp_state *state, const tp_array_kind *kind, PyObject *value) {
    if (PyObject_CheckBuffer(value)) {
        PyErr_Format(state->row_error, "%s: this %s gives no C-contiguous buffer, needs %s [n]", kind->name,
                     Py_TYPE(value)->tp_name, kind->needs);
    } else {
        PyErr_Format(state->row_error,
                     "%s: %s is not an array; pass a list, a numpy array, a buffer or a DLPack tensor on the "
                     "host, of %s [n]",
                     kind->name, Py_TYPE(value)->tp_name, kind->needs);
    }
    return -1;
}

static inline int allowed(const tp_array_kind *kind, char letter, Py_ssize_t width) {
    return letter != '\0' && strchr(kind->letters, letter) != NULL &&
           (kind->only_width == 0 || width == (Py_ssize_t)kind->only_width);
}

static inline uint32_t width_of(char letter) {
    return letter == 'q' ? 8 : letter == 'l' ? sizeof(long) : letter == 'H' ? 2 : letter == 'B' ? 1 : 4;
}

/* 1: taken. 0: the array is strided, of another type, or has other dimensions. */
static TP_HOT int take_plain(PyArrayObject *value, const tp_array_kind *kind, tp_array *array) {
    const PyArray_Descr *type = PyArray_DESCR(value);
    const uint32_t width = width_of(type->type);
    if (PyArray_NDIM(value) != 1 || !(PyArray_FLAGS(value) & NPY_ARRAY_C_CONTIGUOUS) ||
        type->byteorder == NPY_SWAP || type->byteorder == NPY_OPPBYTE || !allowed(kind, type->type, width)) {
        return 0;
    }
    *array = (tp_array){PyArray_DATA(value), (size_t)PyArray_DIM(value, 0), width};
    return 1;
}

static int take_buffer(tp_state *state, PyObject *value, const tp_array_kind *kind, Py_buffer *buffer,
                       tp_array *array) {
    if (PyObject_GetBuffer(value, buffer, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0) {
        buffer->obj = NULL;
        PyErr_Clear();
        return no_array(state, kind, value);
    }
    const char *format = buffer->format == NULL ? "B" : buffer->format;
    const char *letter = format + (*format == '<' || *format == '=' || *format == '@');
    if (letter[0] == '\0' || letter[1] != '\0' || !allowed(kind, letter[0], buffer->itemsize)) {
        return wrong_type(state, kind, format, buffer->itemsize);
    }
    if (buffer->ndim != 1) {
        return wrong_shape(state, kind, buffer);
    }
    *array = (tp_array){buffer->buf, (size_t)(buffer->len / buffer->itemsize), (uint32_t)buffer->itemsize};
    return 0;
}

TP_HOT int tp_array_look(tp_state *state, PyObject *value, const tp_array_kind *kind, int tensors,
                         tp_array *array) {
    if (PyObject_TypeCheck(value, (PyTypeObject *)state->ndarray) &&
        take_plain((PyArrayObject *)value, kind, array)) {
        return 1;
    }
    return tensors && tp_dlpack_look(state, value, array) &&
           allowed(kind, array->width == 8 ? 'q' : 'i', array->width);
}

int tp_array_hold(tp_state *state, PyObject *value, const tp_array_kind *kind, PyObject *convert,
                  tp_held *held, tp_array *array) {
    if (convert != NULL) {
        held->converted = PyObject_CallFunction(convert, "OCs", value, kind->letters[0], kind->name);
        if (held->converted == NULL) {
            return -1;
        }
        value = held->converted;
    }
    return take_buffer(state, value, kind, &held->buffer, array);
}
