/* The bind of a request to a handle. */
#ifndef TP_TABLE_BIND_H
#define TP_TABLE_BIND_H

#include "table/table_types.h"
#include "text/text.h"
#include "wire/result.h"

typedef struct tp_bind {
    int64_t handle;
    uint64_t key;
    uint32_t max_tokens, min_tokens, stop_count, output_count, pace, pace_ms, cached;
    uint64_t extras_offset; /* bytes of extras that were sent to its client before */
    uint16_t client;
    uint8_t ignore_eos, prefill;
    const int32_t *stop_ids, *output_ids;
    const tp_text_options *text; /* NULL: no text is wanted */
} tp_bind;

/* Binds a handle, and applies its parked rows. If they end the request, that is an event. The handle must
 * have a slot and must not be bound. TP_E_MEMORY: nothing has changed. */
tp_result tp_table_bind(tp_table *t, const tp_bind *bind);

#endif
