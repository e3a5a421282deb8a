/* Finds the classes of items, and the places of their slots. */
#include "py/items_binding.h"

#include <structmember.h>

static const char *const output_fields[TP_OUTPUT_FIELDS] = {
    "request_id", "index",       "offset",   "token_ids", "finish_reason", "stop_reason", "error",
    "error_code", "error_field", "logprobs", "usage",     "text",          "extras",
};
static const char *const logprobs_fields[TP_LOGPROBS_FIELDS] = {"token_ids", "logprobs", "rank"};

static int find_slots(PyObject *type, const char *const *names, Py_ssize_t *at, int count) {
    PyTypeObject *as_type = (PyTypeObject *)type;
    for (int i = 0; i < count; i++) {
        PyObject *slot = PyObject_GetAttrString(type, names[i]);
        if (slot == NULL) {
            return -1;
        }
        PyMemberDef *member =
            Py_IS_TYPE(slot, &PyMemberDescr_Type) ? ((PyMemberDescrObject *)slot)->d_member : NULL;
        /* holds good: it is about the slot that was read */
        int good = member != NULL && member->type == T_OBJECT_EX;
        at[i] = good ? member->offset : 0;
        Py_DECREF(slot);
        if (!good) {
            PyErr_Format(PyExc_TypeError, "%s.%s is not a slot", as_type->tp_name, names[i]);
            return -1;
        }
    }
    Py_ssize_t slots = as_type->tp_basicsize - (Py_ssize_t)sizeof(PyObject);
    if (slots != count * (Py_ssize_t)sizeof(PyObject *)) {
        PyErr_Format(PyExc_TypeError, "%s does not have the expected slots", as_type->tp_name);
        return -1;
    }
    return 0;
}

/* Returns the members of ErrorCode, in the order of their values. */
static PyObject *error_codes(PyObject *types) {
    PyObject *all = PyObject_GetAttrString(types, "ErrorCode");
    PyObject *codes = all == NULL ? NULL : PySequence_Tuple(all);
    Py_XDECREF(all);
    return codes;
}

int tp_items_init(tp_items *items) {
    PyObject *types = PyImport_ImportModule("tokenpipe.types");
    if (types == NULL) {
        return -1;
    }
    items->output = (PyTypeObject *)PyObject_GetAttrString(types, "RequestOutput");
    items->logprobs = (PyTypeObject *)PyObject_GetAttrString(types, "TokenLogprobs");
    items->usage = PyObject_GetAttrString(types, "Usage");
    items->finish_codes = PyObject_GetAttrString(types, "FINISH_CODES");
    items->error_codes = error_codes(types);
    items->no_text = PyUnicode_New(0, 0);
    Py_DECREF(types);
    if (items->output == NULL || items->logprobs == NULL || items->usage == NULL ||
        items->finish_codes == NULL || items->error_codes == NULL || items->no_text == NULL) {
        return -1;
    }
    if (!PyTuple_Check(items->finish_codes) || PyTuple_GET_SIZE(items->finish_codes) != TP_FINISH_END) {
        PyErr_SetString(PyExc_TypeError, "FINISH_CODES does not match the wire");
        return -1;
    }
    if (PyTuple_GET_SIZE(items->error_codes) != TP_ERROR_END) {
        PyErr_SetString(PyExc_TypeError, "ErrorCode does not match the wire");
        return -1;
    }
    if (find_slots((PyObject *)items->output, output_fields, items->output_at, TP_OUTPUT_FIELDS) < 0 ||
        find_slots((PyObject *)items->logprobs, logprobs_fields, items->logprobs_at, TP_LOGPROBS_FIELDS) <
            0) {
        return -1;
    }
    items->no_logprobs = PyObject_CallFunction((PyObject *)items->logprobs, "()()i", 0);
    return items->no_logprobs == NULL ? -1 : 0;
}

int tp_items_visit(tp_items *items, visitproc visit, void *arg) {
    Py_VISIT(items->output);
    Py_VISIT(items->logprobs);
    Py_VISIT(items->usage);
    Py_VISIT(items->finish_codes);
    Py_VISIT(items->error_codes);
    Py_VISIT(items->no_logprobs);
    Py_VISIT(items->no_text);
    return 0;
}

void tp_items_clear(tp_items *items) {
    Py_CLEAR(items->output);
    Py_CLEAR(items->logprobs);
    Py_CLEAR(items->usage);
    Py_CLEAR(items->finish_codes);
    Py_CLEAR(items->error_codes);
    Py_CLEAR(items->no_logprobs);
    Py_CLEAR(items->no_text);
}
