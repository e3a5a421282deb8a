/* The memory of bindings. Many are allocated at a time, and they are reused. */
#ifndef TP_TABLE_POOL_H
#define TP_TABLE_POOL_H

#include "table/table_types.h"
#include "wire/result.h"

/* Makes a binding of a handle and links it to its slot. NULL: no memory. */
tp_binding *tp_binding_new(tp_table *t, tp_slot *slot, int64_t handle);
/* Makes room for this many tokens in all. */
tp_result tp_binding_grow(tp_binding *b, uint64_t tokens);
/* Frees tokens, logprobs, text and extras. */
void tp_binding_free_output(tp_binding *b);
/* Frees everything that a binding has, and puts the binding into the pool. Nothing may be linked to it. */
void tp_binding_recycle(tp_table *t, tp_binding *b);
/* Frees all bindings. */
void tp_pool_clear(tp_table *t);

#endif
