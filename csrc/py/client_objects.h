/* The objects Inbox and Stream, for the binding files of a client. */
#ifndef TP_CLIENT_OBJECTS_H
#define TP_CLIENT_OBJECTS_H

#include "py/core.h"
#include "stream/inbox.h"

#define TP_OUTPUT_FIELDS   13
#define TP_LOGPROBS_FIELDS 3

/* The classes of tokenpipe.types from which items are made, and the places of their slots. */
typedef struct tp_items {
    PyTypeObject *output, *logprobs;
    PyObject *usage, *finish_codes, *error_codes, *no_logprobs, *no_text;
    Py_ssize_t output_at[TP_OUTPUT_FIELDS], logprobs_at[TP_LOGPROBS_FIELDS];
} tp_items;

typedef struct Inbox {
    PyObject_HEAD
    tp_inbox inbox;
    tp_items items;
    tp_state *state;           /* state of the module; the module lives longer than its types */
    PyTypeObject *next_type;   /* StreamNext: what `await anext(stream)` awaits */
    PyTypeObject *waiter_type; /* StreamWaiter: a consumer that finds nothing waits on it */
    PyObject *loop;            /* the event loop; None if nobody awaits */
    PyObject *current_task;    /* asyncio.current_task; NULL if nobody awaits */
    PyObject *make_reader;     /* called with (prompt tokens, keep) for a stream with extras; or None */
    PyObject *on_drop;         /* called with (key, request id) when a live stream is dropped */
    PyObject **wake;           /* waiters and futures of the consumers that can take an item now */
    uint32_t wake_count, wake_capacity;
    uint32_t woken;  /* how many of `wake` are woken; the outermost call of wake() wakes the rest */
    uint8_t waking;  /* wake() runs */
    uint8_t feeding; /* feed() runs */
} Inbox;

typedef struct Stream {
    PyObject_HEAD
    tp_stream stream;
    Inbox *inbox;
    PyObject *request_id, *index;
    PyObject *stops;      /* tuple of its stop strings; NULL: none */
    PyObject *waiting_on; /* a StreamWaiter or a future; while it is set, the stream owns itself */
    PyObject *waiter;     /* its StreamWaiter, kept for the next wait */
    PyObject *reader;     /* the reader of its extras; NULL until it has extras */
    PyObject *exception;  /* raised once at the consumer, after the output that waits */
    uint64_t waits;       /* how often a consumer has begun to wait */
    uint32_t prompt_tokens;
    uint8_t streak; /* items that the consumer took since it last let others run */
    uint8_t over;   /* it was dropped, or its exception was raised, so nothing follows */
    uint8_t dropped;
} Stream;

static inline Stream *tp_stream_object(tp_stream *stream) {
    return (Stream *)((char *)stream - offsetof(Stream, stream));
}

static inline int tp_stream_is_over(const Stream *self) { return self->over || self->stream.told; }

#endif
