/* Formats error texts. */
#include "pack/fault.h"

#include <stdarg.h>
#include <stdio.h>

int tp_fault_set(tp_fault *fault, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(fault->text, sizeof fault->text, format, args);
    va_end(args);
    return -1;
}
