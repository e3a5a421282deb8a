/* The plain step: a good token for each row, every handle known. It is written straight into its frame. A
 * publish runs with cold caches, so each cache line that it does not touch makes it faster. */
#ifndef TP_PACKER_PLAIN_H
#define TP_PACKER_PLAIN_H

#include "pack/packer_state.h"
#include "pack/step_input.h"

typedef struct tp_plain {
    size_t rows, head_size;
    int continues;          /* the frame before: this one has neither handles nor positions */
    const uint8_t *handles; /* in the frame */
    uint8_t head[128];      /* at most 5 bytes and 10 integers of 9 bytes */
} tp_plain;

/* Returns the size of the frame, or 0 where the step has more than handles and a token for each. */
size_t tp_plain_begin(tp_packer *p, const tp_step_input *in, tp_plain *plain);
/* Writes and counts the rows, and returns 1. 0: a row is not plain; nothing is counted, and the step is one
 * for tp_packer_pack. */
int tp_plain_write(tp_packer *p, const tp_step_input *in, tp_plain *plain, uint8_t *out);
/* Takes back what tp_plain_write counted. The frame must still be there. */
void tp_plain_undo(tp_packer *p, const tp_plain *plain);

#endif
