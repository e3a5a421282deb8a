/* The rows that a frame which names none continues. */
#ifndef TP_TABLE_BASIS_H
#define TP_TABLE_BASIS_H

#include "wire/result.h"
#include "wire/step.h"

struct tp_binding;

/* The rows of a leader's newest frame, and where each stands behind it. */
typedef struct tp_basis {
    uint64_t instance, sender, seq; /* of that frame */
    int64_t *handles;
    uint32_t *position;
    struct tp_binding **bindings; /* where a run found them, or NULL; not to be trusted without a look */
    uint32_t rows, capacity;      /* rows 0: nothing to go on from */
    int mixed;                    /* a run of them failed: some row is not plain, and will not be soon */
} tp_basis;

/* Gives a frame that continues the rows it means; TP_E_BASIS where it does not follow the basis. */
tp_result tp_basis_take(tp_basis *basis, tp_step_view *v);
void tp_basis_keep(tp_basis *basis, const tp_step_view *v); /* once it is applied */
/* Whether a frame that names no rows is the one behind `ahead` frames that would be kept first. */
static inline int tp_basis_leads_to(const tp_basis *basis, uint32_t ahead, const tp_step_view *v) {
    return basis->rows == v->rows && v->lane.seq == basis->seq + 1 + ahead &&
           v->lane.sender == basis->sender && v->lane.instance == basis->instance;
}
void tp_basis_advance(tp_basis *basis, uint32_t frames); /* applied, each with a token a row */
void tp_basis_free(tp_basis *basis);

#endif
