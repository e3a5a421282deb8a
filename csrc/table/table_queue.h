/* The paced bindings whose unsent output waits only for its time, by that time. A binary heap: the costs
 * depend on the bindings that are in it, not on the slots. */
#ifndef TP_TABLE_QUEUE_H
#define TP_TABLE_QUEUE_H

#include "table/table_types.h"
#include "wire/result.h"

/* Puts a binding into the queue, or moves it to another time. TP_E_MEMORY: nothing has changed. */
tp_result tp_queue_put(tp_table *t, tp_binding *b, uint64_t ns);
/* Does nothing if the binding is not in the queue. */
void tp_queue_remove(tp_table *t, tp_binding *b);

/* Returns the next time, or 0. */
static inline uint64_t tp_queue_next(const tp_table *t) { return t->queued == 0 ? 0 : t->queue[0].ns; }

/* Removes the binding whose time is next and not after `ns`. NULL: there is none. */
tp_binding *tp_queue_take(tp_table *t, uint64_t ns);

#endif
