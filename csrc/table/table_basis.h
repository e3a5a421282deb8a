/* The basis: the rows of a rank's last applied frame. A frame without handles continues them.
 */
#ifndef TP_TABLE_BASIS_H
#define TP_TABLE_BASIS_H

#include "wire/result.h"
#include "wire/step.h"

struct tp_binding;

/* The basis of TP rank 0, the only TP rank whose rows are applied. */
typedef struct tp_basis {
    uint64_t instance, sender, seq; /* of the frame */
    int64_t *handles;
    uint32_t *position; /* tokens of each row's handle after the frame */
    /* Found when frames were last applied together, or NULL. Each may have another handle now. */
    struct tp_binding **bindings;
    uint32_t rows, capacity; /* rows 0: there is no basis */
    /* Frames could not be applied together, because a row is not plain. A frame with handles clears it. */
    int mixed;
    int sole; /* 1: no slot has two rows; 0: one has; -1: unknown */
} tp_basis;

/* Gives a frame without handles the rows of the basis. TP_E_BASIS: the frame does not follow the basis, or
 * two rows of the basis are of one slot: it does not tell how many tokens the first one has. */
tp_result tp_basis_take(tp_basis *basis, tp_step_view *v);
/* Sets the basis to a frame that was applied. */
void tp_basis_keep(tp_basis *basis, const tp_step_view *v);
/* Whether the last applied frame, and `ahead` frames after it, come directly before this frame on the lane.
 */
static inline int tp_basis_is_before(const tp_basis *basis, uint32_t ahead, const tp_step_view *v) {
    return v->lane.seq == basis->seq + 1 + ahead && v->lane.sender == basis->sender &&
           v->lane.instance == basis->instance;
}

/* Whether a frame without handles follows the basis after `ahead` more frames are applied. */
static inline int tp_basis_leads_to(const tp_basis *basis, uint32_t ahead, const tp_step_view *v) {
    return basis->rows == v->rows && tp_basis_is_before(basis, ahead, v);
}
/* Updates the basis after frames that were applied, each with one token per row. */
void tp_basis_advance(tp_basis *basis, uint32_t frames);
void tp_basis_free(tp_basis *basis);

#endif
