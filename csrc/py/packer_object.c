/* The functions that the methods of StepPacker share. */
#include "py/packer_object.h"

PyObject *tp_py_step_frame(const tp_step_rows *rows) {
    PyObject *frame = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)tp_step_size(rows));
    if (frame != NULL) {
        tp_step_write(rows, (uint8_t *)PyBytes_AS_STRING(frame));
    }
    return frame;
}
