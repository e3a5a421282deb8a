/* The layout of a saved table. The bytes are for a later process of the same build on the same machine, so
 * the numbers have the form that they have in memory. Nothing is aligned.
 *
 *     tp_saved_table; per rank: tp_saved_rank, floors, handles and positions of the basis;
 *     per client: tp_saved_client, handles; per binding: tp_saved_binding, then its arrays
 */
#ifndef TP_TABLE_SAVED_H
#define TP_TABLE_SAVED_H

#include "table/table_types.h"

#define TP_SAVED_MAGIC 0x7470736176656431u

/* What a saved binding has. */
enum tp_saved_part {
    TP_SAVED_TOKENS = 1,
    TP_SAVED_TEXT = 2,
    TP_SAVED_EXTRAS = 4,
    TP_SAVED_GONE = 8 /* it has left its slot, and only its client's list has it */
};

typedef struct tp_saved_table {
    uint64_t magic;
    uint32_t binding_bytes, slots, ranks, clients, bindings, unused;
    tp_table_counters counters;
} tp_saved_table;

typedef struct tp_saved_rank {
    uint64_t last_step, any_step;
    uint64_t instance, sender, seq; /* of the basis, as are `rows` and `mixed` */
    uint32_t dp, rows, mixed, unused;
} tp_saved_rank;

typedef struct tp_saved_client {
    uint64_t mono_ns;
    uint32_t open, crowded, dirty, unused; /* `dirty` handles follow, in the order of its list */
} tp_saved_client;

/* Its arrays follow in this order: tokens, stop_ids, k, ranks, ids and values of the tail, extras, text,
 * error, error_extras. */
typedef struct tp_saved_binding {
    int64_t handle, park_value;
    uint64_t key, park_step, extras_offset, extras_sent, pace_ns, next_ns;
    uint64_t queued_ns; /* its time in the queue, or 0 */
    uint32_t total, sent, base, min_tokens, max_tokens, pace, cached, park_first, park_bytes;
    uint32_t stop_count, tail_tokens, tail_entries, extras_len, extras_ready, error_extras_size;
    uint32_t text_len, text_ready, text_offset;
    int32_t stop_reason, stop_string;
    uint16_t client, flags, error_size;
    uint8_t state, finish, error_code, error_field, park_cause, parts, text_ended, unused;
} tp_saved_binding;

#endif
