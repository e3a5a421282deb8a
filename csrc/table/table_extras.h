/* The extras of bindings: with which tokens they came, and when they go. They go with the next token of their
 * request, or with its end. So what a client was sent after n tokens depends only on what came up to the n-th
 * token. Where a binding is handed back before a token follows, they are never sent. */
#ifndef TP_TABLE_EXTRAS_H
#define TP_TABLE_EXTRAS_H

#include "table/extras.h"
#include "table/table_types.h"
#include "wire/result.h"

/* Makes room for the extras of a row, so that tp_binding_extras_add cannot fail. */
tp_result tp_binding_extras_reserve(tp_binding *b, const tp_row *row);
/* Adds the extras of a row. Its n tokens after the b->total tokens of the binding count. */
void tp_binding_extras_add(tp_binding *b, const tp_row *row, uint32_t n);

/* Whether the extras of a row without tokens are more than may wait for a token. */
int tp_binding_extras_too_many(const tp_table *t, const tp_binding *b, const tp_row *row);

/* At bind, once b->total is known: drops what came with token `end` or a later one. */
void tp_binding_extras_begin(tp_binding *b, uint64_t end);

/* Nobody reads the binding: what is unsent counts as sent. */
void tp_binding_extras_forget(tp_binding *b);

/* A token or the end came: all of it may be sent. */
static inline void tp_binding_extras_settle(tp_binding *b) {
    if (b->extras != NULL) {
        tp_extras_settle(b->extras);
    }
}

#endif
