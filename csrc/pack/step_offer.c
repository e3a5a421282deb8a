/* Settles steps by the window's next frame number. */
#include "pack/step_offer.h"

#include "pack/packer_positions.h"

static inline int is_taken(const tp_step_offer *o, uint64_t seq) { return o->window->next.seq > seq; }

static inline int offer_is_taken(const tp_step_offer *o) { return o->seq != 0 && is_taken(o, o->seq); }

static inline void took(tp_step_offer *o, uint64_t step) {
    o->last_step = step;
    o->any_step = 1;
}

TP_HOT void tp_step_offer_settle(tp_step_offer *o) {
    if (offer_is_taken(o)) {
        tp_packer_commit(&o->packer);
        took(o, o->step);
    }
    o->seq = 0;
}

TP_HOT int tp_step_offer_begin(tp_step_offer *o, tp_step_input *in, tp_fault *fault) {
    tp_step_offer_settle(o);
    if (o->any_step && in->step <= o->last_step && !(o->parts && in->step == o->last_step)) {
        return tp_fault_set(fault, "step %llu after step %llu%s: the steps of a rank must grow",
                            (unsigned long long)in->step, (unsigned long long)o->last_step,
                            in->step == o->last_step ? ", which was taken" : "");
    }
    in->lane = o->window->next;
    return 0;
}

int tp_step_offer_pack(tp_step_offer *o, const tp_step_input *in, tp_step_rows *rows, tp_fault *fault) {
    if (tp_packer_pack(&o->packer, in, rows, fault) < 0) {
        return -1;
    }
    o->seq = in->lane.seq;
    o->step = in->step;
    return 0;
}

TP_HOT void tp_step_offer_plain_end(tp_step_offer *o, const tp_step_input *in, const tp_plain *plain) {
    if (is_taken(o, in->lane.seq)) {
        took(o, in->step);
    } else {
        tp_plain_undo(&o->packer, plain);
    }
}

int tp_step_offer_last(const tp_step_offer *o, uint64_t *step) {
    const int offer = offer_is_taken(o);
    if (offer || o->any_step) {
        *step = offer ? o->step : o->last_step;
    }
    return offer || o->any_step;
}

uint64_t tp_step_offer_bad_tokens(const tp_step_offer *o) {
    return o->packer.bad_tokens + (offer_is_taken(o) ? o->packer.pending_bad : 0);
}
