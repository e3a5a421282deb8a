/* What the binding files of the client's inbox share. */
#ifndef TP_INBOX_BINDING_H
#define TP_INBOX_BINDING_H

#include "py/core.h"
#include "stream/inbox.h"

#define TP_OUTPUT_FIELDS   13
#define TP_LOGPROBS_FIELDS 3

/* The classes of tokenpipe.types that items are made of, and where their slots lie. */
typedef struct tp_items {
    PyTypeObject *output, *logprobs;
    PyObject *usage, *finish_codes, *error_codes, *no_logprobs, *no_text;
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
    PyTypeObject *bell_type; /* what a consumer that finds nothing waits on */
    PyObject *loop;          /* the event loop; None where nobody awaits */
    PyObject *annexes;       /* made for a stream with annexes: reader(prompt tokens, keep); or None */
    PyObject *on_drop;       /* called with (key, request id) when a live stream is given up */
    PyObject **wake;         /* bells and futures of consumers that have something now */
    Py_ssize_t wake_count, wake_cap;
    Py_ssize_t woken; /* how many of them wake() did; the rest is for its outer call */
    uint8_t waking;
} tp_py_inbox;

typedef struct tp_py_stream {
    PyObject_HEAD
    tp_stream stream;
    tp_py_inbox *inbox;
    PyObject *request_id, *index;
    PyObject *stops;     /* tuple of its stop strings, NULL where it has none */
    PyObject *waiter;    /* what a parked consumer waits on; while set, the stream owns itself */
    PyObject *bell;      /* its bell, kept for the next time */
    PyObject *annexes;   /* its reader, once it has any */
    PyObject *exception; /* raised to the consumer after what waits, once */
    uint32_t prompt_tokens;
    uint8_t streak; /* items taken since the consumer last gave way to others */
    uint8_t over;   /* dropped, or its exception was raised: nothing comes any more */
} tp_py_stream;

static inline tp_py_stream *tp_py_stream_of(tp_stream *stream) {
    return (tp_py_stream *)((char *)stream - offsetof(tp_py_stream, stream));
}

/* Everything that waits as one RequestOutput (at most `limit` tokens unless 0). NULL without an
 * exception where nothing waits. */
PyObject *tp_item_take(tp_py_stream *self, uint32_t limit);

/* Takes the stream out of the inbox; a live one is reported. Keeps a set exception as it is. */
void tp_py_stream_leave(tp_py_stream *self);

/* item_annex_binding.c. The OutputAnnex of the first `count` waiting tokens, or None; a new reference.
 * Where the bytes are none, the stream ends here with an error. NULL with an exception. */
PyObject *tp_item_annex(tp_py_stream *self, uint32_t count, int *last);
/* The usage at `count` waiting tokens. */
PyObject *tp_item_usage(tp_py_stream *self, uint32_t count);

/* What waits, then its exception, then NULL without an exception. */
PyObject *tp_py_stream_next(tp_py_stream *self, uint32_t limit);

static inline int tp_py_stream_over(const tp_py_stream *self) { return self->over || self->stream.told; }

/* Ends the wait: what the consumer waits on (a reference), or NULL where nobody is parked. */
PyObject *tp_py_stream_unpark(tp_py_stream *self);

PyObject *tp_py_stream_anext(tp_py_stream *self);

/* Makes the bell of a stream wait for a task; a new reference, or NULL with an exception. */
PyObject *tp_bell_arm(tp_py_stream *stream);

/* Lets the task go on: before this returns, or soon. 0, or -1 with an exception. */
int tp_bell_ring(PyObject *bell, int at_once);

/* Moves what a parked consumer waits on to the inbox's wake list; 0, or -1 with an exception. */
int tp_py_stream_ready(tp_py_stream *self);

void tp_py_inbox_dealloc(PyObject *object); /* also what tells an Inbox from other objects */

int tp_init_inbox(PyObject *module);
int tp_init_stream(PyObject *module);
int tp_init_stream_next(PyObject *module);
int tp_init_bell(PyObject *module);

#endif
