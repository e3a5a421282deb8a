/* What the two halves of StepPacker share: one object, one way to take its arrays. */
#ifndef TP_PACKER_BINDING_H
#define TP_PACKER_BINDING_H

#include "py/array_binding.h"
#include "py/send_window_binding.h"

/* Arguments of pack(), in their order; the arrays are those of the others too. */
enum {
    INSTANCE,
    SENDER,
    RECEIVER,
    SEQ,
    STEP,
    MONO_NS,
    INTS,
    HANDLES = INTS,
    TOKENS,
    COUNTS,
    STATUS,
    DRAINED,
    LP_K,
    LP_IDS,
    LP_VALUES,
    LP_RANKS,
    ANNEX_LEN,
    ANNEX,
    NAMES
};

#define ARRAYS   (NAMES - INTS)
#define REQUIRED (TOKENS + 1)

typedef struct {
    PyObject_HEAD tp_packer packer;
    tp_send_window *window;           /* NULL: for pack() only */
    PyObject *convert;                /* NULL: arrays come as they are to be */
    tp_state *state;                  /* of the module, which outlives its types */
    uint64_t offered;                 /* the number of the last frame of pack_next, 0 once it is settled */
    uint64_t offered_step, last_step; /* its step; the newest that was taken */
    int any_step;
} StepPacker;

/* The arrays of one call. */
typedef struct tp_packer_arrays {
    tp_held held[ARRAYS];
    int count, most; /* of them, taken or not; of the values to look at */
} tp_packer_arrays;

/* Takes the arrays of the first `taken->most` values, of which the absent ones are NULL; 0, or -1
 * with an error. What is taken is to be released in either case. */
int tp_packer_take(StepPacker *self, PyObject *const *values, PyObject *convert, tp_step_input *in,
                   tp_packer_arrays *taken);
void tp_packer_release(tp_packer_arrays *taken);

/* The frame of a step, not yet counted; NULL with an error. */
PyObject *tp_packer_packed(StepPacker *self, const tp_step_input *in);

/* packer_next_binding.c: methods. */
PyObject *tp_packer_pack_next(StepPacker *self, PyObject *const *args, Py_ssize_t n);
PyObject *tp_packer_send_next(StepPacker *self, PyObject *const *args, Py_ssize_t n);
PyObject *tp_packer_withdraw(StepPacker *self, PyObject *unused);
PyObject *tp_packer_last_step(StepPacker *self, void *unused);

#endif
