/* What the bindings share that know text: the table takes a vocabulary and, with a bind, a wish. */
#ifndef TP_TEXT_BINDING_H
#define TP_TEXT_BINDING_H

#include "py/core.h"
#include "text/text.h"

typedef struct {
    PyObject_HEAD
    tp_vocab vocab;
    tp_foreign foreign;
    PyObject *factory; /* of foreign streams, or NULL */
    PyObject *last;    /* what the last of their calls returned */
} VocabObject;

/* The vocabulary of a Vocab; NULL with TypeError set where it is none. */
const tp_vocab *tp_py_vocab(PyObject *object);

/* (skip special, spaces, include stop, stops, prompt ids, cut) as C has it. */
typedef struct tp_py_wish {
    tp_text_wish wish;
    uint8_t *stops;
    uint32_t *sizes;
    int32_t *prompt;
} tp_py_wish;

int tp_py_wish_read(PyObject *tuple, tp_py_wish *w); /* 0, or -1 with an exception set */
void tp_py_wish_free(tp_py_wish *w);

/* Makes the str of what may be sent and marks it sent. */
PyObject *tp_py_text_take(tp_text *text);

int tp_init_vocab(PyObject *module);
int tp_init_text(PyObject *module);

#endif
