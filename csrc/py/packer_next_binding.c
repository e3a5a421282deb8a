/* Packs and sends the next step. */
#include "py/packer_next_binding.h"

#include "py/step_arrays_binding.h"

#include <time.h>

enum { AT_STEP, AT_NS, AT_ARRAYS };

#define NOT_PLAIN (-2) /* not a result of tp_py_window_send */

/* Reads an object that is not an int but converts to one, as numpy's ints do. */
static int take_index(tp_state *state, PyObject *value, const char *name, uint64_t *out) {
    PyErr_Clear();
    PyObject *number = PyNumber_Index(value);
    if (number != NULL) {
        *out = PyLong_AsUnsignedLongLong(number);
        Py_DECREF(number);
    }
    if (PyErr_Occurred()) {
        PyErr_Clear();
        PyErr_Format(state->row_error, "%s: an int from 0 to 2**64 - 1 is needed, not %R", name, value);
        return -1;
    }
    return 0;
}

static inline int take_u64(tp_state *state, PyObject *value, const char *name, uint64_t *out) {
    *out = PyLong_AsUnsignedLongLong(value);
    return *out == (uint64_t)-1 && PyErr_Occurred() ? take_index(state, value, name, out) : 0;
}

static int take_time(tp_state *state, PyObject *value, uint64_t *mono_ns) {
    if (value != Py_None) {
        return take_u64(state, value, "step_ns", mono_ns);
    }
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    *mono_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    return 0;
}

/* Reads the arguments of the next step, and begins it. 0, or -1 with an exception. The caller releases
 * the arrays in either case. All Python code runs before the step gets its lane header, because this code may
 * publish a step and take the next number. */
static TP_HOT int take_next(StepPacker *self, PyObject *const *args, Py_ssize_t n, tp_step_input *in,
                            tp_step_arrays *taken) {
    PyObject *values[TP_STEP_ARRAYS] = {NULL};
    tp_fault fault;
    taken->count = 0;
    if (self->window == NULL || n < AT_ARRAYS + TP_TOKENS + 1 || n > AT_ARRAYS + TP_STEP_ARRAYS) {
        PyErr_SetString(
            PyExc_TypeError,
            "needs a StepPacker with a window, and the arguments (step, step_ns, handles, tokens, ...)");
        return -1;
    }
    for (Py_ssize_t i = AT_ARRAYS; i < n; i++) {
        values[i - AT_ARRAYS] = args[i] == Py_None ? NULL : args[i];
    }
    if (values[TP_HANDLES] == NULL || values[TP_TOKENS] == NULL) {
        PyErr_Format(self->state->row_error, "handles and tokens are arrays, not None");
        return -1;
    }
    memset(in, 0, sizeof *in);
    if (take_u64(self->state, args[AT_STEP], "step", &in->step) < 0 ||
        take_time(self->state, args[AT_NS], &in->mono_ns) < 0 ||
        tp_step_arrays_take(self->state, values, (int)(n - AT_ARRAYS), self->convert, in, taken) < 0) {
        return -1;
    }
    if (tp_step_offer_begin(&self->offer, in, &fault) < 0) {
        PyErr_Format(self->state->row_error, "%s", fault.text);
        return -1;
    }
    return 0;
}

/* Packs a step that was begun; NULL with an exception. */
static PyObject *offer(StepPacker *self, const tp_step_input *in) {
    tp_step_rows rows;
    tp_fault fault;
    if (tp_step_offer_pack(&self->offer, in, &rows, &fault) < 0) {
        return PyErr_Format(self->state->row_error, "%s", fault.text);
    }
    return tp_py_step_frame(&rows);
}

PyObject *tp_py_pack_next(StepPacker *self, PyObject *const *args, Py_ssize_t n) {
    tp_step_input in;
    tp_step_arrays taken;
    PyObject *frame = take_next(self, args, n, &in, &taken) == 0 ? offer(self, &in) : NULL;
    tp_step_arrays_release(&taken);
    return frame;
}

/* Sends a plain step: an enum tp_sent, -1 with an exception, or NOT_PLAIN. */
static TP_HOT int send_plain(StepPacker *self, const tp_step_input *in) {
    tp_plain plain;
    const size_t size = tp_step_offer_plain_begin(&self->offer, in, &plain);
    if (size == 0) {
        return NOT_PLAIN;
    }
    PyObject *frame = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (frame == NULL) {
        return -1;
    }
    int sent = NOT_PLAIN;
    if (tp_step_offer_plain_write(&self->offer, in, &plain, (uint8_t *)PyBytes_AS_STRING(frame))) {
        sent = tp_py_window_send(self->window, frame);
        tp_step_offer_plain_end(&self->offer, in, &plain);
    }
    Py_DECREF(frame);
    return sent;
}

static int send_packed(StepPacker *self, const tp_step_input *in) {
    PyObject *frame = offer(self, in);
    const int sent = frame == NULL ? -1 : tp_py_window_send(self->window, frame);
    Py_XDECREF(frame);
    tp_step_offer_settle(&self->offer);
    return sent;
}

TP_HOT PyObject *tp_py_send_next(StepPacker *self, PyObject *const *args, Py_ssize_t n) {
    int sent = -1;
    tp_step_input in;
    tp_step_arrays taken;
    if (take_next(self, args, n, &in, &taken) == 0 && (sent = send_plain(self, &in)) == NOT_PLAIN) {
        sent = send_packed(self, &in);
    }
    tp_step_arrays_release(&taken);
    return sent < 0 ? NULL : PyLong_FromLong(sent);
}

PyObject *tp_py_withdraw(StepPacker *self, PyObject *unused) {
    (void)unused;
    if (self->window != NULL) {
        tp_step_offer_settle(&self->offer);
    }
    Py_RETURN_NONE;
}

PyObject *tp_py_last_step(StepPacker *self, void *unused) {
    (void)unused;
    uint64_t step;
    return tp_step_offer_last(&self->offer, &step) ? PyLong_FromUnsignedLongLong(step) : Py_NewRef(Py_None);
}
