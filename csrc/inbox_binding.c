/* Not written yet. */
#include "core.h"

int tp_init_inbox(PyObject *module) { (void)module; return 0; }
