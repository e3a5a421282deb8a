/* Makes a RequestOutput of what waits in a stream.
 *
 * The slots are filled in place: calling the dataclass costs more than everything else an item
 * needs. tp_items_init refuses classes that are not laid out as this file believes. */
#include "py/inbox_binding.h"
#include "py/str_binding.h"

#include <math.h>
#include <structmember.h>

enum {
    REQUEST_ID,
    INDEX,
    OFFSET,
    TOKEN_IDS,
    FINISH_REASON,
    STOP_REASON,
    ERROR,
    ERROR_CODE,
    ERROR_FIELD,
    LOGPROBS,
    USAGE,
    TEXT,
    ANNEX
};
enum { LP_TOKEN_IDS, LP_VALUES, LP_RANK };

static const char *const output_fields[TP_OUTPUT_FIELDS] = {
    "request_id", "index",       "offset",   "token_ids", "finish_reason", "stop_reason", "error",
    "error_code", "error_field", "logprobs", "usage",     "text",          "annex",
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
        PyErr_Format(PyExc_TypeError, "%s has other slots than expected", as_type->tp_name);
        return -1;
    }
    return 0;
}

/* The members of ErrorCode, each at its value. */
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

static inline void put(PyObject *object, Py_ssize_t at, PyObject *value) {
    *(PyObject **)((char *)object + at) = value; /* fresh slots are NULL; takes the reference */
}

/* One TokenLogprobs of 1 + k entries. */
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
    put(made, items->logprobs_at[LP_TOKEN_IDS], id_tuple);
    put(made, items->logprobs_at[LP_VALUES], value_tuple);
    put(made, items->logprobs_at[LP_RANK], rank_object);
    return made;
fail:
    Py_XDECREF(made);
    Py_XDECREF(id_tuple);
    Py_XDECREF(value_tuple);
    Py_XDECREF(rank_object);
    return NULL;
}

/* One entry a token, an empty one for a token without, or None where no token has any. */
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

/* The stop string or token that ended it, or None. */
static PyObject *stop_reason(const tp_py_stream *self) {
    const tp_stream *stream = &self->stream;
    if (stream->stop_string >= 0 && self->stops != NULL &&
        stream->stop_string < PyTuple_GET_SIZE(self->stops)) {
        return Py_NewRef(PyTuple_GET_ITEM(self->stops, stream->stop_string));
    }
    return stream->stop_reason >= 0 ? PyLong_FromLong(stream->stop_reason) : Py_NewRef(Py_None);
}

/* The text of a last item's error, or its field, None where there is none. */
static PyObject *error_text(const tp_stream *stream, int last) {
    if (!last || stream->error == NULL) {
        return Py_NewRef(Py_None);
    }
    return PyUnicode_DecodeUTF8(stream->error, (Py_ssize_t)stream->error_len - stream->error_field,
                                "replace");
}

static PyObject *error_field(const tp_stream *stream, int last) {
    if (!last || stream->error_field == 0) {
        return Py_NewRef(Py_None);
    }
    return PyUnicode_DecodeUTF8(stream->error + stream->error_len - stream->error_field, stream->error_field,
                                "replace");
}

PyObject *tp_item_take(tp_py_stream *self, uint32_t limit) {
    tp_stream *stream = &self->stream;
    const tp_items *items = &self->inbox->items;
    if (!tp_stream_ready(stream)) {
        return NULL;
    }
    const int part = limit > 0 && stream->len > limit && stream->kind == TP_DELTA;
    uint32_t count = part ? limit : stream->len;
    uint32_t entries = 0;
    int last = count == stream->len && stream->finish != TP_FINISH_NONE;
    PyObject *annex = stream->annex == NULL ? Py_NewRef(Py_None) : tp_item_annex(self, count, &last);
    if (annex == NULL) {
        return NULL;
    }
    PyObject *made = items->output->tp_alloc(items->output, 0);
    PyObject *offset = PyLong_FromUnsignedLong(stream->offset);
    PyObject *tokens = token_list(stream, count);
    PyObject *logprobs = all_logprobs(items, stream, count, &entries);
    PyObject *stop = last ? stop_reason(self) : Py_NewRef(Py_None);
    PyObject *text =
        stream->text_len == 0 ? Py_NewRef(items->no_text) : tp_py_str(stream->text, stream->text_len);
    PyObject *error = error_text(stream, last);
    PyObject *field = error_field(stream, last);
    PyObject *usage = last ? tp_item_usage(self, count) : Py_NewRef(Py_None);
    if (made == NULL || offset == NULL || tokens == NULL || logprobs == NULL || stop == NULL ||
        error == NULL || field == NULL || usage == NULL || text == NULL) {
        Py_DECREF(annex);
        Py_XDECREF(made);
        Py_XDECREF(offset);
        Py_XDECREF(tokens);
        Py_XDECREF(logprobs);
        Py_XDECREF(stop);
        Py_XDECREF(error);
        Py_XDECREF(field);
        Py_XDECREF(usage);
        Py_XDECREF(text);
        return NULL;
    }
    PyObject *reason = PyTuple_GET_ITEM(items->finish_codes, last ? stream->finish : TP_FINISH_NONE);
    PyObject *code = PyTuple_GET_ITEM(items->error_codes, last ? stream->error_code : TP_ERROR_NONE);
    put(made, items->output_at[REQUEST_ID], Py_NewRef(self->request_id));
    put(made, items->output_at[INDEX], Py_NewRef(self->index));
    put(made, items->output_at[OFFSET], offset);
    put(made, items->output_at[TOKEN_IDS], tokens);
    put(made, items->output_at[FINISH_REASON], Py_NewRef(reason));
    put(made, items->output_at[STOP_REASON], stop);
    put(made, items->output_at[ERROR], error);
    put(made, items->output_at[ERROR_CODE], Py_NewRef(code));
    put(made, items->output_at[ERROR_FIELD], field);
    put(made, items->output_at[LOGPROBS], logprobs);
    put(made, items->output_at[USAGE], usage);
    put(made, items->output_at[TEXT], text);
    put(made, items->output_at[ANNEX], annex);
    tp_stream_took(stream, count, entries);
    if (last) {
        stream->told = 1;
    }
    return made;
}
