/* Makes a RequestOutput from the output that waits in a stream. */
#include "py/item_binding.h"

#include "py/item_extras_binding.h"
#include "py/items_binding.h"
#include "py/str_binding.h"

#include <math.h>

/* Makes a TokenLogprobs of 1 + k entries. */
static PyObject *token_logprobs(const tp_items *items, const int32_t *ids, const float *values,
                                int32_t entries, int32_t rank) {
    PyObject *made = items->logprobs->tp_alloc(items->logprobs, 0);
    PyObject *id_tuple = PyTuple_New(entries), *value_tuple = PyTuple_New(entries);
    PyObject *rank_object = PyLong_FromLong(rank);
    if (made == NULL || id_tuple == NULL || value_tuple == NULL || rank_object == NULL) {
        goto fail;
    }
    for (int32_t i = 0; i < entries; i++) {
        PyObject *id = PyLong_FromLong(ids[i]);
        PyObject *value = isnan(values[i]) ? Py_NewRef(Py_None) : PyFloat_FromDouble(values[i]);
        if (id == NULL || value == NULL) {
            Py_XDECREF(id);
            Py_XDECREF(value);
            goto fail;
        }
        PyTuple_SET_ITEM(id_tuple, i, id);
        PyTuple_SET_ITEM(value_tuple, i, value);
    }
    tp_put(made, items->logprobs_at[TP_LP_TOKEN_IDS], id_tuple);
    tp_put(made, items->logprobs_at[TP_LP_LOGPROBS], value_tuple);
    tp_put(made, items->logprobs_at[TP_LP_RANK], rank_object);
    return made;
fail:
    Py_XDECREF(made);
    Py_XDECREF(id_tuple);
    Py_XDECREF(value_tuple);
    Py_XDECREF(rank_object);
    return NULL;
}

/* Makes the logprobs of `count` tokens: one entry for each token. The entry is empty if the token has no
 * logprobs. Returns None if no token has logprobs. */
static PyObject *all_logprobs(const tp_items *items, const tp_stream *stream, uint32_t count,
                              uint32_t *entries_taken) {
    *entries_taken = 0;
    if (stream->lp_k == NULL || count == 0) {
        return Py_NewRef(Py_None);
    }
    PyObject *list = PyList_New(count);
    uint32_t at = stream->lp_head;
    for (uint32_t i = 0; list != NULL && i < count; i++) {
        int32_t k = stream->lp_k[stream->head + i];
        PyObject *entry = k < 0 ? Py_NewRef(items->no_logprobs)
                                : token_logprobs(items, stream->lp_ids + at, stream->lp_values + at, k + 1,
                                                 stream->lp_ranks[stream->head + i]);
        if (entry == NULL) {
            Py_CLEAR(list);
            break;
        }
        PyList_SET_ITEM(list, i, entry);
        at += (uint32_t)(k + 1);
    }
    *entries_taken = at - stream->lp_head;
    if (list != NULL && at == stream->lp_head) {
        Py_SETREF(list, Py_NewRef(Py_None));
    }
    return list;
}

static PyObject *token_list(const tp_stream *stream, uint32_t count) {
    PyObject *list = PyList_New(count);
    for (uint32_t i = 0; list != NULL && i < count; i++) {
        PyObject *token = PyLong_FromLong(stream->tokens[stream->head + i]);
        if (token == NULL) {
            Py_CLEAR(list);
            break;
        }
        PyList_SET_ITEM(list, i, token);
    }
    return list;
}

/* Returns the stop string or the token that ended the request, or None. */
static PyObject *stop_reason(const Stream *self) {
    const tp_stream *stream = &self->stream;
    if (stream->stop_string >= 0 && self->stops != NULL &&
        stream->stop_string < PyTuple_GET_SIZE(self->stops)) {
        return Py_NewRef(PyTuple_GET_ITEM(self->stops, stream->stop_string));
    }
    return stream->stop_reason >= 0 ? PyLong_FromLong(stream->stop_reason) : Py_NewRef(Py_None);
}

/* Returns a part of the error of a last item. None: this part is empty. */
static PyObject *part_of_error(const tp_stream *stream, int last, uint32_t from, uint32_t size) {
    if (!last || size == 0) {
        return Py_NewRef(Py_None);
    }
    return PyUnicode_DecodeUTF8(stream->error + from, (Py_ssize_t)size, "replace");
}

/* Fills a slot of a new item. 0: there is no value, but an exception. */
static inline int fill(PyObject *made, const tp_items *items, enum tp_output_field field, PyObject *value) {
    tp_put(made, items->output_at[field], value);
    return value != NULL;
}

/* Fills the slots whose values need no Python code. Returns whether all have a value. */
static int fill_slots(const Stream *self, PyObject *made, uint32_t count, int last, uint32_t *entries) {
    const tp_stream *stream = &self->stream;
    const tp_items *items = &self->inbox->items;
    const uint32_t error_size = stream->error_len - stream->error_field;
    PyObject *finish = PyTuple_GET_ITEM(items->finish_codes, last ? stream->finish : TP_FINISH_NONE);
    PyObject *code = PyTuple_GET_ITEM(items->error_codes, last ? stream->error_code : TP_ERROR_NONE);
    PyObject *text =
        stream->text.len == 0 ? Py_NewRef(items->no_text) : tp_py_str(stream->text.bytes, stream->text.len);
    int good = fill(made, items, TP_TEXT, text);
    good &= fill(made, items, TP_REQUEST_ID, Py_NewRef(self->request_id));
    good &= fill(made, items, TP_INDEX, Py_NewRef(self->index));
    good &= fill(made, items, TP_OFFSET, PyLong_FromUnsignedLong(stream->offset));
    good &= fill(made, items, TP_TOKEN_IDS, token_list(stream, count));
    good &= fill(made, items, TP_FINISH_REASON, Py_NewRef(finish));
    good &= fill(made, items, TP_STOP_REASON, last ? stop_reason(self) : Py_NewRef(Py_None));
    good &= fill(made, items, TP_ERROR, part_of_error(stream, last, 0, error_size));
    good &= fill(made, items, TP_ERROR_CODE, Py_NewRef(code));
    good &= fill(made, items, TP_ERROR_FIELD, part_of_error(stream, last, error_size, stream->error_field));
    good &= fill(made, items, TP_LOGPROBS, all_logprobs(items, stream, count, entries));
    return good;
}

/* Makes the item that a consumer takes now. `extras` and `usage` are references that the item takes. */
static PyObject *make_item(Stream *self, uint32_t count, int last, PyObject *extras, PyObject *usage) {
    const tp_items *items = &self->inbox->items;
    uint32_t entries = 0;
    PyObject *made = items->output->tp_alloc(items->output, 0);
    if (made == NULL) {
        Py_DECREF(extras);
        Py_DECREF(usage);
        return NULL;
    }
    (void)fill(made, items, TP_OUTPUT_EXTRAS, extras);
    (void)fill(made, items, TP_USAGE, usage);
    if (!fill_slots(self, made, count, last, &entries)) {
        Py_DECREF(made);
        return NULL;
    }
    tp_stream_took(&self->stream, count, entries);
    self->stream.told |= (uint8_t)last;
    return made;
}

/* Takes the output that waits. NULL without an exception: nothing waits. */
static PyObject *take(Stream *self, uint32_t limit) {
    tp_stream *stream = &self->stream;
    if (!tp_stream_ready(stream)) {
        return NULL;
    }
    const int part = limit > 0 && stream->len > limit && stream->kind == TP_DELTA;
    const uint32_t count = part ? limit : stream->len, offset = stream->offset;
    int last = count == stream->len && stream->finish != TP_FINISH_NONE;
    /* These two may run Python code, even code that drops the stream or takes from it. So they come first,
     * and the stream is checked after them. holds count: stream->len is
     * compared with it. holds last: tp_item_extras sets it.
     */
    PyObject *extras = stream->extras == NULL ? Py_NewRef(Py_None) : tp_item_extras(self, count, &last);
    PyObject *usage = extras == NULL ? NULL : last ? tp_item_usage(self, count) : Py_NewRef(Py_None);
    if (usage == NULL || self->dropped || stream->told || stream->offset != offset || stream->len < count) {
        Py_XDECREF(extras);
        Py_XDECREF(usage);
        return NULL;
    }
    const int collects = PyGC_Disable(); /* before Python 3.12, a new object may run a finalizer */
    PyObject *item = make_item(self, count, last, extras, usage);
    if (collects) {
        PyGC_Enable();
    }
    return item;
}

PyObject *tp_item_next(Stream *self, uint32_t limit) {
    PyObject *item = self->over ? NULL : take(self, limit);
    if (item == NULL && !PyErr_Occurred() && self->exception != NULL) {
        PyObject *exception = self->exception; /* holds exception: it is owned here from now on */
        self->exception = NULL;
        self->over = 1;
        PyErr_SetObject((PyObject *)Py_TYPE(exception), exception);
        Py_DECREF(exception);
    }
    return item;
}
