/* The basis: the rows of a rank's newest frame. A frame without handles continues them. */
#ifndef TP_TABLE_BASIS_H
#define TP_TABLE_BASIS_H

#include "wire/result.h"
#include "wire/step.h"

struct tp_binding;

/* Of the TP rank 0, whose rows count. */
typedef struct tp_basis {
    uint64_t instance, sender, seq; /* of that frame */
    int64_t *handles;
    uint32_t *position; /* of each row after that frame */
    struct tp_binding *
        *bindings;           /* where a run found them, or NULL; each may have got another handle since */
    uint32_t rows, capacity; /* rows 0: there is no basis */
    int mixed;               /* a run failed: a row is not plain, and will hardly be in the next frame */
} tp_basis;

/* Gives a frame without handles the rows that it continues. TP_E_BASIS: it does not follow the basis. */
tp_result tp_basis_take(tp_basis *basis, tp_step_view *v);
/* Makes a frame that was applied the basis. */
void tp_basis_keep(tp_basis *basis, const tp_step_view *v);
/* Whether a frame without handles follows the basis, or the `ahead` frames that will be applied first. */
static inline int tp_basis_leads_to(const tp_basis *basis, uint32_t ahead, const tp_step_view *v) {
    return basis->rows == v->rows && v->lane.seq == basis->seq + 1 + ahead &&
           v->lane.sender == basis->sender && v->lane.instance == basis->instance;
}
/* Moves the basis on by frames that were applied, each with one token per row. */
void tp_basis_advance(tp_basis *basis, uint32_t frames);
void tp_basis_free(tp_basis *basis);

#endif
