/* Text: the text of one sequence, for a caller that has tokens and no pipeline. */
#ifndef TP_TEXT_BINDING_H
#define TP_TEXT_BINDING_H

#include "py/core.h"

int tp_init_text(PyObject *module);

#endif
