/* The extras of bindings. They are sent with the next token of their request, or with its end. So the extras
 * that a client has after n tokens depend only on the rows up to the n-th token. If a binding is handed back
 * before a token follows, they are never sent. */
#ifndef TP_TABLE_EXTRAS_H
#define TP_TABLE_EXTRAS_H

#include "table/extras.h"
#include "table/table_types.h"
#include "wire/result.h"

/* Makes room for the extras of a row, so that tp_binding_extras_add cannot fail. */
tp_result tp_binding_extras_reserve(tp_binding *b, const tp_row *row);
/* Adds the extras of a row. The row has n new tokens, which follow the b->total tokens of the binding. */
void tp_binding_extras_add(tp_binding *b, const tp_row *row, uint32_t n);

/* Whether a row without tokens has more extras than may wait for a token. */
int tp_binding_extras_too_many(const tp_table *t, const tp_binding *b, const tp_row *row);

/* At bind, when b->total is known: drops extras that came with token `end` or a later one. */
void tp_binding_extras_begin(tp_binding *b, uint64_t end);

/* Nobody reads the binding, so unsent extras count as sent. */
void tp_binding_extras_forget(tp_binding *b);

/* A token or the end came, so all extras may be sent. */
static inline void tp_binding_extras_settle(tp_binding *b) {
    if (b->extras != NULL) {
        tp_extras_settle(b->extras);
    }
}

#endif
