/* StepPacker over a window: the next frame of a lane, packed and, if asked for, sent. */
#include "py/packer_binding.h"

#include <time.h>

#define INDICES "int32 or int64"
static const tp_array_kind kinds[ARRAYS] = {{"handles", "lq", "int64", 8},
                                            {"tokens", "ilq", INDICES, 0},
                                            {"counts", "ilqH", "int32, int64 or uint16", 0},
                                            {"status", "B", "uint8", 0},
                                            {"drained", "lq", "int64", 8},
                                            {"logprobs.k", "ilq", INDICES, 0},
                                            {"logprobs.token_ids", "ilq", INDICES, 0},
                                            {"logprobs.logprobs", "f", "float32", 0},
                                            {"logprobs.ranks", "ilq", INDICES, 0},
                                            {"annex_len", "I", "uint32", 4},
                                            {"annex", "B", "uint8", 0}};

TP_HOT int tp_packer_take(StepPacker *self, PyObject *const *values, PyObject *convert, tp_step_input *in,
                          tp_packer_arrays *taken) {
    tp_array *const into[ARRAYS] = {&in->handles,  &in->tokens,    &in->counts, &in->status,
                                    &in->drained,  &in->lp_k,      &in->lp_ids, &in->lp_values,
                                    &in->lp_ranks, &in->annex_len, &in->annex};
    for (taken->count = 0; taken->count < taken->most;) {
        const int i = taken->count++;
        taken->held[i].buffer.obj = NULL;
        taken->held[i].converted = NULL;
        if (values[i] != NULL &&
            tp_array_take(self->state, values[i], &kinds[i], convert, &taken->held[i], into[i]) < 0) {
            return -1;
        }
    }
    return 0;
}

TP_HOT void tp_packer_release(tp_packer_arrays *taken) {
    while (taken->count > 0) {
        tp_array_release(&taken->held[--taken->count]);
    }
}

PyObject *tp_packer_packed(StepPacker *self, const tp_step_input *in) {
    tp_step_rows rows;
    tp_fault fault;
    if (tp_packer_pack(&self->packer, in, &rows, &fault) < 0) {
        return PyErr_Format(self->state->row_error, "%s", fault.text);
    }
    PyObject *frame = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)tp_step_size(&rows));
    if (frame != NULL) {
        tp_step_write(&rows, (uint8_t *)PyBytes_AS_STRING(frame));
    }
    return frame;
}

/* The window went past the last frame's number: it was taken, or else it would be withdrawn. */
static void took(StepPacker *self, uint64_t step) {
    self->last_step = step;
    self->any_step = 1;
}

static inline int is_taken(const StepPacker *self, uint64_t seq) { return self->window->next.seq > seq; }

static void settle(StepPacker *self) {
    if (self->offered != 0 && is_taken(self, self->offered)) {
        tp_packer_commit(&self->packer);
        took(self, self->offered_step);
    }
    self->offered = 0;
}

/* What is no int but may stand for one, of numpy for example, and what is wrong. */
static int take_other_u64(tp_state *state, PyObject *value, const char *name, uint64_t *out) {
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
    return *out == (uint64_t)-1 && PyErr_Occurred() ? take_other_u64(state, value, name, out) : 0;
}

/* Reads the arguments of the next frame, and settles the one before. 0, or -1 with an error; what
 * is taken is to be released in either case. */
static TP_HOT int take_next(StepPacker *self, PyObject *const *args, Py_ssize_t n, tp_step_input *in,
                            tp_packer_arrays *taken) {
    enum { AT_STEP, AT_NS, AT_ARRAYS };
    PyObject *values[ARRAYS] = {NULL};
    taken->count = 0;
    if (self->window == NULL || n < AT_ARRAYS + REQUIRED - INTS || n > AT_ARRAYS + ARRAYS) {
        PyErr_SetString(PyExc_TypeError, "(step, step_ns, handles, tokens, ...), of a packer with a "
                                         "window");
        return -1;
    }
    for (Py_ssize_t i = AT_ARRAYS; i < n; i++) {
        values[i - AT_ARRAYS] = args[i] == Py_None ? NULL : args[i];
    }
    taken->most = (int)(n - AT_ARRAYS);
    if (values[HANDLES - INTS] == NULL || values[TOKENS - INTS] == NULL) {
        PyErr_Format(self->state->row_error, "handles and tokens are arrays, not None");
        return -1;
    }
    memset(in, 0, sizeof *in);
    if (take_u64(self->state, args[AT_STEP], "step", &in->step) < 0) {
        return -1;
    }
    if (args[AT_NS] != Py_None) {
        if (take_u64(self->state, args[AT_NS], "step_ns", &in->mono_ns) < 0) {
            return -1;
        }
    } else {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        in->mono_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    }
    settle(self);
    if (self->any_step && in->step <= self->last_step) { /* its rows would be taken for repeated ones */
        PyErr_Format(self->state->row_error, "step %llu after step %llu%s: a rank's steps grow",
                     (unsigned long long)in->step, (unsigned long long)self->last_step,
                     in->step == self->last_step ? ", which was taken" : "");
        return -1;
    }
    in->lane = self->window->next;
    return tp_packer_take(self, values, self->convert, in, taken);
}

PyObject *tp_packer_pack_next(StepPacker *self, PyObject *const *args, Py_ssize_t n) {
    PyObject *frame = NULL;
    tp_step_input in;
    tp_packer_arrays taken;
    if (take_next(self, args, n, &in, &taken) == 0 && (frame = tp_packer_packed(self, &in)) != NULL) {
        self->offered = in.lane.seq;
        self->offered_step = in.step;
    }
    tp_packer_release(&taken);
    return frame;
}

/* The plain way: an enum tp_sent, -1 with an error, -2 where the step is not plain. */
static TP_HOT int send_plain(StepPacker *self, const tp_step_input *in) {
    tp_plain plain;
    const size_t size = tp_plain_begin(&self->packer, in, &plain);
    if (size == 0) {
        return -2;
    }
    PyObject *frame = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (frame == NULL) {
        return -1;
    }
    int sent = -2;
    if (tp_plain_write(&self->packer, in, &plain, (uint8_t *)PyBytes_AS_STRING(frame))) {
        sent = tp_send_window_send_own(self->window, frame);
        if (!is_taken(self, in->lane.seq)) {
            tp_plain_undo(&self->packer, &plain);
        }
    }
    Py_DECREF(frame);
    return sent;
}

static int send_packed(StepPacker *self, const tp_step_input *in) {
    PyObject *frame = tp_packer_packed(self, in);
    const int sent = frame == NULL ? -1 : tp_send_window_send_own(self->window, frame);
    Py_XDECREF(frame);
    if (is_taken(self, in->lane.seq)) {
        tp_packer_commit(&self->packer);
    }
    return sent;
}

TP_HOT PyObject *tp_packer_send_next(StepPacker *self, PyObject *const *args, Py_ssize_t n) {
    int sent = -1;
    tp_step_input in;
    tp_packer_arrays taken;
    if (take_next(self, args, n, &in, &taken) == 0) {
        if ((sent = send_plain(self, &in)) == -2) {
            sent = send_packed(self, &in);
        }
        if (is_taken(self, in.lane.seq)) {
            took(self, in.step);
        }
    }
    tp_packer_release(&taken);
    return sent < 0 ? NULL : PyLong_FromLong(sent);
}

PyObject *tp_packer_withdraw(StepPacker *self, PyObject *unused) {
    (void)unused;
    settle(self);
    Py_RETURN_NONE;
}

PyObject *tp_packer_last_step(StepPacker *self, void *unused) {
    (void)unused;
    if (self->offered != 0 && is_taken(self, self->offered)) {
        return PyLong_FromUnsignedLongLong(self->offered_step);
    }
    return self->any_step ? PyLong_FromUnsignedLongLong(self->last_step) : Py_NewRef(Py_None);
}
