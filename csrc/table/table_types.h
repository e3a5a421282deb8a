/* The types of the table. The table holds every live binding. Frames of workers are fed to it, and the output
 * of each client is flushed from it. It knows no Python, no clock and no policy. It matches rows, appends
 * tokens and finds the end of a request. An end, a drained row or a gap is an event. The caller handles it.
 */
#ifndef TP_TABLE_TYPES_H
#define TP_TABLE_TYPES_H

#include "table/table_basis.h"
#include "table/table_space.h"
#include "text/stops.h"
#include "wire/layout.h"
#include "wire/output.h"

#define TP_NO_CLIENT        UINT16_MAX
#define TP_MAX_ERROR        1024 /* most bytes of text and field of a final row's error */
#define TP_MAX_ERROR_EXTRAS 2048 /* most bytes of extras that are kept from a row that fails its request */

enum tp_binding_state {
    TP_GONE = 0,   /* no such binding */
    TP_PARKED = 1, /* its rows came before its bind */
    TP_RUNNING = 2,
    TP_PREEMPTING = 3, /* it still takes rows */
    TP_ABORTING = 4,   /* it has its outcome, and waits for its drained row */
    TP_LINGERING = 5   /* the same for any other outcome */
};

enum tp_event_kind {
    TP_EV_FINISHED = 1,  /* a: enum tp_finish, b: stop reason or -1 */
    TP_EV_ROW_ERROR = 2, /* a: enum tp_row_error, b: the wrong value */
    TP_EV_DRAINED = 3,
    TP_EV_GAP = 4, /* a: position expected, b: position found */
    TP_EV_PREFILLED = 5,
    TP_EV_PARKED = 6,    /* first row of a handle that is not bound */
    TP_EV_PARK_LOST = 7, /* at bind: its rows were dropped */
    TP_EV_CROWDED = 8,   /* a client has too many unsent bytes; handle: its number */
    TP_EV_SENT = 9,      /* all output of a binding with TP_B_HOLD is sent */
    TP_EV_SHED = 10      /* its unsent output was dropped; a: its state before, b: whether it had
                          * TP_B_HOLD, step: how many tokens it has now */
};

#define TP_NO_TOKEN (-1)

/* Why a row failed. */
enum tp_row_error {
    TP_CAUSE_NONE = 0,
    TP_CAUSE_RECOVERY_STOP,
    TP_CAUSE_WORKER,    /* status ERROR */
    TP_CAUSE_REFUSED,   /* status REFUSED: the worker does not take the request */
    TP_CAUSE_BAD_TOKEN, /* status BAD_TOKEN: the publisher dropped a token */
    TP_CAUSE_STATUS,    /* unknown status */
    TP_CAUSE_TOKEN,     /* a token outside the vocabulary */
    TP_CAUSE_MEMORY,
    TP_CAUSE_GAP,     /* only for parked rows; the bind turns it into TP_EV_GAP */
    TP_CAUSE_TEXT,    /* a foreign decoder failed on a token, or at the bind (TP_NO_TOKEN) */
    TP_CAUSE_EXTRAS,  /* too many bytes came with rows without tokens */
    TP_CAUSE_FINISHED /* no error: the worker says that the request is complete */
};

typedef struct tp_event {
    int64_t handle, a, b;
    uint64_t step;
    uint32_t kind;
} tp_event;

enum tp_binding_flag {
    TP_B_DIRTY = 1,  /* it is on its client's list, because it has unsent output */
    TP_B_URGENT = 2, /* an outcome waits until all unsent output is sent */
    TP_B_HOLD = 4,   /* the caller wants an event when all is sent */
    TP_B_DRAINED = 8,
    TP_B_PREFILL = 16,
    TP_B_LOGPROBS = 32, /* tail has an entry for each unsent token */
    TP_B_MUTED = 64,    /* its client is gone */
    TP_B_LOST = 128,    /* parked rows were dropped */
    TP_B_TEXT = 256,    /* its text is wanted */
    TP_B_PACED = 512,   /* its client wants fewer outputs than there are rows */
    TP_B_EXTRAS = 1024, /* it has unsent extras */
    TP_B_IN_RUN = 2048  /* set only while a run is fed: a row of the run has this binding */
};

/* A binding with one of these flags has no plain rows. */
#define TP_B_SLOW \
    (TP_B_DRAINED | TP_B_PREFILL | TP_B_LOGPROBS | TP_B_MUTED | TP_B_LOST | TP_B_PACED | TP_B_EXTRAS)

/* The extras of a row that failed its request. They hold the reason. */
typedef struct tp_error_extras {
    uint32_t size;
    uint8_t data[];
} tp_error_extras;

/* A request in a slot. A plain row touches only the first 64 bytes. */
typedef struct tp_binding {
    _Alignas(64) int64_t handle;
    uint64_t key;
    uint64_t stop_mask; /* bit t % 64 of every token t that may end the request */
    int32_t *tokens;    /* all output tokens of the request, also those that it had at bind */
    uint32_t total, sent, base, capacity; /* base: tokens that it had at bind */
    uint32_t min_tokens, max_tokens;
    uint16_t client, flags;
    uint8_t state, finish;
    uint16_t error_size;

    /* The second cache line and the third: rarely read. */
    struct tp_binding *older; /* next in its slot, or in the pool */
    int32_t *stop_ids;        /* its own stop ids, and the model's EOS ids unless the request ignores EOS */
    struct tp_tail *tail;     /* NULL: no logprobs */
    struct tp_text *text;     /* NULL: no text is wanted, or all is sent */
    struct tp_extras *extras; /* NULL: none came */
    char *error;              /* UTF-8 without a terminator: the text, then the name of a field */
    tp_error_extras *error_extras; /* NULL: none came */
    uint64_t park_step;            /* while parked: step of the row that ended it, with park_cause */
    int64_t park_value;
    uint32_t park_first; /* tokens up to the end of its first parked row with tokens */
    union {
        uint32_t park_bytes; /* while parked */
        uint32_t queue_at;   /* while bound: 1 + its place in the queue, or 0 */
    };
    uint64_t extras_offset;    /* bytes of extras that were sent before the bind */
    uint64_t pace_ns, next_ns; /* time between outputs; time of the next output */
    uint32_t pace;             /* an output has at least this many tokens */
    uint32_t cached;           /* prompt tokens that came from a cache */
    uint32_t stop_count;
    int32_t stop_reason, stop_string; /* token id, index of a stop string; TP_NO_STOP: none */
    uint8_t park_cause, error_code;   /* enum tp_row_error, enum tp_error_code */
    uint8_t error_field;              /* bytes at the end of `error` that name the wrong field */
} tp_binding;

_Static_assert(offsetof(tp_binding, older) == 64, "the hot part is one cache line");
_Static_assert(sizeof(tp_binding) % 64 == 0, "bindings do not share cache lines");

/* Whether rows may still append tokens to a binding that is bound. */
static inline int tp_binding_is_open(const tp_binding *b) {
    return b->state == TP_RUNNING || b->state == TP_PREEMPTING;
}

/* A paced binding that waits for a time. */
typedef struct tp_queued {
    uint64_t ns;
    tp_binding *binding;
} tp_queued;

/* A client, and the account of its unsent output. */
typedef struct tp_client {
    tp_binding **dirty;
    uint32_t dirty_count, dirty_capacity;
    uint32_t urgent, open;
    uint64_t tokens, lp_entries, lp_tokens, error_bytes, text_bytes, extras_bytes;
    uint64_t mono_ns;
    uint32_t crowded; /* TP_EV_CROWDED was given, and the account is too large since then */
    /* A flush that the caller could not use: its rows, their memory, and its events. rows 0: there is none.
     */
    tp_output_rows kept;
    tp_space kept_space;
    tp_event *kept_events;
    uint32_t kept_event_count, kept_event_capacity;
} tp_client;

typedef struct tp_slot {
    tp_binding *newest;
    uint64_t floor; /* generations up to this one are bound or dead; their rows are never parked */
} tp_slot;

typedef struct tp_rank {
    uint32_t dp;
    uint64_t last_step, any_step;
    tp_slot *slots;
    tp_basis basis;
} tp_rank;

typedef struct tp_table_counters {
    uint64_t frames, rows, tokens, stale, overrun, repeated, parked, park_lost, bad_rows, gaps;
    uint64_t clock_ahead;                   /* frames with a time that has not come yet */
    int64_t stale_handle, park_lost_handle; /* the newest handles whose rows were dropped */
} tp_table_counters;

typedef struct tp_table {
    uint32_t processor, rank_count, slots, eos_count;
    uint32_t vocab_size;
    uint32_t live; /* bindings that are not in the pool */
    tp_rank *ranks;
    int32_t *eos;
    const struct tp_vocab *vocab; /* the caller's; NULL: no text */
    tp_stops_pool stops;
    tp_client *clients;
    uint32_t client_count, client_capacity;
    uint64_t park_limit, park_used, merge_limit;
    uint64_t now_ns;  /* the caller's clock at this feed; UINT64_MAX: unknown */
    tp_queued *queue; /* table_queue.h */
    uint32_t queued, queue_capacity;
    uint64_t parked_now, parked_limit; /* bindings */
    tp_binding *pool;
    void **slabs;
    uint32_t slab_count, slab_capacity;
    tp_event *events; /* of the last call */
    uint32_t event_count, event_capacity;
    tp_space space;
    tp_table_counters counters;
} tp_table;

/* The values of a frame's row that a binding applies. */
typedef struct tp_row {
    uint64_t step, mono_ns;
    const uint8_t *token_ids, *lp_ids, *lp_values, *lp_ranks; /* unaligned; they begin with this row */
    const uint8_t *extras;
    uint32_t count, position, extras_size;
    uint32_t skipped;      /* tokens that were cut off at its beginning */
    int32_t k;             /* top-k; -1: no logprobs */
    uint8_t status, again; /* again: a step with this number was fed before */
} tp_row;

#endif
