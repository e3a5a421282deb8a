/* What the binding files of the client's inbox share. */
#ifndef TP_INBOX_BINDING_H
#define TP_INBOX_BINDING_H

#include "core.h"
#include "inbox.h"

#define TP_OUTPUT_FIELDS 9
#define TP_LOGPROBS_FIELDS 3

/* The classes of tokenpipe.types that items are made of, and where their slots lie. */
typedef struct tp_items {
    PyTypeObject *output, *logprobs;
    PyObject *usage, *finish_codes, *no_logprobs;
    Py_ssize_t output_at[TP_OUTPUT_FIELDS], logprobs_at[TP_LOGPROBS_FIELDS];
} tp_items;

int tp_items_init(tp_items *items); /* 0, or -1 with an exception set */
int tp_items_visit(tp_items *items, visitproc visit, void *arg);
void tp_items_clear(tp_items *items);

typedef struct tp_py_inbox {
    PyObject_HEAD
    tp_inbox inbox;
    tp_items items;
    PyTypeObject *next_type; /* what `await anext(stream)` awaits */
    PyObject *create_future; /* makes a future of the event loop; None where nobody awaits */
    PyObject *on_drop;       /* called with (key, request id) when a live stream is given up */
    PyObject **wake;         /* futures of parked consumers that have something now */
    Py_ssize_t wake_count, wake_cap;
} tp_py_inbox;

typedef struct tp_py_stream {
    PyObject_HEAD
    tp_stream stream;
    tp_py_inbox *inbox;
    PyObject *request_id, *index;
    PyObject *waiter;    /* the future of a parked consumer; while set, the stream owns itself */
    PyObject *exception; /* raised to the consumer after what waits, once */
    uint32_t prompt_tokens;
    uint8_t streak;      /* items taken since the consumer last gave way to others */
    uint8_t over;        /* dropped, or its exception was raised: nothing comes any more */
} tp_py_stream;

static inline tp_py_stream *tp_py_stream_of(tp_stream *stream) {
    return (tp_py_stream *)((char *)stream - offsetof(tp_py_stream, stream));
}

/* Everything that waits as one RequestOutput (at most `limit` tokens unless 0). NULL without an
 * exception where nothing waits. */
PyObject *tp_item_take(tp_py_stream *self, uint32_t limit);

/* What waits, then its exception, then NULL without an exception. */
PyObject *tp_py_stream_next(tp_py_stream *self, uint32_t limit);

static inline int tp_py_stream_over(const tp_py_stream *self) {
    return self->over || self->stream.told;
}

/* Ends the wait: the consumer's future (a new reference), or NULL where nobody is parked. */
PyObject *tp_py_stream_unpark(tp_py_stream *self);

PyObject *tp_py_stream_anext(tp_py_stream *self);

/* Moves the future of a parked consumer to the inbox's wake list; 0, or -1 with an exception. */
int tp_py_stream_ready(tp_py_stream *self);

void tp_py_inbox_dealloc(PyObject *object); /* also what tells an Inbox from other objects */

int tp_init_stream(PyObject *module);
int tp_init_stream_next(PyObject *module);

#endif
