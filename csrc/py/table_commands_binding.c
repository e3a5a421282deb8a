/* The commands of a Table. */
#include "py/table_commands_binding.h"

#include "py/table_events_binding.h"
#include "py/table_object.h"
#include "py/text_options_binding.h"
#include "table/extras.h"
#include "table/table.h"
#include "table/table_bind.h"
#include "table/table_client.h"
#include "table/table_finish.h"
#include "table/table_pace.h"
#include "table/table_park.h"
#include "table/table_queue.h"
#include "table/table_shed.h"

/* Returns the binding of a handle. NULL with KeyError: it has none. */
static tp_binding *find(PyObject *self, int64_t handle) {
    tp_binding *b = tp_table_find(tp_py_table(self), handle);
    if (b == NULL) {
        PyErr_Format(PyExc_KeyError, "no binding for handle %lld", (long long)handle);
    }
    return b;
}

static tp_binding *find_arg(PyObject *self, PyObject *arg) {
    const int64_t handle = PyLong_AsLongLong(arg);
    return handle == -1 && PyErr_Occurred() ? NULL : find(self, handle);
}

/* Reads a handle, and finds its slot. NULL with an exception. KeyError: it has no slot. */
static tp_slot *slot_arg(PyObject *self, PyObject *arg, int64_t *handle) {
    *handle = PyLong_AsLongLong(arg);
    if (*handle == -1 && PyErr_Occurred()) {
        return NULL;
    }
    tp_slot *slot = tp_table_slot(tp_py_table(self), *handle);
    if (slot == NULL) {
        PyErr_Format(PyExc_KeyError, "no slot for handle %lld", (long long)*handle);
    }
    return slot;
}

/* C copies of those arguments of a bind that are Python objects. */
typedef struct bind_lists {
    tp_py_text_options text;
    int32_t *stop_ids, *output_ids;
} bind_lists;

static void free_lists(bind_lists *lists) {
    tp_py_text_options_free(&lists->text);
    PyMem_Free(lists->stop_ids);
    PyMem_Free(lists->output_ids);
}

/* Reads the arguments of a bind into *bind. 0, or -1 with an exception. The caller always frees *lists. */
static int read_lists(const tp_table *t, PyObject *stops, PyObject *outputs, PyObject *text, tp_bind *bind,
                      bind_lists *lists) {
    *lists = (bind_lists){.stop_ids = NULL};
    if (t->vocab != NULL && text != Py_None) {
        if (tp_py_text_options_read(text, &lists->text) < 0) {
            return -1;
        }
        bind->text = &lists->text.options;
    }
    if (tp_ints(stops, &lists->stop_ids, &bind->stop_count) < 0 ||
        tp_ints(outputs, &lists->output_ids, &bind->output_count) < 0) {
        return -1;
    }
    bind->stop_ids = lists->stop_ids;
    bind->output_ids = lists->output_ids;
    return 0;
}

/* Binds. Called when no Python code can run any more. */
static PyObject *bind_now(tp_table *t, const tp_bind *bind) {
    const tp_binding *old = tp_table_find(t, bind->handle);
    if (tp_table_slot(t, bind->handle) == NULL || (old != NULL && old->state != TP_PARKED)) {
        return PyErr_Format(PyExc_KeyError, "handle %lld has no slot, or is bound", (long long)bind->handle);
    }
    return tp_table_bind(t, bind) == TP_OK ? tp_py_events(t) : PyErr_NoMemory();
}

PyObject *tp_table_py_bind(PyObject *self, PyObject *args) {
    long long handle;
    uint64_t key, extras_offset = 0;
    uint32_t client, max_tokens, min_tokens, pace = 1, pace_ms = 0, cached = 0;
    int ignore_eos, prefill;
    PyObject *stops, *outputs, *text = Py_None;
    if (!PyArg_ParseTuple(args, "LO&O&O&O&pOOp|OO&O&O&O&:bind", &handle, tp_u64_arg, &key, tp_u32_arg,
                          &client, tp_u32_arg, &max_tokens, tp_u32_arg, &min_tokens, &ignore_eos, &stops,
                          &outputs, &prefill, &text, tp_u32_arg, &pace, tp_u32_arg, &pace_ms, tp_u32_arg,
                          &cached, tp_u64_arg, &extras_offset)) {
        return NULL;
    }
    tp_table *t = tp_py_table(self);
    bind_lists lists;
    tp_bind bind = {.handle = handle,
                    .key = key,
                    .client = client < TP_NO_CLIENT ? (uint16_t)client : TP_NO_CLIENT,
                    .max_tokens = max_tokens,
                    .min_tokens = min_tokens,
                    .ignore_eos = (uint8_t)ignore_eos,
                    .prefill = (uint8_t)prefill,
                    .pace = pace,
                    .pace_ms = pace_ms,
                    .cached = cached,
                    .extras_offset = extras_offset};
    PyObject *events = read_lists(t, stops, outputs, text, &bind, &lists) == 0 ? bind_now(t, &bind) : NULL;
    free_lists(&lists);
    return events;
}

PyObject *tp_table_py_state(PyObject *self, PyObject *arg) {
    const int64_t handle = PyLong_AsLongLong(arg);
    if (handle == -1 && PyErr_Occurred()) {
        return NULL;
    }
    const tp_binding *b = tp_table_find(tp_py_table(self), handle);
    return b == NULL ? Py_BuildValue("iO", TP_GONE, Py_False)
                     : Py_BuildValue("iO", b->state, b->flags & TP_B_DRAINED ? Py_True : Py_False);
}

PyObject *tp_table_py_set_state(PyObject *self, PyObject *args) {
    long long handle;
    uint32_t state;
    if (!PyArg_ParseTuple(args, "LO&:set_state", &handle, tp_u32_arg, &state)) {
        return NULL;
    }
    tp_binding *b = find(self, handle);
    if (b == NULL) {
        return NULL;
    }
    if (b->state < TP_RUNNING || state < TP_RUNNING || state > TP_LINGERING) {
        return PyErr_Format(PyExc_ValueError, "a binding cannot go from state %d to %u", b->state, state);
    }
    b->state = (uint8_t)state;
    Py_RETURN_NONE;
}

/* Returns 1 if the code names an error, else 0 with ValueError. */
static int is_error_code(unsigned int code) {
    const int good = code != TP_ERROR_NONE && code < TP_ERROR_END;
    return good || PyErr_Format(PyExc_ValueError, "%u is not an error code", code) != NULL;
}

PyObject *tp_table_py_set_error(PyObject *self, PyObject *args) {
    long long handle;
    uint32_t code;
    const char *text, *field = "";
    Py_ssize_t size, field_size = 0;
    if (!PyArg_ParseTuple(args, "LO&s#|s#:set_error", &handle, tp_u32_arg, &code, &text, &size, &field,
                          &field_size)) {
        return NULL;
    }
    tp_binding *b = is_error_code(code) ? find(self, handle) : NULL;
    if (b == NULL) {
        return NULL;
    }
    const tp_error_text error = {(uint8_t)code, text, field, (size_t)size, (size_t)field_size};
    if (tp_binding_set_error(tp_py_table(self), b, &error) != TP_OK) {
        return PyErr_NoMemory();
    }
    Py_RETURN_NONE;
}

PyObject *tp_table_py_error_extras(PyObject *self, PyObject *arg) {
    const tp_binding *b = find_arg(self, arg);
    if (b == NULL) {
        return NULL;
    }
    const tp_error_extras *extras = b->error_extras;
    return PyBytes_FromStringAndSize(extras == NULL ? NULL : (const char *)extras->data,
                                     extras == NULL ? 0 : (Py_ssize_t)extras->size);
}

PyObject *tp_table_py_finish(PyObject *self, PyObject *args) {
    long long handle;
    uint32_t finish, state;
    if (!PyArg_ParseTuple(args, "LO&O&:finish", &handle, tp_u32_arg, &finish, tp_u32_arg, &state)) {
        return NULL;
    }
    tp_binding *b = find(self, handle);
    if (b == NULL) {
        return NULL;
    }
    if ((b->state != TP_RUNNING && b->state != TP_PREEMPTING) || finish == TP_FINISH_NONE ||
        finish >= TP_FINISH_END || (state != TP_ABORTING && state != TP_LINGERING)) {
        return PyErr_Format(PyExc_ValueError, "a binding cannot go from state %d to %u", b->state, state);
    }
    tp_binding_finish(tp_py_table(self), b, (uint8_t)finish, -1);
    b->state = (uint8_t)state;
    Py_RETURN_NONE;
}

PyObject *tp_table_py_hold(PyObject *self, PyObject *arg) {
    tp_binding *b = find_arg(self, arg);
    return b == NULL ? NULL : PyBool_FromLong(tp_binding_hold(tp_py_table(self), b));
}

PyObject *tp_table_py_total(PyObject *self, PyObject *arg) {
    const tp_binding *b = find_arg(self, arg);
    return b == NULL ? NULL : PyLong_FromUnsignedLong(b->total);
}

PyObject *tp_table_py_output(PyObject *self, PyObject *arg) {
    const tp_binding *b = find_arg(self, arg);
    if (b == NULL) {
        return NULL;
    }
    const uint32_t n = b->tokens == NULL ? 0 : b->total;
    PyObject *ids = PyTuple_New((Py_ssize_t)n);
    for (uint32_t i = 0; ids != NULL && i < n; i++) {
        PyObject *id = PyLong_FromLong(b->tokens[i]);
        if (id == NULL) {
            Py_CLEAR(ids);
        } else {
            PyTuple_SET_ITEM(ids, (Py_ssize_t)i, id);
        }
    }
    return ids;
}

PyObject *tp_table_py_stop_string(PyObject *self, PyObject *arg) {
    const tp_binding *b = find_arg(self, arg);
    return b == NULL ? NULL : PyLong_FromLong(b->stop_string);
}

PyObject *tp_table_py_text_tail(PyObject *self, PyObject *arg) {
    const tp_binding *b = find_arg(self, arg);
    if (b == NULL) {
        return NULL;
    }
    const tp_text *text = b->text;
    const size_t size = text == NULL ? 0 : tp_text_tail(text, NULL, 0);
    PyObject *tail = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (tail != NULL && size > 0) {
        (void)tp_text_tail(text, (uint8_t *)PyBytes_AS_STRING(tail), size);
    }
    const unsigned int offset = text == NULL ? 0 : text->offset + text->ready;
    return tail == NULL ? NULL : Py_BuildValue("IN", offset, tail);
}

PyObject *tp_table_py_extras_offset(PyObject *self, PyObject *arg) {
    const tp_binding *b = find_arg(self, arg);
    const tp_extras *extras = b == NULL ? NULL : b->extras;
    return b == NULL ? NULL
                     : PyLong_FromUnsignedLongLong(extras == NULL ? b->extras_offset
                                                                  : extras->offset + extras->ready);
}

PyObject *tp_table_py_release(PyObject *self, PyObject *arg) {
    const unsigned long long now_ns = PyLong_AsUnsignedLongLong(arg);
    if (now_ns == (unsigned long long)-1 && PyErr_Occurred()) {
        return NULL;
    }
    tp_table *t = tp_py_table(self);
    tp_table_release(t, now_ns);
    return PyLong_FromUnsignedLongLong(tp_queue_next(t));
}

PyObject *tp_table_py_drop(PyObject *self, PyObject *arg) {
    tp_binding *b = find_arg(self, arg);
    if (b == NULL) {
        return NULL;
    }
    tp_table_drop(tp_py_table(self), b);
    Py_RETURN_NONE;
}

PyObject *tp_table_py_floor(PyObject *self, PyObject *arg) {
    int64_t handle;
    const tp_slot *slot = slot_arg(self, arg, &handle);
    return slot == NULL ? NULL : PyLong_FromUnsignedLongLong(slot->floor);
}

PyObject *tp_table_py_busy(PyObject *self, PyObject *arg) {
    int64_t handle;
    const tp_slot *slot = slot_arg(self, arg, &handle);
    int busy = 0;
    for (const tp_binding *b = slot == NULL ? NULL : slot->newest; b != NULL; b = b->older) {
        busy |= b->state == TP_RUNNING || b->state == TP_PREEMPTING;
    }
    return slot == NULL ? NULL : PyBool_FromLong(busy);
}

PyObject *tp_table_py_raise_floor(PyObject *self, PyObject *arg) {
    int64_t handle;
    tp_slot *slot = slot_arg(self, arg, &handle);
    if (slot == NULL) {
        return NULL;
    }
    tp_table_raise_floor(tp_py_table(self), slot, TP_HANDLE_GENERATION(handle));
    Py_RETURN_NONE;
}

PyObject *tp_table_py_lose_park(PyObject *self, PyObject *arg) {
    tp_binding *b = find_arg(self, arg);
    if (b == NULL) {
        return NULL;
    }
    if (b->state == TP_PARKED) {
        tp_park_lose(tp_py_table(self), b);
    }
    Py_RETURN_NONE;
}

PyObject *tp_table_py_open_client(PyObject *self, PyObject *arg) {
    const unsigned long client = PyLong_AsUnsignedLong(arg);
    if (client == (unsigned long)-1 && PyErr_Occurred()) {
        return NULL;
    }
    if (client >= TP_NO_CLIENT) {
        return PyErr_Format(PyExc_ValueError, "client %lu: the index is too high", client);
    }
    if (tp_client_open(tp_py_table(self), (uint32_t)client) != TP_OK) {
        return PyErr_NoMemory();
    }
    Py_RETURN_NONE;
}

PyObject *tp_table_py_close_client(PyObject *self, PyObject *arg) {
    const unsigned long client = PyLong_AsUnsignedLong(arg);
    if (client == (unsigned long)-1 && PyErr_Occurred()) {
        return NULL;
    }
    tp_table *t = tp_py_table(self);
    if (tp_client_close(t, client < TP_NO_CLIENT ? (uint32_t)client : TP_NO_CLIENT) != TP_OK) {
        return PyErr_NoMemory();
    }
    return tp_py_events(t);
}

PyObject *tp_table_py_shed(PyObject *self, PyObject *args) {
    uint32_t client, code;
    const char *text;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(args, "O&O&s#:shed", tp_u32_arg, &client, tp_u32_arg, &code, &text, &size) ||
        !is_error_code(code)) {
        return NULL;
    }
    tp_table *t = tp_py_table(self);
    const tp_error_text error = {(uint8_t)code, text, "", (size_t)size, 0};
    if (tp_client_shed(t, client, &error) != TP_OK) {
        return PyErr_NoMemory();
    }
    return tp_py_events(t);
}
