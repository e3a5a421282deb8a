/* What came beside the tokens of an item: bytes to the stream's reader, an OutputAnnex back; and the
 * usage, of which some comes that way. */
#include "py/inbox_binding.h"

#include <stdlib.h>

/* The bytes are no annexes: its request ends here, whatever end it had. */
static PyObject *end_here(tp_py_stream *self, int *last) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *text = PyUnicode_FromFormat("annex: %S", value == NULL ? Py_None : value);
    Py_ssize_t size = 0;
    const char *words = text == NULL ? NULL : PyUnicode_AsUTF8AndSize(text, &size);
    PyErr_Clear();
    tp_stream *stream = &self->stream;
    tp_py_stream_leave(self);
    free(stream->error);
    stream->error = NULL;
    stream->error_len = 0;
    stream->finish = TP_FINISH_NONE;
    const tp_ending ending = {.finish = TP_FINISH_ERROR,
                              .error_code = TP_ERROR_INTERNAL,
                              .stop_reason = TP_NO_STOP,
                              .stop_string = TP_NO_STOP,
                              .error = (const uint8_t *)words,
                              .error_len = words == NULL ? 0 : (uint32_t)size};
    tp_stream_end(stream, &ending);
    Py_XDECREF(text);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    Py_CLEAR(self->annexes);
    self->over = 1; /* also for tokens that this item leaves */
    *last = 1;
    return Py_NewRef(Py_None);
}

PyObject *tp_item_annex(tp_py_stream *self, uint32_t count, int *last) {
    tp_stream *stream = &self->stream;
    const tp_waiting *waiting = stream->annex;
    tp_py_inbox *inbox = self->inbox;
    if (self->annexes == NULL) {
        if (inbox->annexes == Py_None) {
            tp_stream_took_annex(stream);
            return Py_NewRef(Py_None);
        }
        self->annexes = PyObject_CallFunction(inbox->annexes, "kO", (unsigned long)self->prompt_tokens,
                                              stream->kind == TP_DELTA ? Py_False : Py_True);
        if (self->annexes == NULL) {
            return NULL;
        }
    }
    PyObject *annex = PyObject_CallMethod(self->annexes, "take", "y#kkO",
                                          waiting->len == 0 ? "" : (const char *)waiting->bytes,
                                          (Py_ssize_t)waiting->len, (unsigned long)stream->offset,
                                          (unsigned long)stream->offset + count, *last ? Py_True : Py_False);
    if (annex == NULL && !PyErr_ExceptionMatches(tp_state_of_type(Py_TYPE(inbox))->frame_error)) {
        return NULL;
    }
    tp_stream_took_annex(stream);
    return annex == NULL ? end_here(self, last) : annex;
}

PyObject *tp_item_usage(tp_py_stream *self, uint32_t count) {
    const unsigned long tokens = (unsigned long)self->stream.offset + count;
    const unsigned long cached = self->stream.cached;
    PyObject *usage = self->inbox->items.usage;
    if (self->annexes == NULL) {
        return PyObject_CallFunction(usage, "kkk", (unsigned long)self->prompt_tokens, tokens, cached);
    }
    PyObject *more = PyObject_CallMethod(self->annexes, "usage", "kk", tokens, cached);
    PyObject *known, *reasoning, *made = NULL;
    if (more != NULL && PyArg_ParseTuple(more, "OO", &known, &reasoning)) {
        made = PyObject_CallFunction(usage, "kkOO", (unsigned long)self->prompt_tokens, tokens, known,
                                     reasoning);
    }
    Py_XDECREF(more);
    return made;
}
