/* Vocab: the table of words of a tokenizer. */
#ifndef TP_VOCAB_BINDING_H
#define TP_VOCAB_BINDING_H

#include "py/core.h"
#include "text/vocab.h"

/* Returns the vocabulary of a Vocab. It is valid as long as the Vocab lives. NULL with TypeError: the object
 * is something else. */
const tp_vocab *tp_py_vocab(PyObject *object);

int tp_init_vocab(PyObject *module);

#endif
