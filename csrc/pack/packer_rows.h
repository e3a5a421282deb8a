/* Checks and converts the arrays of publish(). */
#ifndef TP_PACKER_ROWS_H
#define TP_PACKER_ROWS_H

#include "pack/fault.h"
#include "pack/packer_state.h"
#include "pack/step_input.h"
#include "wire/step.h"

/* Fills *rows, except the positions. Sets *bad to the number of rows that became BAD_TOKEN. Returns 0, or -1
 * with *fault. */
int tp_packer_convert(tp_packer *p, const tp_step_input *in, tp_step_rows *rows, uint64_t *bad,
                      tp_fault *fault);

#endif
