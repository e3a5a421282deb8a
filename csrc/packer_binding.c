/* Not written yet. */
#include "core.h"

int tp_init_packer(PyObject *module) { (void)module; return 0; }
