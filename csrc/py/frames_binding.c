/* Packs and unpacks frames. In Python, the header is a tuple of ints, and the columns are a dict of bytes by
 * id. */
#include "py/frames_binding.h"

#include "py/str_binding.h"
#include "wire/columns.h"
#include "wire/envelope.h"
#include "wire/output.h"
#include "wire/step.h"

/* The differences between the two kinds of frames with columns. */
typedef struct {
    uint32_t kind, fields, last;
    const char *name;
} shape;

static const shape step_shape = {TP_KIND_STEP, TP_STEP_FIELDS, TP_STEP_LAST, "StepFrame"};
static const shape output_shape = {TP_KIND_OUTPUT, TP_OUT_FIELDS, TP_OUT_LAST, "OutputFrame"};

static tp_result check(const shape *of, const uint8_t *data, size_t size) {
    if (of->kind == TP_KIND_STEP) {
        tp_step_view view;
        return tp_step_parse(data, size, &view);
    }
    tp_output_view view;
    return tp_output_parse(data, size, &view);
}

static PyObject *core_peek(PyObject *module, PyObject *frame) {
    Py_buffer buffer;
    if (PyObject_GetBuffer(frame, &buffer, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    uint32_t kind;
    tp_lane_header lane;
    tp_result result = tp_frame_peek(buffer.buf, (size_t)buffer.len, &kind, &lane);
    PyBuffer_Release(&buffer);
    if (result != TP_OK) {
        return tp_raise(tp_state_of(module), result, "frame");
    }
    return Py_BuildValue("IKKKK", (unsigned int)kind, (unsigned long long)lane.instance,
                         (unsigned long long)lane.sender, (unsigned long long)lane.receiver,
                         (unsigned long long)lane.seq);
}

static PyObject *core_check_value(PyObject *module, PyObject *args) {
    Py_buffer buffer;
    uint32_t max_depth;
    if (!PyArg_ParseTuple(args, "y*O&:check_value", &buffer, tp_u32_arg, &max_depth)) {
        return NULL;
    }
    tp_result result = tp_value_check(buffer.buf, (size_t)buffer.len, max_depth);
    PyBuffer_Release(&buffer);
    if (result != TP_OK) {
        return tp_raise(tp_state_of(module), result, "value");
    }
    Py_RETURN_NONE;
}

static PyObject *header_tuple(const uint64_t *header, uint32_t fields) {
    PyObject *ints = PyTuple_New(fields);
    for (uint32_t i = 0; ints != NULL && i < fields; i++) {
        PyObject *value = PyLong_FromUnsignedLongLong(header[i]);
        if (value == NULL) {
            Py_CLEAR(ints);
        } else {
            PyTuple_SET_ITEM(ints, i, value);
        }
    }
    return ints;
}

static PyObject *column_dict(const tp_column *columns, uint32_t last) {
    PyObject *dict = PyDict_New();
    for (uint32_t id = 1; dict != NULL && id <= last; id++) {
        if (columns[id].data == NULL) {
            continue;
        }
        PyObject *key = PyLong_FromUnsignedLong(id);
        PyObject *bytes =
            PyBytes_FromStringAndSize((const char *)columns[id].data, (Py_ssize_t)columns[id].size);
        if (key == NULL || bytes == NULL || PyDict_SetItem(dict, key, bytes) < 0) {
            Py_CLEAR(dict);
        }
        Py_XDECREF(key);
        Py_XDECREF(bytes);
    }
    return dict;
}

static PyObject *unpack(PyObject *module, PyObject *object, const shape *of) {
    uint64_t header[TP_STEP_FIELDS];
    tp_column columns[TP_OUT_LAST + 1];
    PyObject *frame = tp_frame(object), *value = NULL;
    if (frame == NULL) {
        return NULL;
    }
    const uint8_t *data = tp_bytes_of(frame);
    const size_t size = (size_t)PyBytes_GET_SIZE(frame);
    tp_result result = check(of, data, size);
    if (result == TP_OK) { /* a second parse costs 0.1 us, and saves a second list of the columns here */
        result = tp_columns_read(data, size, of->kind, header, of->fields, columns, of->last);
    }
    if (result == TP_OK) {
        PyObject *ints = header_tuple(header, of->fields);
        PyObject *dict = ints == NULL ? NULL : column_dict(columns, of->last);
        value = dict == NULL ? NULL : PyTuple_Pack(2, ints, dict);
        Py_XDECREF(ints);
        Py_XDECREF(dict);
    } else {
        tp_raise(tp_state_of(module), result, of->name);
    }
    Py_DECREF(frame);
    return value;
}

/* Fills parts with the dict's buffers in order of id; *held is the number of buffers to release. */
static int gather(PyObject *columns, const shape *of, tp_part *parts, Py_buffer *buffers, uint32_t *held) {
    Py_ssize_t found = 0;
    for (uint32_t id = 1; id <= of->last; id++) {
        PyObject *key = PyLong_FromUnsignedLong(id);
        PyObject *column = key == NULL ? NULL : PyDict_GetItemWithError(columns, key);
        Py_XINCREF(column); /* a buffer may run Python code, which may change the dict */
        Py_XDECREF(key);
        if (column == NULL) {
            if (PyErr_Occurred()) {
                return -1;
            }
            continue;
        }
        found++;
        Py_buffer *buffer = &buffers[*held];
        const int bad = PyObject_GetBuffer(column, buffer, PyBUF_C_CONTIGUOUS);
        Py_DECREF(column);
        if (bad) {
            return -1;
        }
        parts[*held] = (tp_part){id, buffer->buf, (size_t)buffer->len};
        (*held)++;
        if (buffer->len > (Py_ssize_t)UINT32_MAX) {
            PyErr_Format(PyExc_ValueError, "column %u does not fit a frame", id);
            return -1;
        }
    }
    if (found != PyDict_Size(columns)) {
        PyErr_Format(PyExc_ValueError, "a key is not a column id of a %s", of->name);
        return -1;
    }
    return 0;
}

static PyObject *pack(PyObject *module, PyObject *args, const shape *of) {
    PyObject *ints, *columns, *frame = NULL;
    uint64_t header[TP_STEP_FIELDS];
    Py_buffer buffers[TP_OUT_LAST];
    tp_part parts[TP_OUT_LAST];
    uint32_t held = 0;
    if (!PyArg_ParseTuple(args, "O!O!:pack", &PyTuple_Type, &ints, &PyDict_Type, &columns)) {
        return NULL;
    }
    if (PyTuple_GET_SIZE(ints) != (Py_ssize_t)of->fields) {
        return PyErr_Format(PyExc_ValueError, "the header of a %s has %u integers", of->name, of->fields);
    }
    for (uint32_t i = 0; i < of->fields; i++) {
        header[i] = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(ints, i));
        if (header[i] == (uint64_t)-1 && PyErr_Occurred()) {
            return NULL;
        }
    }
    if (gather(columns, of, parts, buffers, &held) == 0) {
        const size_t size = tp_columns_size(header, of->fields, parts, held);
        frame = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    }
    if (frame != NULL) {
        uint8_t *out = (uint8_t *)PyBytes_AS_STRING(frame);
        const size_t size = tp_columns_write(of->kind, header, of->fields, parts, held, out);
        tp_result result = check(of, out, size); /* a frame that cannot be read must not be written */
        if (result != TP_OK) {
            Py_CLEAR(frame);
            tp_raise(tp_state_of(module), result, of->name);
        }
    }
    for (uint32_t i = 0; i < held; i++) {
        PyBuffer_Release(&buffers[i]);
    }
    return frame;
}

static PyObject *core_unpack_step(PyObject *module, PyObject *frame) {
    return unpack(module, frame, &step_shape);
}

static PyObject *core_unpack_output(PyObject *module, PyObject *frame) {
    return unpack(module, frame, &output_shape);
}

static PyObject *core_pack_step(PyObject *module, PyObject *args) { return pack(module, args, &step_shape); }

static PyObject *core_pack_output(PyObject *module, PyObject *args) {
    return pack(module, args, &output_shape);
}

/* split_text(lengths, width, text): one str for each row, "" if its length is 0. */
static PyObject *core_split_text(PyObject *module, PyObject *args) {
    (void)module;
    Py_buffer lengths, text;
    uint32_t width;
    if (!PyArg_ParseTuple(args, "y*O&y*:split_text", &lengths, tp_u32_arg, &width, &text)) {
        return NULL;
    }
    const Py_ssize_t n = width == 2 || width == 4 ? lengths.len / (Py_ssize_t)width : 0;
    PyObject *list = PyList_New(n);
    size_t at = 0;
    for (Py_ssize_t i = 0; list != NULL && i < n; i++) {
        const uint8_t *length = (const uint8_t *)lengths.buf + (size_t)i * width;
        size_t size = width == 2 ? tp_load_u16(length) : tp_load_u32(length);
        if (size > (size_t)text.len - at) { /* never true for a parsed frame */
            size = (size_t)text.len - at;
        }
        PyObject *row = tp_py_str((const uint8_t *)text.buf + at, size);
        if (row == NULL) {
            Py_CLEAR(list);
        } else {
            PyList_SET_ITEM(list, i, row);
        }
        at += size;
    }
    PyBuffer_Release(&lengths);
    PyBuffer_Release(&text);
    return list;
}

static PyMethodDef functions[] = {
    {"peek", core_peek, METH_O, "Return kind, instance, sender, receiver and seq of a frame."},
    {"check_value", core_check_value, METH_VARARGS,
     "Raise FrameError unless the bytes are one MessagePack value no deeper than max_depth."},
    {"unpack_step", core_unpack_step, METH_O, "Return header and columns of a StepFrame."},
    {"unpack_output", core_unpack_output, METH_O, "Return header and columns of an OutputFrame."},
    {"pack_step", core_pack_step, METH_VARARGS, "Return the StepFrame of a header and columns."},
    {"pack_output", core_pack_output, METH_VARARGS, "Return the OutputFrame of a header and columns."},
    {"split_text", core_split_text, METH_VARARGS, "Return the str of each row of a text column."},
    {NULL, NULL, 0, NULL},
};

int tp_init_frames(PyObject *module) { return PyModule_AddFunctions(module, functions); }
