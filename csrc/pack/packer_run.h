/* Runs. The first frame of a run names the rows of the batch. The frames that continue it have only tokens.
 * The tokens of a run are added to the positions only when the positions are needed. */
#ifndef TP_PACKER_RUN_H
#define TP_PACKER_RUN_H

#include "pack/packer_state.h"
#include "pack/step_input.h"

/* Whether the step has the rows of the run, and its frame follows the run's last one on the lane. */
int tp_run_goes_on(tp_packer *p, const tp_step_input *in);
/* Begins a run with this step. Its frame names its rows; each has one token, which is counted. `handles` are
 * those of the frame: the caller's own array may have changed since they were checked. */
void tp_run_begin(tp_packer *p, const tp_step_input *in, const uint8_t *handles);
/* Ends the run, and adds its tokens to the positions. */
void tp_run_settle(tp_packer *p);
void tp_run_free(tp_run *run);

#endif
