/* The plain step: each row has one valid token, and every handle is known. It is written directly into its
 * frame. The caches are cold during a publish, so each cache line that it does not touch makes it faster. */
#ifndef TP_PACKER_PLAIN_H
#define TP_PACKER_PLAIN_H

#include "pack/packer_state.h"
#include "pack/step_input.h"

typedef struct tp_plain {
    size_t rows, head_size;
    int continues;          /* the frame continues the one before: it has no handles and no positions */
    const uint8_t *handles; /* in the frame */
    uint8_t head[128];      /* at most 5 bytes and 10 integers of 9 bytes */
} tp_plain;

/* Returns the size of the frame. 0: the step has more than handles and one token for each. */
size_t tp_plain_begin(tp_packer *p, const tp_step_input *in, tp_plain *plain);
/* Writes and counts the rows, and returns 1. 0: a row is not plain, and nothing is counted. The caller packs
 * the step with tp_packer_pack. */
int tp_plain_write(tp_packer *p, const tp_step_input *in, tp_plain *plain, uint8_t *out);
/* Undoes the counting of tp_plain_write. The frame must still be there. */
void tp_plain_undo(tp_packer *p, const tp_plain *plain);

#endif
