/* Takes the arrays of a step. */
#include "py/step_arrays_binding.h"

#define INDICES "int32 or int64"
static const tp_array_kind kinds[TP_STEP_ARRAYS] = {
    {"handles", "lq", "int64", 8},
    {"tokens", "ilq", INDICES, 0},
    {"counts", "ilqH", "int32, int64 or uint16", 0},
    {"status", "B", "uint8", 0},
    {"drained", "lq", "int64", 8},
    {"logprobs.k", "ilq", INDICES, 0},
    {"logprobs.token_ids", "ilq", INDICES, 0},
    {"logprobs.logprobs", "f", "float32", 0},
    {"logprobs.ranks", "ilq", INDICES, 0},
    {"extras_len", "I", "uint32", 4},
    {"extras", "B", "uint8", 0},
};

/* Looks a second time at the arrays that nothing keeps in place, because Python code ran after the first
 * time. */
static int look_again(tp_state *state, PyObject *const *values, int most, int tensors,
                      const tp_step_arrays *taken, tp_array *const *into) {
    for (int i = 0; i < most; i++) {
        if (values[i] != NULL && !tp_array_is_held(&taken->held[i]) &&
            !tp_array_look(state, values[i], &kinds[i], tensors, into[i])) {
            PyErr_Format(state->row_error, "%s: it changed while another array was read", kinds[i].name);
            return -1;
        }
    }
    return 0;
}

TP_HOT int tp_step_arrays_take(tp_state *state, PyObject *const *values, int most, PyObject *convert,
                               tp_step_input *in, tp_step_arrays *taken) {
    tp_array *const into[TP_STEP_ARRAYS] = {&in->handles,  &in->tokens,     &in->counts, &in->status,
                                            &in->drained,  &in->lp_k,       &in->lp_ids, &in->lp_values,
                                            &in->lp_ranks, &in->extras_len, &in->extras};
    int held = 0;
    for (taken->count = 0; taken->count < most;) {
        const int i = taken->count++; /* holds i: `taken` is the caller's, on its stack */
        taken->held[i].buffer.obj = NULL;
        taken->held[i].converted = NULL;
        if (values[i] == NULL || tp_array_look(state, values[i], &kinds[i], convert != NULL, into[i])) {
            continue;
        }
        held = 1;
        if (tp_array_hold(state, values[i], &kinds[i], convert, &taken->held[i], into[i]) < 0) {
            return -1;
        }
    }
    return held ? look_again(state, values, most, convert != NULL, taken, into) : 0;
}

TP_HOT void tp_step_arrays_release(tp_step_arrays *taken) {
    while (taken->count > 0) {
        tp_array_release(&taken->held[--taken->count]);
    }
}
