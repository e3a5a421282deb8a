/* Pacing: a request may ask for fewer outputs than it has rows. Its rows then wait in the table. */
#ifndef TP_TABLE_PACE_H
#define TP_TABLE_PACE_H

#include "table/table_types.h"

/* Whether a step's time is more than a second ahead of the caller's clock. Frames of the last milliseconds
 * may be newer than now_ns, which is read once for many frames. */
static inline int tp_is_ahead(const tp_table *t, uint64_t mono_ns) {
    return mono_ns > t->now_ns && mono_ns - t->now_ns > UINT64_C(1000000000);
}

/* Whether to send the unsent output of a paced binding now. If only its time has not come, it is put into the
 * queue of the table. */
int tp_pace_is_due(tp_table *t, tp_binding *b, uint64_t mono_ns);

/* Marks the bindings whose time has come for sending. */
void tp_table_release(tp_table *t, uint64_t now_ns);

#endif
