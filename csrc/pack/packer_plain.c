/* Writes plain steps. tp_packer_pack writes the same frames, and all others. */
#include "pack/packer_plain.h"

#include "pack/packer_positions.h"
#include "pack/packer_run.h"
#include "wire/columns.h"
#include "wire/step.h"

static inline uint8_t *column(uint8_t *p, uint32_t id, size_t bytes) {
    return tp_write_bin_head(tp_write_uint(p, id), bytes);
}

TP_HOT size_t tp_plain_begin(tp_packer *p, const tp_step_input *in, tp_plain *plain) {
    const size_t n = in->handles.n;
    tp_packer_roll_back(p);
    if (in->counts.width != 0 || in->status.width != 0 || in->drained.n != 0 || in->lp_k.width != 0 ||
        in->lp_ids.width != 0 || in->lp_values.width != 0 || in->lp_ranks.width != 0 ||
        in->extras_len.width != 0 || n == 0 || n != in->tokens.n || n > TP_MAX_ROWS / 2) {
        return 0;
    }
    plain->continues = tp_run_goes_on(p, in);
    if (!plain->continues) {
        tp_run_settle(p);
    }
    const uint64_t header[TP_STEP_FIELDS] = {
        in->lane.instance, in->lane.sender, in->lane.receiver, in->lane.seq, p->dp, p->tp, in->step, n, n,
        in->mono_ns};
    uint8_t *end = tp_head_write(TP_KIND_STEP, header, TP_STEP_FIELDS, plain->continues ? 1 : 3, plain->head);
    plain->rows = n;
    plain->head_size = (size_t)(end - plain->head);
    const size_t size = plain->head_size + 1 + tp_bin_size(4 * n);
    return plain->continues ? size : size + 2 + tp_bin_size(8 * n) + tp_bin_size(4 * n);
}

/* Counts a token for each row and writes its position. Returns the number of plain rows. */
static TP_HOT size_t count(tp_packer *p, const uint8_t *handles, size_t n, uint8_t *position, uint32_t *any) {
    tp_position *restrict table = p->at;
    const uint64_t slots = p->slots;
    const uint64_t base = (uint64_t)p->dp << (TP_SLOT_BITS + TP_GENERATION_BITS);
    for (size_t i = 0; i < n; i++) {
        const int64_t handle = tp_load_i64(handles + 8 * i);
        const uint64_t slot = ((uint64_t)handle - base) >> TP_GENERATION_BITS;
        if (slot >= slots || table[slot].handle != handle) {
            return i;
        }
        const uint32_t before = table[slot].count++;
        memcpy(position + 4 * i, &before, 4);
        *any |= before;
    }
    return n;
}

static void take_back(tp_packer *p, const uint8_t *handles, size_t n) {
    for (size_t i = 0; i < n; i++) {
        p->at[tp_packer_slot(p, tp_load_i64(handles + 8 * i))].count--;
    }
}

/* Writes the tokens as i32. Returns whether all are in 0..max. */
static TP_HOT int put_tokens(const tp_array *tokens, uint32_t max, uint8_t *out) {
    uint64_t outside = 0;
    if (tokens->width == 4) {
        memcpy(out, tokens->data, 4 * tokens->n);
        for (size_t i = 0; i < tokens->n; i++) {
            const uint32_t v = tp_load_u32(out + 4 * i);
            outside |= v | (max - v); /* bit 31 of one of the two is set if v is outside */
        }
        return (outside >> 31) == 0;
    }
    for (size_t i = 0; i < tokens->n; i++) {
        const uint64_t wide = tp_load_u64(tokens->data + 8 * i);
        const uint32_t v = (uint32_t)wide;
        outside |= wide | (uint32_t)(max - v);
        memcpy(out + 4 * i, &v, 4);
    }
    return (outside >> 31) == 0;
}

TP_HOT int tp_plain_write(tp_packer *p, const tp_step_input *in, tp_plain *plain, uint8_t *out) {
    const size_t n = plain->rows;
    uint32_t any = 0;
    memcpy(out, plain->head, plain->head_size);
    if (plain->continues) {
        if (!put_tokens(&in->tokens, p->max_token, column(out + plain->head_size, TP_STEP_TOKENS, 4 * n))) {
            return 0;
        }
        p->run.frames++;
        p->run.lane.seq++;
        return 1;
    }
    uint8_t *handles = column(out + plain->head_size, TP_STEP_HANDLES, 8 * n);
    uint8_t *tokens = column(handles + 8 * n, TP_STEP_TOKENS, 4 * n);
    uint8_t *position = column(tokens + 4 * n, TP_STEP_POSITION, 4 * n);
    memcpy(handles, in->handles.data, 8 * n);
    plain->handles = handles;
    if (!put_tokens(&in->tokens, p->max_token, tokens)) {
        return 0;
    }
    const size_t counted = count(p, handles, n, position, &any);
    if (counted < n || !any) { /* a frame leaves the positions out if all are 0 */
        take_back(p, handles, counted);
        return 0;
    }
    tp_run_begin(p, in, handles);
    return 1;
}

void tp_plain_undo(tp_packer *p, const tp_plain *plain) {
    if (plain->continues) {
        p->run.frames--;
        p->run.lane.seq--;
        return;
    }
    take_back(p, plain->handles, plain->rows);
    p->run.rows = 0;
}
