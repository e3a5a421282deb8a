/* The module's state, and the functions that all bindings need. */
#include "py/core.h"

tp_state *tp_state_of(PyObject *module) { return (tp_state *)PyModule_GetState(module); }

tp_state *tp_state_of_type(PyTypeObject *type) {
    PyObject *module = PyType_GetModule(type);
    return module == NULL ? NULL : tp_state_of(module);
}

PyObject *tp_make_type(PyObject *module, PyType_Spec *spec) {
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    if (type != NULL && PyModule_AddType(module, (PyTypeObject *)type) < 0) {
        Py_CLEAR(type);
    }
    return type;
}

int tp_add_type(PyObject *module, PyType_Spec *spec) {
    PyObject *type = tp_make_type(module, spec);
    Py_XDECREF(type);
    return type == NULL ? -1 : 0;
}

PyObject *tp_raise(tp_state *state, tp_result result, const char *what) {
    if (result == TP_E_MEMORY) {
        return PyErr_NoMemory();
    }
    return PyErr_Format(state->frame_error, "%s: %s", what, tp_result_text(result));
}

int tp_gone(const char *what) {
    PyErr_Format(PyExc_ReferenceError, "this %s is being deleted", what);
    return -1;
}

PyObject *tp_frame(PyObject *object) {
    if (PyBytes_CheckExact(object)) {
        return Py_NewRef(object);
    }
    Py_buffer buffer;
    if (PyObject_GetBuffer(object, &buffer, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    PyObject *bytes = PyBytes_FromStringAndSize(buffer.buf, buffer.len);
    PyBuffer_Release(&buffer);
    return bytes;
}

int tp_u64_arg(PyObject *value, void *out) {
    const unsigned long long number = PyLong_AsUnsignedLongLong(value);
    if (number == (unsigned long long)-1 && PyErr_Occurred()) {
        return 0;
    }
    *(uint64_t *)out = number;
    return 1;
}

int tp_u32_arg(PyObject *value, void *out) {
    uint64_t number;
    if (!tp_u64_arg(value, &number)) {
        return 0;
    }
    if (number > UINT32_MAX) {
        PyErr_Format(PyExc_OverflowError, "%R does not fit 32 bits", value);
        return 0;
    }
    *(uint32_t *)out = (uint32_t)number;
    return 1;
}

/* Copies the ints of a list or tuple. An __index__ of an entry may run Python code that changes the list,
 * so its length is read again for each entry. */
static int copy_ints(PyObject *fast, int32_t *values, Py_ssize_t n) {
    for (Py_ssize_t i = 0; i < n; i++) {
        if (i >= PySequence_Fast_GET_SIZE(fast)) {
            PyErr_SetString(PyExc_RuntimeError, "the list of token ids changed while it was read");
            return -1;
        }
        PyObject *item = Py_NewRef(PySequence_Fast_GET_ITEM(fast, i));
        const long value = PyLong_AsLong(item);
        Py_DECREF(item);
        if (value == -1 && PyErr_Occurred()) {
            return -1;
        }
        if (value > INT32_MAX || value < INT32_MIN) {
            PyErr_SetString(PyExc_OverflowError, "a token id does not fit int32");
            return -1;
        }
        values[i] = (int32_t)value;
    }
    return 0;
}

int tp_ints(PyObject *sequence, int32_t **values, uint32_t *count) {
    *values = NULL;
    *count = 0;
    PyObject *fast = PySequence_Fast(sequence, "a sequence of ints is needed");
    if (fast == NULL) {
        return -1;
    }
    const Py_ssize_t n = PySequence_Fast_GET_SIZE(fast);
    /* holds n: the array has room for n entries, and copy_ints compares the list with it */
    *values = n > INT32_MAX / 8 ? NULL : PyMem_Malloc(((size_t)n + 1) * sizeof **values);
    int result = -1;
    if (*values == NULL) {
        PyErr_NoMemory();
    } else if (copy_ints(fast, *values, n) == 0) {
        *count = (uint32_t)n;
        result = 0;
    }
    Py_DECREF(fast);
    return result;
}
