/* Not written yet. */
#include "core.h"

int tp_init_frames(PyObject *module) { (void)module; return 0; }
