/* Gives the extras of a stream to its reader. */
#include "py/item_extras_binding.h"

#include "py/stream_park_binding.h"

#include <stdlib.h>

/* Ends the request with an error, and replaces any other end. A text that is NULL is left out. */
static void end_with(Stream *self, PyObject *text) {
    tp_stream *stream = &self->stream;
    Py_ssize_t size = 0;
    const char *words = text == NULL ? NULL : PyUnicode_AsUTF8AndSize(text, &size);
    PyErr_Clear();
    tp_stream_leave(self); /* holds words: they belong to `text`, which is freed below */
    free(stream->error);
    stream->error = NULL;
    stream->error_len = 0;
    stream->error_field = 0;
    stream->finish = TP_FINISH_NONE;
    const tp_ending ending = {.finish = TP_FINISH_ERROR,
                              .error_code = TP_ERROR_INTERNAL,
                              .stop_reason = TP_NO_STOP,
                              .stop_string = TP_NO_STOP,
                              .error = (const uint8_t *)words,
                              .error_len = words == NULL ? 0 : (uint32_t)size};
    tp_stream_end(stream, &ending);
    Py_XDECREF(text);
    Py_CLEAR(self->reader);
}

/* The reader raised. If the extras are malformed, this item ends the request, and the exception is cleared.
 * After any other exception, nobody knows which bytes the reader has read. Then the next item ends the
 * request, and the exception stays set.
 */
static PyObject *end_after(Stream *self, int *last) {
    const int malformed = PyErr_ExceptionMatches(self->inbox->state->frame_error);
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    end_with(self, malformed ? PyUnicode_FromFormat("extras: %S", value == NULL ? Py_None : value)
                             : PyUnicode_FromFormat("extras: %s", ((PyTypeObject *)type)->tp_name));
    if (!malformed) {
        PyErr_Restore(type, value, traceback);
        return NULL;
    }
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    self->over = 1; /* even if tokens are left */
    *last = 1;
    return Py_NewRef(Py_None);
}

/* Makes the reader of a stream. 0, or -1 with an exception. */
static int make_reader(Stream *self) {
    PyObject *keep = self->stream.kind == TP_DELTA ? Py_False : Py_True;
    PyObject *reader =
        PyObject_CallFunction(self->inbox->make_reader, "kO", (unsigned long)self->prompt_tokens, keep);
    if (reader == NULL) {
        return -1;
    }
    Py_XSETREF(self->reader, reader);
    return 0;
}

/* Takes the bytes out of the stream before Python code runs. This code may drop the stream. If it raises, the
 * bytes must not be read twice. NULL with an exception. */
static PyObject *take_bytes(tp_stream *stream) {
    const tp_waiting *waiting = stream->extras;
    PyObject *bytes = PyBytes_FromStringAndSize((const char *)waiting->bytes, (Py_ssize_t)waiting->len);
    if (bytes != NULL) {
        tp_stream_took_extras(stream);
    }
    return bytes;
}

PyObject *tp_item_extras(Stream *self, uint32_t count, int *last) {
    tp_stream *stream = &self->stream;
    const unsigned long begin = stream->offset;
    if (self->inbox->make_reader == Py_None) {
        tp_stream_took_extras(stream);
        return Py_NewRef(Py_None);
    }
    if (self->reader == NULL && make_reader(self) < 0) {
        return NULL;
    }
    PyObject *bytes = stream->extras == NULL ? NULL : take_bytes(stream);
    if (bytes == NULL) { /* no memory, or the reader's maker dropped the stream */
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    }
    PyObject *reader = Py_NewRef(self->reader);
    PyObject *extras =
        PyObject_CallMethod(reader, "take", "OkkO", bytes, begin, begin + count, *last ? Py_True : Py_False);
    Py_DECREF(reader);
    Py_DECREF(bytes);
    return extras == NULL ? end_after(self, last) : extras;
}

/* Makes a Usage from the counts that the reader knows. */
static PyObject *usage_of_reader(Stream *self, unsigned long tokens, unsigned long cached) {
    PyObject *reader = Py_NewRef(self->reader);
    PyObject *more = PyObject_CallMethod(reader, "usage", "kk", tokens, cached);
    PyObject *known, *reasoning, *made = NULL;
    if (more != NULL && PyArg_ParseTuple(more, "OO", &known, &reasoning)) {
        made = PyObject_CallFunction(self->inbox->items.usage, "kkOO", (unsigned long)self->prompt_tokens,
                                     tokens, known, reasoning);
    }
    Py_XDECREF(more);
    Py_DECREF(reader);
    return made;
}

PyObject *tp_item_usage(Stream *self, uint32_t count) {
    const unsigned long tokens = (unsigned long)self->stream.offset + count;
    const unsigned long cached = self->stream.cached;
    if (self->reader != NULL) {
        return usage_of_reader(self, tokens, cached);
    }
    return PyObject_CallFunction(self->inbox->items.usage, "kkk", (unsigned long)self->prompt_tokens, tokens,
                                 cached);
}
