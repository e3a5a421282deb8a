/* Repairs rows that have a value that must not be sent. */
#ifndef TP_PACKER_REPAIR_H
#define TP_PACKER_REPAIR_H

#include "pack/packer_state.h"
#include "pack/step_input.h"
#include "wire/step.h"

/* Turns each row with a bad value into a BAD_TOKEN row, cuts tokens off from a placeholder on, and writes all
 * rows into the scratch. Returns the number of bad rows. A bad row with the status DRAINED loses this status.
 * So its handle is added to `again` in the scratch. *n_again is the length of `again`. */
uint64_t tp_packer_repair(tp_packer *p, const tp_step_input *in, tp_step_rows *rows, size_t *n_again);

#endif
