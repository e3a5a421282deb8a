/* The checks and conversions of what publish() got. */
#ifndef TP_PACKER_ROWS_H
#define TP_PACKER_ROWS_H

#include "pack/fault.h"
#include "pack/packer_state.h"
#include "pack/step_input.h"
#include "wire/step.h"

/* Fills all of *rows but the positions, and *bad, which is how many rows became BAD_TOKEN. 0, or -1 with
 * *fault. */
int tp_packer_convert(tp_packer *p, const tp_step_input *in, tp_step_rows *rows, uint64_t *bad,
                      tp_fault *fault);

#endif
