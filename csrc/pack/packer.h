/* Makes the rows of a StepFrame from the arrays of publish(): checks, conversion, and each handle's position.
 */
#ifndef TP_PACKER_H
#define TP_PACKER_H

#include "pack/fault.h"
#include "pack/packer_state.h"
#include "pack/step_input.h"
#include "wire/step.h"

/* slots is at most 65536, vocab_size 1 to 2^31. After TP_E_MEMORY, tp_packer_free is still needed. */
tp_result tp_packer_init(tp_packer *p, uint32_t dp, uint32_t tp, uint32_t slots, uint32_t vocab_size);
void tp_packer_free(tp_packer *p);

/* Makes the rows of a frame. They point into the input and the scratch, and are valid until the next call.
 * Returns 0, or -1 with *fault and without any change. The tokens of the rows count after tp_packer_commit.
 * Without it, the next call takes them back. */
int tp_packer_pack(tp_packer *p, const tp_step_input *in, tp_step_rows *rows, tp_fault *fault);

#endif
