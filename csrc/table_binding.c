/* Not written yet. */
#include "core.h"

int tp_init_table(PyObject *module) { (void)module; return 0; }
