/* Parked bindings: their rows came before the bind, and wait for it. */
#ifndef TP_TABLE_PARK_H
#define TP_TABLE_PARK_H

#include "table/table_types.h"

/* If a slot has more bindings, no further ones are parked there: a look for a binding passes all of its slot.
 */
#define TP_SLOT_BINDINGS 64u

/* Returns the binding of a handle that is not the newest of its slot. If the handle is unknown, it is parked.
 * NULL: the rows of the handle are dropped and counted. */
tp_binding *tp_park_place(tp_table *t, tp_slot *slot, int64_t handle, uint64_t step);

/* Counts the bytes of a parked binding. Drops its rows if all parked bindings together have too many bytes.
 */
void tp_park_charge(tp_table *t, tp_binding *b);

/* Drops the rows of a parked binding. Its bind gives TP_EV_PARK_LOST. */
void tp_park_lose(tp_table *t, tp_binding *b);

/* Records that the generations of a slot up to this one are bound or dead. Drops their parked bindings. */
void tp_table_raise_floor(tp_table *t, tp_slot *slot, uint64_t generation);

#endif
