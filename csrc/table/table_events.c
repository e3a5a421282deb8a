/* The memory of events. */
#include "table/table_events.h"

#include "buffer.h"

tp_result tp_table_reserve_events(tp_table *t, uint64_t extra) {
    return tp_buffer_grow(&t->events, sizeof *t->events, &t->event_capacity, t->event_count + extra);
}
