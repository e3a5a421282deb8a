/* The processor's table: what every live binding has, fed by frames, flushed by client.
 * Knows no Python, no clock and no policy: it matches rows, appends tokens and finds the end of a
 * request; what is rare (an end, a marker, a gap) it hands out as events for the caller to judge. */
#ifndef TP_TABLE_H
#define TP_TABLE_H

#include "table/annex.h"
#include "table/table_basis.h"
#include "table/table_space.h"
#include "text/text.h"
#include "wire/output.h"
#include "wire/step.h"

#define TP_NO_CLIENT        UINT16_MAX
#define TP_MAX_ERROR        1024 /* bytes of error and field that travel with a final row */
#define TP_MAX_ERROR_EXTRAS 2048 /* bytes of extras that are kept of a row that ends its request */

enum tp_binding_state {
    TP_GONE = 0,   /* no such binding (any more) */
    TP_PARKED = 1, /* rows came, its bind did not yet */
    TP_RUNNING = 2,
    TP_PREEMPTING = 3, /* still takes rows */
    TP_ABORTING = 4,   /* has its outcome; waits to be drained */
    TP_LINGERING = 5   /* the same, for any other outcome */
};

enum tp_event_kind {
    TP_EV_FINISHED = 1,  /* a: enum tp_finish, b: stop reason or -1 */
    TP_EV_ROW_ERROR = 2, /* a: enum tp_row_error, b: the offending value */
    TP_EV_DRAINED = 3,
    TP_EV_GAP = 4, /* a: position expected, b: position found */
    TP_EV_PREFILLED = 5,
    TP_EV_PARKED = 6,    /* first row of a handle that is not bound */
    TP_EV_PARK_LOST = 7, /* at bind: its rows were not kept */
    TP_EV_CROWDED = 8,   /* handle: a client with more unsent bytes than it may have */
    TP_EV_SENT = 9,      /* a binding with TP_B_HOLD: nothing of it is unsent any more */
    TP_EV_SHED = 10      /* its output was given up; a: its state before, b: was it held,
                          * step: its tokens now */
};

enum tp_row_error {
    TP_CAUSE_NONE = 0,
    TP_CAUSE_RECOVERY_STOP,
    TP_CAUSE_WORKER,    /* status ERROR */
    TP_CAUSE_REFUSED,   /* status REFUSED: the worker does not take the request */
    TP_CAUSE_BAD_TOKEN, /* status BAD_TOKEN: the publisher dropped a token */
    TP_CAUSE_STATUS,    /* unknown status */
    TP_CAUSE_TOKEN,     /* token outside the vocabulary */
    TP_CAUSE_MEMORY,
    TP_CAUSE_GAP,     /* parked rows only: becomes TP_EV_GAP */
    TP_CAUSE_TEXT,    /* a foreign decoder failed */
    TP_CAUSE_ANNEX,   /* too much came beside rows without tokens */
    TP_CAUSE_FINISHED /* no error: the worker says that it is complete */
};

typedef struct tp_event {
    int64_t handle, a, b;
    uint64_t step;
    uint32_t kind;
} tp_event;

enum tp_binding_flag {
    TP_B_DIRTY = 1,  /* in its client's list */
    TP_B_URGENT = 2, /* what is unsent holds up an outcome */
    TP_B_HOLD = 4,   /* tell the caller when all is sent */
    TP_B_DRAINED = 8,
    TP_B_PREFILL = 16,
    TP_B_LOGPROBS = 32, /* tail holds one entry per unsent token */
    TP_B_MUTED = 64,    /* its client is gone */
    TP_B_LOST = 128,    /* parked rows were dropped */
    TP_B_TEXT = 256,    /* its text is wanted */
    TP_B_PACED = 512,   /* its client wants fewer outputs than there are rows */
    TP_B_ANNEX = 1024,  /* annex holds something that is not sent */
    TP_B_IN_RUN = 2048  /* only while a run of frames is taken: a row of it has this binding */
};
#define TP_B_SLOW \
    (TP_B_DRAINED | TP_B_PREFILL | TP_B_LOGPROBS | TP_B_MUTED | TP_B_LOST | TP_B_PACED | TP_B_ANNEX)

/* Logprobs of the unsent tokens of one binding, in their order. */
typedef struct tp_tail {
    int32_t *k, *ranks; /* per token; k -1 and rank 0 where it has none */
    int32_t *ids;       /* per token with logprobs 1 + k */
    float *values;
    uint32_t tokens, token_capacity, entries, entry_capacity;
} tp_tail;

/* Extras of a row that ended its request with an error: why it did. */
typedef struct tp_error_extras {
    uint32_t size;
    uint8_t data[];
} tp_error_extras;

/* The first 64 bytes are all that a plain row touches. */
typedef struct tp_binding {
    _Alignas(64) int64_t handle;
    uint64_t key;
    uint64_t stop_mask; /* bit t % 64 of every token t that may end it */
    int32_t *tokens;    /* all output of the request, what it had at bind included */
    uint32_t total, sent, base, capacity;
    uint32_t min_tokens, max_tokens;
    uint16_t client, flags;
    uint8_t state, finish;
    uint16_t error_size;

    /* ---- rarely read ---- */
    struct tp_binding *older; /* next in its slot, or in the pool */
    int32_t *stop_ids;        /* its own, and the model's EOS ids unless they are ignored */
    tp_tail *tail;
    tp_text *text;                 /* NULL: none is wanted, or it ended and is sent */
    tp_annex *annex;               /* NULL: none came */
    char *error;                   /* UTF-8: the text, then the name of the field to blame; not terminated */
    tp_error_extras *error_extras; /* NULL: no such row, or it had none */
    uint64_t park_step;            /* step, cause and value of what ended it while parked */
    int64_t park_value;
    uint32_t park_first; /* tokens up to the end of its first parked row that had any */
    uint32_t park_bytes;
    uint64_t annex_offset;     /* bytes of annexes that were sent before it was bound */
    uint64_t pace_ns, next_ns; /* time between outputs; not before then */
    uint32_t pace;             /* tokens of an output, at least */
    uint32_t cached;           /* prompt tokens that a cache had */
    uint32_t stop_count;
    int32_t stop_reason, stop_string; /* token id; index of a stop string; -1: none */
    uint8_t park_cause, error_code;   /* enum tp_row_error; enum tp_error_code */
    uint8_t error_field;              /* the last bytes of `error` that name a field */
} tp_binding;

_Static_assert(offsetof(tp_binding, older) == 64, "the hot part is one cache line");
_Static_assert(sizeof(tp_binding) % 64 == 0, "bindings do not share lines");

typedef struct tp_client {
    tp_binding **dirty;
    uint32_t dirty_count, dirty_capacity;
    uint32_t urgent, open;
    uint64_t tokens, lp_entries, lp_tokens, error_bytes, text_bytes, annex_bytes; /* unsent */
    uint64_t mono_ns;
    uint32_t crowded; /* said so already */
} tp_client;

typedef struct tp_slot {
    tp_binding *newest;
    uint64_t floor; /* generations up to it are bound or dead, never parked */
} tp_slot;

typedef struct tp_rank {
    uint32_t dp;
    uint64_t last_step, any_step;
    tp_slot *slots;
    tp_basis basis;
} tp_rank;

typedef struct tp_table_counters {
    uint64_t frames, rows, tokens, stale, overrun, repeated, parked, park_lost, bad_rows, gaps;
    int64_t stale_handle, park_lost_handle; /* the newest of which rows were dropped */
} tp_table_counters;

typedef struct tp_table {
    uint32_t processor, rank_count, slots, eos_count;
    uint32_t vocab_size;
    uint32_t live; /* bindings that are not in the pool */
    tp_rank *ranks;
    int32_t *eos;
    const tp_vocab *vocab; /* the caller's; NULL: no text */
    tp_client *clients;
    uint32_t client_count;
    uint64_t park_limit, park_used, merge_limit;
    uint64_t release_ns;               /* when the first binding that waits for the time is due; 0: none */
    uint64_t parked_now, parked_limit; /* bindings */
    tp_binding *pool;
    void **slabs;
    uint32_t slab_count;
    tp_event *events; /* of the last call */
    uint32_t event_count, event_capacity;
    tp_space space;
    tp_table_counters counters;
} tp_table;

/* ---- table.c: making it, finding and dropping bindings ---- */
typedef struct tp_table_config {
    uint32_t processor, rank_count, slots, vocab_size, eos_count;
    const uint32_t *ranks;
    const int32_t *eos;
    const tp_vocab *vocab;
    uint64_t park_limit, merge_limit;
} tp_table_config;

tp_result tp_table_init(tp_table *t, const tp_table_config *config);
void tp_table_clear(tp_table *t);
tp_rank *tp_table_rank(const tp_table *t, uint32_t dp);
tp_slot *tp_table_slot(const tp_table *t, int64_t handle); /* NULL: no such place */
tp_binding *tp_table_find(const tp_table *t, int64_t handle);
tp_binding *tp_binding_new(tp_table *t, tp_slot *slot, int64_t handle); /* linked; NULL: no memory */
tp_result tp_binding_grow(tp_binding *b, uint64_t tokens);              /* room for that many in all */
void tp_binding_free_output(tp_binding *b);
void tp_table_drop(tp_table *t, tp_binding *b); /* what is unsent stays with its client */
void tp_binding_recycle(tp_table *t, tp_binding *b);
tp_result tp_table_reserve_events(tp_table *t, uint64_t extra);
static inline void tp_table_event(tp_table *t, uint32_t kind, int64_t handle, int64_t a, int64_t b,
                                  uint64_t step) {
    t->events[t->event_count++] = (tp_event){handle, a, b, step, kind};
}

/* ---- table_bind.c: what commands do ---- */
typedef struct tp_bind {
    int64_t handle;
    uint64_t key;
    uint32_t max_tokens, min_tokens, stop_count, output_count, pace, pace_ms, cached;
    uint64_t annex_offset; /* bytes of its annexes that its client was sent */
    uint16_t client;
    uint8_t ignore_eos, prefill;
    const int32_t *stop_ids, *output_ids;
    const tp_text_options *text; /* NULL: none is wanted */
} tp_bind;

/* Takes what was parked for the handle; its ends come as events. The handle must not be bound and
 * must have a slot. Nothing happened where it returns TP_E_MEMORY. */
tp_result tp_table_bind(tp_table *t, const tp_bind *bind);
void tp_binding_finish(tp_table *t, tp_binding *b, uint8_t finish, int32_t stop_reason);

/* An error of a request: UTF-8, `field` is the name of the request's field to blame, or empty. */
typedef struct tp_error_text {
    uint8_t code; /* enum tp_error_code */
    const char *text, *field;
    size_t size, field_size;
} tp_error_text;

/* Copies what fits into TP_MAX_ERROR bytes: the field, or none that is too long, and whole characters
 * of the text. */
tp_result tp_binding_set_error(tp_table *t, tp_binding *b, const tp_error_text *error);
int tp_binding_hold(tp_table *t, tp_binding *b); /* 1: something of it is unsent */
void tp_park_lose(tp_table *t, tp_binding *b);
void tp_table_raise_floor(tp_table *t, tp_slot *slot, uint64_t generation);

/* ---- table_feed.c ---- */
tp_result tp_table_feed(tp_table *t, uint32_t dp, uint32_t tp, const uint8_t *data, size_t size);
/* Tells of clients that have more unsent than they may; an event each, of room made before. */
void tp_table_crowded(tp_table *t, uint64_t step);

/* ---- table_run.c ---- */
#define TP_RUN_MOST 64u /* frames taken together */

typedef struct tp_bytes {
    const uint8_t *data;
    size_t size;
} tp_bytes;

/* Feeds the first of n frames of a rank's leader at once, as far as all their rows are plain; returns
 * how many. 0: nothing has happened, and the first is for tp_table_feed. */
uint32_t tp_table_feed_run(tp_table *t, uint32_t dp, const tp_bytes *frames, uint32_t n);

/* ---- table_row.c: a row that is not plain ---- */
typedef struct tp_row {
    uint64_t step, mono_ns;
    const uint8_t *token_ids, *lp_ids, *lp_values, *lp_ranks; /* unaligned, at this row's first */
    const uint8_t *annex;
    uint32_t count, position, skipped, annex_size; /* skipped: tokens cut off its front */
    int32_t k;                                     /* -1: no logprobs */
    uint8_t status, again;                         /* again: its step was fed before */
} tp_row;

/* Where tokens[0..n) end a request; they follow the b->total tokens it has. */
typedef struct tp_end {
    uint32_t used;  /* tokens up to the end, or n */
    uint8_t finish; /* enum tp_finish, 0: goes on */
    uint8_t cause;  /* not TP_CAUSE_NONE: what is the matter with the token after them */
    int32_t token;  /* the stop token, or the bad one */
    int32_t string; /* the stop string that ended it, or -1 */
} tp_end;

/* Reads the text too, where it is wanted: each token must be scanned once. */
tp_end tp_row_scan(const tp_table *t, tp_binding *b, const int32_t *tokens, uint32_t n);
/* Ends a request, or fails its row, where the scan found that; 1: it goes on. */
int tp_row_judge(tp_table *t, tp_binding *b, const tp_end *end, uint64_t step);
void tp_row_apply(tp_table *t, tp_binding *b, tp_row *row);
void tp_row_fail(tp_table *t, tp_binding *b, uint8_t cause, int64_t value, uint64_t step);
/* The binding of a handle that is not its slot's newest; parks a new one, or NULL: counted, dropped. */
tp_binding *tp_row_place(tp_table *t, tp_slot *slot, int64_t handle, uint64_t step);

/* ---- table_text.c: what tokens read as ---- */
tp_text *tp_bind_text(const tp_table *t, const tp_bind *bind); /* NULL: no memory */
tp_end tp_text_scan(const tp_table *t, tp_binding *b, const int32_t *tokens, uint32_t n);
static inline int tp_token_stops(const tp_binding *b, int32_t token, uint32_t count) {
    if (!((b->stop_mask >> ((uint32_t)token & 63)) & 1) || count < b->min_tokens) {
        return 0;
    }
    for (uint32_t i = 0; i < b->stop_count; i++) {
        if (b->stop_ids[i] == token) {
            return 1;
        }
    }
    return 0;
}

/* Puts what may be sent of a binding's text on its client's account. */
static inline void tp_text_charge(tp_client *c, tp_text *text) {
    c->text_bytes += (uint64_t)text->ready - text->charged;
    text->charged = text->ready;
}

/* ---- table_annex.c: what came beside tokens ---- */
/* Takes the annex of a row of which the n tokens from b->total on count; ready with the next token. */
tp_result tp_row_annex(tp_table *t, tp_binding *b, const tp_row *row, uint32_t n);
/* At bind, once b->total is known: what stands at or behind token `end` is dropped. */
void tp_annexes_begin(tp_binding *b, uint64_t end);
/* A token or the end followed: all of it may be sent. */
static inline void tp_annexes_settle(tp_binding *b) {
    if (b->annex != NULL) {
        tp_annex_settle(b->annex);
    }
}
void tp_annexes_forget(tp_binding *b); /* nobody reads it: what is unsent counts as sent */

/* Puts what may be sent of a binding's annexes on its client's account. */
static inline void tp_annex_charge(tp_client *c, tp_annex *annex) {
    c->annex_bytes += (uint64_t)annex->ready - annex->charged;
    annex->charged = annex->ready;
}

/* ---- table_tail.c: logprobs until they are sent ---- */
tp_result tp_tail_add(tp_binding *b, const tp_row *row, uint32_t n); /* b->total: before them */
void tp_tail_free(tp_binding *b);
uint32_t tp_tail_entries(const tp_tail *tail, uint32_t from, uint32_t to);
uint32_t tp_tail_scored(const tp_tail *tail);                         /* tokens that have logprobs */
void tp_tail_cut(tp_tail *tail, uint32_t keep);                       /* keeps the first tokens */
void tp_tail_shift(tp_tail *tail, uint32_t tokens, uint32_t entries); /* forgets the first */

/* ---- table_client.c, table_flush.c: what clients get ---- */
#define TP_ROW_BYTES   24u /* of an OutputFrame, at most, beside its tokens */
#define TP_TEXT_BYTES  12u /* more where frames have text */
#define TP_ANNEX_BYTES 12u /* more for a row with annexes */

tp_result tp_client_open(tp_table *t, uint32_t client);
tp_result tp_client_reserve(tp_table *t, tp_client *c); /* one more binding may become dirty */
void tp_client_urgent(tp_table *t, tp_binding *b);      /* what b has unsent holds something up */
/* What is unsent of a binding that is not dirty is on nobody's account: puts it there. */
void tp_client_wake(tp_table *t, tp_binding *b);
/* Wakes the bindings that waited for the time. */
void tp_table_release(tp_table *t, uint64_t now_ns);
tp_result tp_client_close(tp_table *t, uint32_t client);
tp_result tp_client_shed(tp_table *t, uint32_t client, const tp_error_text *error);

static inline uint64_t tp_client_bytes(const tp_client *c) {
    return (uint64_t)c->dirty_count * TP_ROW_BYTES + c->tokens * 4 + c->lp_entries * 8 + c->lp_tokens * 4 +
           c->error_bytes + c->text_bytes + c->annex_bytes;
}

/* Puts b on its client's list; never fails, tp_client_reserve made room at bind. */
static inline void tp_client_mark(tp_client *c, tp_binding *b) {
    if (!(b->flags & TP_B_DIRTY)) {
        b->flags |= TP_B_DIRTY;
        c->dirty[c->dirty_count++] = b;
    }
}

/* Packs what is unsent, up to max_bytes (of one token at least), as far as it is urgent if asked.
 * rows->rows is 0 where there was nothing. The arrays live until the next call. */
tp_result tp_table_flush(tp_table *t, uint32_t client, uint64_t max_bytes, int urgent_only,
                         tp_output_rows *rows);

#endif
