/* The module _core: the list of its parts. */
#include "py/constants_binding.h"
#include "py/core.h"
#include "py/frames_binding.h"
#include "py/inbox_binding.h"
#include "py/packer_binding.h"
#include "py/send_window_binding.h"
#include "py/socket_recv_binding.h"
#include "py/socket_send_binding.h"
#include "py/stream_binding.h"
#include "py/stream_next_binding.h"
#include "py/stream_waiter_binding.h"
#include "py/table_binding.h"
#include "py/text_binding.h"
#include "py/vocab_binding.h"

/* The parts of the module. A later part may use the types of an earlier one. */
static int (*const parts[])(PyObject *module) = {
    tp_init_constants, tp_init_frames,      tp_init_socket_send,   tp_init_socket_recv, tp_init_send_window,
    tp_init_packer,    tp_init_stream_next, tp_init_stream_waiter, tp_init_inbox,       tp_init_stream,
    tp_init_vocab,     tp_init_text,        tp_init_table,
};

static PyObject *core_forked(PyObject *module, PyObject *Py_UNUSED(ignored)) {
    tp_state_of(module)->forks++;
    Py_RETURN_NONE;
}

static PyMethodDef forked = {"_forked", core_forked, METH_NOARGS,
                             "Tell the module that it is in a forked child."};

static int watch_forks(PyObject *module) {
    PyObject *os = PyImport_ImportModule("os");
    PyObject *watch = os == NULL ? NULL : PyObject_GetAttrString(os, "register_at_fork");
    PyObject *hook = watch == NULL ? NULL : PyCFunction_New(&forked, module);
    PyObject *named = hook == NULL ? NULL : Py_BuildValue("{sO}", "after_in_child", hook);
    PyObject *none = named == NULL ? NULL : PyTuple_New(0);
    PyObject *done = none == NULL ? NULL : PyObject_Call(watch, none, named);
    Py_XDECREF(os);
    Py_XDECREF(watch);
    Py_XDECREF(hook);
    Py_XDECREF(named);
    Py_XDECREF(none);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static int core_exec(PyObject *module) {
    tp_state *state = tp_state_of(module);
    PyObject *errors = PyImport_ImportModule("tokenpipe.errors");
    if (errors == NULL) {
        return -1;
    }
    state->frame_error = PyObject_GetAttrString(errors, "FrameError");
    state->row_error = PyObject_GetAttrString(errors, "RowError");
    Py_DECREF(errors);
    PyObject *numpy = PyImport_ImportModule("numpy");
    if (numpy != NULL) {
        state->ndarray = PyObject_GetAttrString(numpy, "ndarray");
        Py_DECREF(numpy);
    }
    if (state->frame_error == NULL || state->row_error == NULL || state->ndarray == NULL) {
        return -1;
    }
    if (!PyType_Check(state->ndarray)) {
        PyErr_SetString(PyExc_TypeError, "numpy.ndarray is not a type");
        return -1;
    }
    if (watch_forks(module) < 0) {
        return -1;
    }
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (parts[i](module) < 0) {
            return -1;
        }
    }
    return 0;
}

static int core_traverse(PyObject *module, visitproc visit, void *arg) {
    tp_state *state = tp_state_of(module);
    Py_VISIT(state->frame_error);
    Py_VISIT(state->row_error);
    Py_VISIT(state->ndarray);
    Py_VISIT(state->tensor);
    Py_VISIT(state->send_window);
    Py_VISIT(state->socket_send);
    Py_VISIT(state->stream_next);
    Py_VISIT(state->stream_waiter);
    return 0;
}

static int core_clear(PyObject *module) {
    tp_state *state = tp_state_of(module);
    Py_CLEAR(state->frame_error);
    Py_CLEAR(state->row_error);
    Py_CLEAR(state->ndarray);
    Py_CLEAR(state->tensor);
    Py_CLEAR(state->send_window);
    Py_CLEAR(state->socket_send);
    Py_CLEAR(state->stream_next);
    Py_CLEAR(state->stream_waiter);
    return 0;
}

static PyModuleDef_Slot core_slots[] = {
    {Py_mod_exec, (void *)core_exec},
#if PY_VERSION_HEX >= 0x030C0000
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED}, /* numpy is not */
#endif
    {0, NULL},
};

static struct PyModuleDef core_module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "tokenpipe._core",
    .m_doc = "The hot path in C: frames, the binding table, the client's inbox.",
    .m_size = sizeof(tp_state),
    .m_slots = core_slots,
    .m_traverse = core_traverse,
    .m_clear = core_clear,
};

PyMODINIT_FUNC PyInit__core(void);

PyMODINIT_FUNC PyInit__core(void) { return PyModuleDef_Init(&core_module); }
