/* The events of the last call. */
#ifndef TP_TABLE_EVENTS_H
#define TP_TABLE_EVENTS_H

#include "table/table_types.h"
#include "wire/result.h"

/* Makes room for this many more events. */
tp_result tp_table_reserve_events(tp_table *t, uint64_t extra);

/* Adds an event. There must be room. */
static inline void tp_table_event(tp_table *t, uint32_t kind, int64_t handle, int64_t a, int64_t b,
                                  uint64_t step) {
    t->events[t->event_count++] = (tp_event){handle, a, b, step, kind};
}

#endif
