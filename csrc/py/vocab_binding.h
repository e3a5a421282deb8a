/* Vocab: the table of words of a tokenizer. */
#ifndef TP_VOCAB_BINDING_H
#define TP_VOCAB_BINDING_H

#include "py/core.h"
#include "text/vocab.h"

/* Returns the vocabulary of a Vocab, which lives as long as that; NULL with TypeError where the object is
 * something else. */
const tp_vocab *tp_py_vocab(PyObject *object);

int tp_init_vocab(PyObject *module);

#endif
