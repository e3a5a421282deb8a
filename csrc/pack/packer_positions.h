/* Positions: how many tokens each handle had produced before a row. */
#ifndef TP_PACKER_POSITIONS_H
#define TP_PACKER_POSITIONS_H

#include "pack/fault.h"
#include "pack/packer_state.h"
#include "wire/step.h"

/* Counts the tokens of the rows, whose handles are in the scratch, and sets rows->position. 0, or -1 with
 * *fault where a handle is not one of this rank; then nothing is counted. */
int tp_packer_count(tp_packer *p, tp_step_rows *rows, tp_fault *fault);

/* Takes back what the last pack counted, unless it was committed. */
void tp_packer_roll_back(tp_packer *p);

/* Makes what the last pack counted final. */
void tp_packer_commit(tp_packer *p);

#endif
