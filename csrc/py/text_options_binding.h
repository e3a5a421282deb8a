/* The text options of a request, from Python. */
#ifndef TP_TEXT_OPTIONS_BINDING_H
#define TP_TEXT_OPTIONS_BINDING_H

#include "py/core.h"
#include "text/text.h"

/* The options, and the memory that they point to. */
typedef struct tp_py_text_options {
    tp_text_options options;
    uint8_t *stops;
    uint32_t *sizes;
    int32_t *prompt;
} tp_py_text_options;

/* Reads (skip special tokens, spaces, include the stop, stop strings, token ids of the prompt's end, prompt
 * is longer). 0, or -1 with an exception. After -1 there is nothing to free. */
int tp_py_text_options_read(PyObject *tuple, tp_py_text_options *o);
void tp_py_text_options_free(tp_py_text_options *o);

#endif
