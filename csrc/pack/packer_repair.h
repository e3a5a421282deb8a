/* Rows with a value that must not be sent. */
#ifndef TP_PACKER_REPAIR_H
#define TP_PACKER_REPAIR_H

#include "pack/packer_state.h"
#include "pack/step_input.h"
#include "wire/step.h"

/* Turns each row with a bad value into a BAD_TOKEN row, cuts tokens off where a placeholder stands, and
 * writes all rows into the scratch. Returns how many rows were bad. A bad row that was a drained one loses
 * that status: its handle goes into the scratch's `again`, of which *n_again has the length. */
uint64_t tp_packer_repair(tp_packer *p, const tp_step_input *in, tp_step_rows *rows, size_t *n_again);

#endif
