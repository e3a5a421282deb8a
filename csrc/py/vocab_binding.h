/* Vocab: the table of words of a tokenizer. */
#ifndef TP_VOCAB_BINDING_H
#define TP_VOCAB_BINDING_H

#include "py/core.h"
#include "text/vocab.h"

/* Returns the vocabulary of a Vocab. It is valid as long as the Vocab lives. NULL with TypeError: the object
 * is something else. */
const tp_vocab *tp_py_vocab(PyObject *object);

/* Ends a call that may have run a decoder in Python. A decoder's exception harms one request, and is
 * reported. But what is no Exception, as KeyboardInterrupt, must reach the caller: it is raised here in place
 * of the result. `vocab` may be None. Takes over the reference `result`. */
PyObject *tp_py_vocab_check(PyObject *vocab, PyObject *result);

int tp_init_vocab(PyObject *module);

#endif
