/* The arrays of one call of StepPacker. */
#ifndef TP_STEP_ARRAYS_BINDING_H
#define TP_STEP_ARRAYS_BINDING_H

#include "py/array_binding.h"
#include "pack/step_input.h"

/* The arrays in the order of the arguments. */
enum tp_step_array {
    TP_HANDLES,
    TP_TOKENS,
    TP_COUNTS,
    TP_STATUS,
    TP_DRAINED,
    TP_LP_K,
    TP_LP_IDS,
    TP_LP_VALUES,
    TP_LP_RANKS,
    TP_EXTRAS_LEN,
    TP_EXTRAS,
    TP_STEP_ARRAYS
};

typedef struct tp_step_arrays {
    tp_held held[TP_STEP_ARRAYS];
    int count; /* how many are set */
} tp_step_arrays;

/* Takes the first `most` arrays into *in. A value that is NULL is not given. 0, or -1 with an exception; the
 * caller calls tp_step_arrays_release in either case. *in is valid until Python code runs. */
int tp_step_arrays_take(tp_state *state, PyObject *const *values, int most, PyObject *convert,
                        tp_step_input *in, tp_step_arrays *taken);
void tp_step_arrays_release(tp_step_arrays *taken);

#endif
