/* The classes of items. Items are filled slot by slot. A call of the dataclass would cost more than all other
 * work for an item. */
#ifndef TP_ITEMS_BINDING_H
#define TP_ITEMS_BINDING_H

#include "py/client_objects.h"

/* The fields of RequestOutput and of TokenLogprobs. */
enum tp_output_field {
    TP_REQUEST_ID,
    TP_INDEX,
    TP_OFFSET,
    TP_TOKEN_IDS,
    TP_FINISH_REASON,
    TP_STOP_REASON,
    TP_ERROR,
    TP_ERROR_CODE,
    TP_ERROR_FIELD,
    TP_LOGPROBS,
    TP_USAGE,
    TP_TEXT,
    TP_OUTPUT_EXTRAS
};
enum tp_logprobs_field { TP_LP_TOKEN_IDS, TP_LP_LOGPROBS, TP_LP_RANK };

/* Finds the classes. 0, or -1 with an exception, also if a class has other slots than expected. */
int tp_items_init(tp_items *items);
int tp_items_visit(tp_items *items, visitproc visit, void *arg);
void tp_items_clear(tp_items *items);

/* Fills a slot of a new object. The object takes over the reference. */
static inline void tp_put(PyObject *object, Py_ssize_t at, PyObject *value) {
    *(PyObject **)((char *)object + at) = value;
}

#endif
