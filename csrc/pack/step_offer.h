/* Finds out which steps a lane took. A packed step does not count until the lane's window has numbered its
 * frame. A step that the lane did not take changes nothing, and may be packed again. */
#ifndef TP_STEP_OFFER_H
#define TP_STEP_OFFER_H

#include "pack/fault.h"
#include "pack/packer.h"
#include "pack/packer_plain.h"
#include "pack/send_window.h"

typedef struct tp_step_offer {
    tp_packer packer;
    const tp_send_window *window; /* the caller's */
    uint64_t seq, step;           /* the packed step that does not count yet; seq 0: none */
    uint64_t last_step;           /* the newest step that the lane took, if any_step */
    int any_step;
    int parts; /* the next frames may have the number of the newest step: they are parts of it */
} tp_step_offer;

/* Settles the packed step: counts it if the lane took it, and forgets it if not. */
void tp_step_offer_settle(tp_step_offer *o);

/* Settles the packed step, and gives the next step its lane header. Returns 0. Returns -1 and sets *fault if
 * the number of the next step is not larger than the number of the newest step. A reader would treat its rows
 * as repeated. */
int tp_step_offer_begin(tp_step_offer *o, tp_step_input *in, tp_fault *fault);

/* Packs a step that was begun, and offers it. Returns the result of tp_packer_pack. */
int tp_step_offer_pack(tp_step_offer *o, const tp_step_input *in, tp_step_rows *rows, tp_fault *fault);

/* The plain way to write a step after tp_step_offer_begin: see tp_plain_begin and tp_plain_write. */
static inline size_t tp_step_offer_plain_begin(tp_step_offer *o, const tp_step_input *in, tp_plain *plain) {
    return tp_plain_begin(&o->packer, in, plain);
}
static inline int tp_step_offer_plain_write(tp_step_offer *o, const tp_step_input *in, tp_plain *plain,
                                            uint8_t *out) {
    return tp_plain_write(&o->packer, in, plain, out);
}
/* Settles a plain step after the attempt to send it. Its frame must still be there. */
void tp_step_offer_plain_end(tp_step_offer *o, const tp_step_input *in, const tp_plain *plain);

/* Sets *step to the newest step that the lane took. 0: there is none, and *step is not set. */
int tp_step_offer_last(const tp_step_offer *o, uint64_t *step);

/* The number of BAD_TOKEN rows in the steps that the lane took. */
uint64_t tp_step_offer_bad_tokens(const tp_step_offer *o);

#endif
