/* Looks at a framework's tensor through the table of C functions that its type carries. The same by
 * __dlpack__ or Paddle's numpy() makes a capsule or an array, which with cold caches costs ten times
 * as much as packing what is in it. */
#include "py/dlpack_binding.h"

#define MAJOR     1 /* the table's beginning is the same in all versions of one */
#define CAPSULE   "dlpack_exchange_api"
#define ATTRIBUTE "__dlpack_c_exchange_api__"

/* As dlpack.h has them; functions that are not called here have no type. */
enum { ON_CPU = 1, INT = 0 };

typedef struct tensor {
    void *data;
    int32_t device_type, device_id, ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides; /* strides in elements, NULL where it is contiguous */
    uint64_t byte_offset;
} tensor;

typedef struct exchange {
    uint32_t major, minor;
    const void *older;
    void (*allocate)(void), (*give)(void), (*take)(void);
    int (*look)(void *object, tensor *out); /* 0, or -1 with an exception; NULL: cannot */
    void (*stream)(void);
} exchange;

/* The table of a type, which lives as long as the process does; NULL where it has none of ours. */
static const exchange *table_of(PyTypeObject *type) {
    PyObject *capsule = PyObject_GetAttrString((PyObject *)type, ATTRIBUTE);
    const exchange *table = capsule == NULL ? NULL : PyCapsule_GetPointer(capsule, CAPSULE);
    Py_XDECREF(capsule);
    PyErr_Clear();
    return table != NULL && table->major == MAJOR && table->look != NULL ? table : NULL;
}

int tp_dlpack_look(tp_state *state, PyObject *value, tp_array *array) {
    PyTypeObject *type = Py_TYPE(value);
    if ((PyObject *)type != state->tensor) { /* a worker's tensors are of one type */
        state->exchange = table_of(type);
        Py_XSETREF(state->tensor, Py_NewRef(type));
    }
    const exchange *table = state->exchange;
    tensor seen;
    if (table == NULL) {
        return 0;
    }
    if (table->look(value, &seen) != 0) {
        PyErr_Clear();
        return 0;
    }
    if (seen.device_type != ON_CPU || seen.code != INT || (seen.bits != 32 && seen.bits != 64) ||
        seen.lanes != 1 || seen.ndim != 1 || seen.shape[0] < 0 ||
        (seen.strides != NULL && seen.strides[0] != 1 && seen.shape[0] > 1) ||
        (seen.data == NULL && seen.shape[0] > 0)) {
        return 0;
    }
    *array = (tp_array){(const uint8_t *)seen.data + seen.byte_offset, (size_t)seen.shape[0], seen.bits / 8u};
    return 1;
}
