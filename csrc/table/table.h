/* The whole table: makes it, finds and drops bindings. */
#ifndef TP_TABLE_H
#define TP_TABLE_H

#include "table/table_types.h"
#include "wire/result.h"

typedef struct tp_table_config {
    uint32_t processor, rank_count, slots, vocab_size, eos_count;
    const uint32_t *ranks;
    const int32_t *eos;
    const struct tp_vocab *vocab; /* must outlive the table; NULL: no text */
    uint64_t park_limit, merge_limit;
} tp_table_config;

/* After TP_E_MEMORY, tp_table_clear is still needed. */
tp_result tp_table_init(tp_table *t, const tp_table_config *config);
void tp_table_clear(tp_table *t);

tp_rank *tp_table_rank(const tp_table *t, uint32_t dp);    /* NULL: no such rank */
tp_slot *tp_table_slot(const tp_table *t, int64_t handle); /* NULL: the handle has no slot */
tp_binding *tp_table_find(const tp_table *t,
                          int64_t handle); /* NULL: the handle is neither bound nor parked */

/* Drops a binding. Its unsent output stays with its client. */
void tp_table_drop(tp_table *t, tp_binding *b);

#endif
