/* Keeps the rows of the last applied frame. */
#include "table/table_basis.h"

#include <stdlib.h>
#include <string.h>

#include "buffer.h"

/* Whether no slot has two rows. */
static int is_sole(const tp_basis *basis) {
    uint8_t marks[(1u << TP_SLOT_BITS) / 8] = {0};
    for (uint32_t i = 0; i < basis->rows; i++) {
        const uint32_t slot = TP_HANDLE_SLOT(basis->handles[i]);
        const uint8_t bit = (uint8_t)(1u << (slot & 7));
        if (marks[slot >> 3] & bit) {
            return 0;
        }
        marks[slot >> 3] |= bit;
    }
    return 1;
}

TP_HOT tp_result tp_basis_take(tp_basis *basis, tp_step_view *v) {
    if (v->continues) {
        if (!tp_basis_leads_to(basis, 0, v)) {
            return TP_E_BASIS;
        }
        if (basis->sole < 0) {
            basis->sole = is_sole(basis);
        }
        if (!basis->sole) {
            return TP_E_BASIS;
        }
        v->handles = (const uint8_t *)basis->handles;
        v->position = (const uint8_t *)basis->position;
        return TP_OK;
    }
    const tp_growing arrays[] = {TP_GROWING(basis->handles), TP_GROWING(basis->position),
                                 TP_GROWING(basis->bindings)};
    basis->rows = 0; /* until this frame is applied */
    return tp_buffers_grow(arrays, sizeof arrays / sizeof *arrays, &basis->capacity, v->rows);
}

TP_HOT void tp_basis_keep(tp_basis *basis, const tp_step_view *v) {
    uint32_t *restrict position = basis->position;
    if (!v->continues && v->rows > 0) {
        memcpy(basis->handles, v->handles, (size_t)v->rows * sizeof *basis->handles);
        memset(basis->bindings, 0, (size_t)v->rows * sizeof(struct tp_binding *));
        basis->mixed = 0;
        basis->sole = -1;
        if (v->position == NULL) {
            memset(position, 0, (size_t)v->rows * sizeof *position);
        } else {
            memcpy(position, v->position, (size_t)v->rows * sizeof *position);
        }
    }
    for (uint32_t i = 0; i < v->rows; i++) {
        position[i] += v->counts == NULL ? 1 : tp_load_u16(v->counts + (size_t)i * 2);
    }
    basis->rows = v->rows;
    basis->seq = v->lane.seq;
    basis->sender = v->lane.sender;
    basis->instance = v->lane.instance;
}

void tp_basis_advance(tp_basis *basis, uint32_t frames) {
    for (uint32_t i = 0; i < basis->rows; i++) {
        basis->position[i] += frames;
    }
    basis->seq += frames;
}

void tp_basis_free(tp_basis *basis) {
    free(basis->handles);
    free(basis->position);
    free(basis->bindings);
    memset(basis, 0, sizeof *basis);
}
