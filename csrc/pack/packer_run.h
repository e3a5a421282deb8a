/* Runs: the rows of a batch are named once, and the frames that continue it have only tokens. The positions
 * do not count the tokens of a run until somebody needs them. */
#ifndef TP_PACKER_RUN_H
#define TP_PACKER_RUN_H

#include "pack/packer_state.h"
#include "pack/step_input.h"

/* Whether the step has the rows of the run, and its frame follows the run's last one on the lane. */
int tp_run_goes_on(tp_packer *p, const tp_step_input *in);
/* Begins a run with this step, whose frame names its rows: one token each, all of them counted. */
void tp_run_begin(tp_packer *p, const tp_step_input *in);
/* Ends the run: the positions count all its tokens. */
void tp_run_settle(tp_packer *p);
void tp_run_free(tp_run *run);

#endif
