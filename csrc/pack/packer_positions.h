/* Positions: how many tokens each handle had produced before a row. */
#ifndef TP_PACKER_POSITIONS_H
#define TP_PACKER_POSITIONS_H

#include "pack/fault.h"
#include "pack/packer_state.h"
#include "wire/step.h"

/* Counts the tokens of the rows and sets rows->position. The handles are in the scratch. Returns 0. If a
 * handle does not belong to this rank, it returns -1 with *fault, and counts nothing. */
int tp_packer_count(tp_packer *p, tp_step_rows *rows, tp_fault *fault);

/* Undoes the counting of the last pack, unless the pack was committed. */
void tp_packer_roll_back(tp_packer *p);

/* Commits the last pack: its counts are final. */
void tp_packer_commit(tp_packer *p);

#endif
