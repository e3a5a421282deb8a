/* The type Table: makes, flushes and reads it. */
#include "py/table_binding.h"

#include "py/table_commands_binding.h"
#include "py/table_events_binding.h"
#include "py/table_feed_binding.h"
#include "py/table_object.h"
#include "py/table_saved_binding.h"
#include "py/vocab_binding.h"
#include "table/table.h"
#include "table/table_client.h"
#include "table/table_flush.h"

static PyObject *table_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"processor",  "ranks",       "slots", "vocab_size", "eos_token_ids",
                            "park_bytes", "merge_bytes", "vocab", NULL};
    uint32_t processor, slots;
    long long vocab_size;
    uint64_t park_bytes, merge_bytes;
    PyObject *ranks, *eos, *vocab = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&OO&LOO&O&|O:Table", names, tp_u32_arg, &processor,
                                     &ranks, tp_u32_arg, &slots, &vocab_size, &eos, tp_u64_arg, &park_bytes,
                                     tp_u64_arg, &merge_bytes, &vocab)) {
        return NULL;
    }
    if (slots < 1 || slots > 1u << TP_SLOT_BITS || vocab_size < 1 || vocab_size > (long long)INT32_MAX + 1) {
        return PyErr_Format(PyExc_ValueError, "%u slots, a vocabulary of %lld: out of range", slots,
                            vocab_size);
    }
    int32_t *rank_ids = NULL, *eos_ids = NULL;
    tp_table_config config = {.processor = processor,
                              .slots = slots,
                              .vocab_size = (uint32_t)vocab_size,
                              .park_limit = park_bytes,
                              .merge_limit = merge_bytes};
    Table *self = NULL;
    if (vocab != Py_None && (config.vocab = tp_py_vocab(vocab)) == NULL) {
        return NULL;
    }
    if (tp_ints(ranks, &rank_ids, &config.rank_count) == 0 &&
        tp_ints(eos, &eos_ids, &config.eos_count) == 0) {
        config.ranks = (const uint32_t *)rank_ids;
        config.eos = eos_ids;
        self = (Table *)PyType_GenericAlloc(type, 0);
    }
    if (self != NULL) {
        self->vocab = Py_NewRef(vocab);
        self->state = tp_state_of_type(type);
        if (self->state == NULL || tp_table_init(&self->table, &config) != TP_OK) {
            Py_CLEAR(self);
            PyErr_NoMemory();
        }
    }
    PyMem_Free(rank_ids);
    PyMem_Free(eos_ids);
    return (PyObject *)self;
}

static void table_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    tp_table_clear(tp_py_table(self));
    Py_XDECREF(((Table *)self)->vocab);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *table_flush(PyObject *self, PyObject *args) {
    Table *table = (Table *)self;
    uint32_t client;
    uint64_t max_bytes;
    int urgent_only;
    tp_lane_header lane;
    if (!PyArg_ParseTuple(args, "O&(O&O&O&O&)O&p:flush", tp_u32_arg, &client, tp_u64_arg, &lane.instance,
                          tp_u64_arg, &lane.sender, tp_u64_arg, &lane.receiver, tp_u64_arg, &lane.seq,
                          tp_u64_arg, &max_bytes, &urgent_only)) {
        return NULL;
    }
    tp_output_rows rows;
    tp_result result = tp_table_flush(&table->table, client, max_bytes, urgent_only, &rows);
    if (result != TP_OK) {
        return tp_raise(table->state, result, "OutputFrame");
    }
    if (rows.rows == 0 && table->table.event_count == 0) {
        Py_RETURN_NONE;
    }
    rows.lane = lane;
    PyObject *frame = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)tp_output_size(&rows));
    if (frame != NULL) {
        tp_output_write(&rows, (uint8_t *)PyBytes_AS_STRING(frame));
    }
    PyObject *events = frame == NULL ? NULL : tp_py_events(&table->table);
    PyObject *both = events == NULL ? NULL : PyTuple_Pack(2, frame, events);
    Py_XDECREF(frame);
    Py_XDECREF(events);
    if (both == NULL) {
        tp_table_keep_flush(&table->table, client, &rows);
    }
    return both;
}

static tp_client *client_arg(PyObject *self, PyObject *arg) {
    tp_table *t = tp_py_table(self);
    const unsigned long client = PyLong_AsUnsignedLong(arg);
    return PyErr_Occurred() || client >= t->client_count ? NULL : &t->clients[client];
}

static PyObject *table_dirty_clients(PyObject *self, PyObject *none) {
    (void)none;
    const tp_table *t = tp_py_table(self);
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < t->client_count; i++) {
        PyObject *index = tp_client_is_dirty(&t->clients[i]) ? PyLong_FromUnsignedLong(i) : NULL;
        if ((index == NULL && PyErr_Occurred()) || (index != NULL && PyList_Append(list, index) < 0)) {
            Py_CLEAR(list);
        }
        Py_XDECREF(index);
    }
    return list;
}

static PyObject *table_unsent_bytes(PyObject *self, PyObject *arg) {
    const tp_client *c = client_arg(self, arg);
    return PyErr_Occurred() ? NULL : PyLong_FromUnsignedLongLong(c == NULL ? 0 : tp_client_bytes(c));
}

static PyObject *table_urgent(PyObject *self, PyObject *arg) {
    const tp_client *c = client_arg(self, arg);
    return PyErr_Occurred() ? NULL : PyBool_FromLong(c != NULL && (c->urgent > 0 || c->kept.rows > 0));
}

static tp_rank *rank_arg(PyObject *self, PyObject *arg) {
    const unsigned long dp = PyLong_AsUnsignedLong(arg);
    tp_rank *rank = PyErr_Occurred() ? NULL : tp_table_rank(tp_py_table(self), (uint32_t)dp);
    if (rank == NULL && !PyErr_Occurred()) {
        PyErr_Format(PyExc_KeyError, "no rank %lu", dp);
    }
    return rank;
}

static PyObject *table_bindings(PyObject *self, PyObject *arg) {
    const tp_table *t = tp_py_table(self);
    const tp_rank *rank = rank_arg(self, arg);
    PyObject *list = rank == NULL ? NULL : PyList_New(0);
    for (uint32_t s = 0; list != NULL && s < t->slots; s++) {
        for (const tp_binding *b = rank->slots[s].newest; list != NULL && b != NULL; b = b->older) {
            PyObject *pair = Py_BuildValue("Li", (long long)b->handle, b->state);
            if (pair == NULL || PyList_Append(list, pair) < 0) {
                Py_CLEAR(list);
            }
            Py_XDECREF(pair);
        }
    }
    return list;
}

static PyObject *table_restart_steps(PyObject *self, PyObject *arg) {
    tp_rank *rank = rank_arg(self, arg);
    if (rank == NULL) {
        return NULL;
    }
    rank->any_step = 0;
    Py_RETURN_NONE;
}

static PyObject *table_counters(PyObject *self, PyObject *none) {
    (void)none;
    const tp_table *t = tp_py_table(self);
    const tp_table_counters *c = &t->counters;
    return Py_BuildValue("{s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:I,s:K,s:K,s:L,s:L,s:K}", "frames",
                         c->frames, "rows", c->rows, "tokens", c->tokens, "stale", c->stale, "overrun",
                         c->overrun, "repeated", c->repeated, "parked", c->parked, "park_lost", c->park_lost,
                         "bad_rows", c->bad_rows, "gaps", c->gaps, "bindings", t->live, "parked_bindings",
                         t->parked_now, "parked_bytes", t->park_used, "stale_handle", c->stale_handle,
                         "park_lost_handle", c->park_lost_handle, "clock_ahead", c->clock_ahead);
}

/* Calls a method, unless a method of the table runs: a decoder, a finalizer or another thread may call one in
 * the middle of another one, whose pointers into the table would then be wrong. */
static PyObject *guard(PyObject *self, PyObject *arg, PyCFunction method) {
    Table *table = (Table *)self;
    if (table->busy) {
        PyErr_SetString(PyExc_RuntimeError, "a method of this table runs: its decoder must not call another");
        return NULL;
    }
    table->busy = 1;
    PyObject *result = method(self, arg);
    table->busy = 0;
    return tp_py_vocab_check(table->vocab, result);
}

#define GUARDED(method) \
    static PyObject *guarded_##method(PyObject *self, PyObject *arg) { return guard(self, arg, method); }
GUARDED(tp_table_py_feed)
GUARDED(tp_table_py_feed_run)
GUARDED(table_flush)
GUARDED(table_dirty_clients)
GUARDED(table_unsent_bytes)
GUARDED(table_urgent)
GUARDED(table_bindings)
GUARDED(table_restart_steps)
GUARDED(table_counters)
GUARDED(tp_table_py_bind)
GUARDED(tp_table_py_state)
GUARDED(tp_table_py_set_state)
GUARDED(tp_table_py_finish)
GUARDED(tp_table_py_set_error)
GUARDED(tp_table_py_error_extras)
GUARDED(tp_table_py_hold)
GUARDED(tp_table_py_total)
GUARDED(tp_table_py_output)
GUARDED(tp_table_py_stop_string)
GUARDED(tp_table_py_text_tail)
GUARDED(tp_table_py_extras_offset)
GUARDED(tp_table_py_release)
GUARDED(tp_table_py_drop)
GUARDED(tp_table_py_floor)
GUARDED(tp_table_py_busy)
GUARDED(tp_table_py_raise_floor)
GUARDED(tp_table_py_lose_park)
GUARDED(tp_table_py_open_client)
GUARDED(tp_table_py_close_client)
GUARDED(tp_table_py_shed)
GUARDED(tp_table_py_save)
GUARDED(tp_table_py_load)
GUARDED(tp_table_py_reread)

static PyMethodDef methods[] = {
    {"feed", guarded_tp_table_py_feed, METH_VARARGS,
     "Apply a StepFrame of the rank (dp, tp); return its events."},
    {"feed_run", guarded_tp_table_py_feed_run, METH_VARARGS,
     "Apply frames of a rank's leader from an index on; return the next index, and events."},
    {"flush", guarded_table_flush, METH_VARARGS, "Return an OutputFrame of unsent output, and events."},
    {"dirty_clients", guarded_table_dirty_clients, METH_NOARGS, "Return the clients with unsent rows."},
    {"unsent_bytes", guarded_table_unsent_bytes, METH_O, "Return about how many bytes a client has unsent."},
    {"urgent", guarded_table_urgent, METH_O, "Return whether an outcome waits for unsent rows."},
    {"bindings", guarded_table_bindings, METH_O, "Return (handle, state) of each binding of a rank."},
    {"restart_steps", guarded_table_restart_steps, METH_O, "Forget the last step of a rank."},
    {"counters", guarded_table_counters, METH_NOARGS, "Return all counters."},
    {"bind", guarded_tp_table_py_bind, METH_VARARGS, "Bind a handle; return the events of parked rows."},
    {"state", guarded_tp_table_py_state, METH_O, "Return (state, drained) of a handle."},
    {"set_state", guarded_tp_table_py_set_state, METH_VARARGS, "Set the state of a bound handle."},
    {"finish", guarded_tp_table_py_finish, METH_VARARGS, "End a running binding's request."},
    {"set_error", guarded_tp_table_py_set_error, METH_VARARGS,
     "Set code, text and field of a failed request."},
    {"error_extras", guarded_tp_table_py_error_extras, METH_O,
     "Return the extras of the row that failed it."},
    {"hold", guarded_tp_table_py_hold, METH_O, "Ask for an event when all is sent; False: all is sent."},
    {"total", guarded_tp_table_py_total, METH_O, "Return how many output tokens the request has."},
    {"output", guarded_tp_table_py_output, METH_O, "Return the output tokens of a request that runs."},
    {"stop_string", guarded_tp_table_py_stop_string, METH_O, "Return which stop string ended it, or -1."},
    {"text_tail", guarded_tp_table_py_text_tail, METH_O,
     "Return the offset of the held text, and this text."},
    {"extras_offset", guarded_tp_table_py_extras_offset, METH_O, "Return how many bytes of extras it sends."},
    {"release", guarded_tp_table_py_release, METH_O,
     "Let output that waited for this time be sent; return the next time."},
    {"drop", guarded_tp_table_py_drop, METH_O, "Drop a binding; its unsent output is still flushed."},
    {"floor", guarded_tp_table_py_floor, METH_O, "Return the highest generation bound in a slot."},
    {"busy", guarded_tp_table_py_busy, METH_O, "Return whether a handle's slot has a running binding."},
    {"raise_floor", guarded_tp_table_py_raise_floor, METH_O, "Declare generations up to this one dead."},
    {"lose_park", guarded_tp_table_py_lose_park, METH_O, "Drop the parked rows of a handle."},
    {"open_client", guarded_tp_table_py_open_client, METH_O, "Collect output for a client."},
    {"close_client", guarded_tp_table_py_close_client, METH_O, "Drop a client's output; return events."},
    {"shed", guarded_tp_table_py_shed, METH_VARARGS, "End a client's requests with an error."},
    {"save", guarded_tp_table_py_save, METH_NOARGS, "Return all bindings as bytes."},
    {"load", guarded_tp_table_py_load, METH_O, "Take saved bindings; return the handles that need `reread`."},
    {"reread", guarded_tp_table_py_reread, METH_VARARGS, "Give a loaded binding the options of its text."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "Every live binding of some DP ranks, fed by frames and flushed by client."},
    {Py_tp_new, (void *)table_new},
    {Py_tp_dealloc, (void *)table_dealloc},
    {Py_tp_methods, methods},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "tokenpipe._core.Table",
    .basicsize = sizeof(Table),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = slots,
};

int tp_init_table(PyObject *module) { return tp_add_type(module, &spec); }
