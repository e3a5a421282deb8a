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

/* Makes the fields that need no Python code. Each may be NULL with an exception. */
static void make_fields(const Stream *self, uint32_t count, int last, PyObject **fields, uint32_t *entries) {
    const tp_stream *stream = &self->stream;
    const tp_items *items = &self->inbox->items;
    const uint32_t error_size = stream->error_len - stream->error_field;
    fields[TP_REQUEST_ID] = Py_NewRef(self->request_id);
    fields[TP_INDEX] = Py_NewRef(self->index);
    fields[TP_OFFSET] = PyLong_FromUnsignedLong(stream->offset);
    fields[TP_TOKEN_IDS] = token_list(stream, count);
    fields[TP_FINISH_REASON] =
        Py_NewRef(PyTuple_GET_ITEM(items->finish_codes, last ? stream->finish : TP_FINISH_NONE));
    fields[TP_STOP_REASON] = last ? stop_reason(self) : Py_NewRef(Py_None);
    fields[TP_ERROR] = part_of_error(stream, last, 0, error_size);
    fields[TP_ERROR_FIELD] = part_of_error(stream, last, error_size, stream->error_field);
    fields[TP_ERROR_CODE] =
        Py_NewRef(PyTuple_GET_ITEM(items->error_codes, last ? stream->error_code : TP_ERROR_NONE));
    fields[TP_LOGPROBS] = all_logprobs(items, stream, count, entries);
    fields[TP_TEXT] =
        stream->text.len == 0 ? Py_NewRef(items->no_text) : tp_py_str(stream->text.bytes, stream->text.len);
}

/* Makes an object of the fields, and takes their references. NULL: one of them is NULL, or there is no
 * memory. */
static PyObject *make_item(const tp_items *items, PyObject **fields) {
    PyObject *made = items->output->tp_alloc(items->output, 0);
    int good = made != NULL;
    for (int i = 0; i < TP_OUTPUT_FIELDS; i++) {
        good = good && fields[i] != NULL;
    }
    for (int i = 0; i < TP_OUTPUT_FIELDS; i++) {
        if (good) {
            tp_put(made, items->output_at[i], fields[i]);
        } else {
            Py_XDECREF(fields[i]);
        }
    }
    if (!good) {
        Py_CLEAR(made);
    }
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
    uint32_t entries = 0;
    int last = count == stream->len && stream->finish != TP_FINISH_NONE;
    PyObject *fields[TP_OUTPUT_FIELDS] = {NULL};
    /* These two may run Python code that drops the stream or takes from it. So they come first. */
    fields[TP_OUTPUT_EXTRAS] = tp_item_extras(self, count, &last);
    if (fields[TP_OUTPUT_EXTRAS] != NULL) {
        fields[TP_USAGE] = last ? tp_item_usage(self, count) : Py_NewRef(Py_None);
    }
    if (fields[TP_USAGE] == NULL || stream->told || stream->offset != offset || stream->len < count) {
        Py_XDECREF(fields[TP_OUTPUT_EXTRAS]);
        Py_XDECREF(fields[TP_USAGE]);
        return NULL;
    }
    make_fields(self, count, last, fields, &entries);
    PyObject *made = make_item(&self->inbox->items, fields);
    if (made != NULL) {
        tp_stream_took(stream, count, entries);
        stream->told |= (uint8_t)last;
    }
    return made;
}

PyObject *tp_item_next(Stream *self, uint32_t limit) {
    PyObject *item = self->over ? NULL : take(self, limit);
    if (item == NULL && !PyErr_Occurred() && self->exception != NULL) {
        PyObject *exception = self->exception;
        self->exception = NULL;
        self->over = 1;
        PyErr_SetObject((PyObject *)Py_TYPE(exception), exception);
        Py_DECREF(exception);
    }
    return item;
}
