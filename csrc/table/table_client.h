/* Clients. The account of a client counts the bytes of its unsent output. */
#ifndef TP_TABLE_CLIENT_H
#define TP_TABLE_CLIENT_H

#include "table/extras.h"
#include "table/table_types.h"
#include "text/text.h"
#include "wire/result.h"

#define TP_ROW_BYTES    24u /* most bytes of a row of an OutputFrame, without its tokens */
#define TP_TEXT_BYTES   12u /* more per row if a frame has text */
#define TP_EXTRAS_BYTES 12u /* more for a row with extras */

tp_result tp_client_open(tp_table *t, uint32_t client);

/* Makes room for one more binding in the client's list, so that tp_client_mark cannot fail. */
tp_result tp_client_reserve(tp_table *t, tp_client *c);

/* An outcome waits for the binding's unsent output. */
void tp_client_urgent(tp_table *t, tp_binding *b);

/* Puts a binding on its client's list, and its unsent output on the account. Until then, the unsent output
 * of a paced binding is on no account. */
void tp_client_wake(tp_table *t, tp_binding *b);

/* Gives an event for each client whose account has become too large. There must be room for one event per
 * client. */
void tp_clients_crowded(tp_table *t, uint64_t step);

static inline uint64_t tp_client_bytes(const tp_client *c) {
    return (uint64_t)c->dirty_count * TP_ROW_BYTES + c->tokens * 4 + c->lp_entries * 8 + c->lp_tokens * 4 +
           c->error_bytes + c->text_bytes + c->extras_bytes;
}

/* Whether a flush has something to send. */
static inline int tp_client_is_dirty(const tp_client *c) { return c->dirty_count > 0 || c->kept.rows > 0; }

/* Frees the memory of a client. */
void tp_client_free(tp_client *c);

/* Puts a binding on its client's list. The bind made room for it. */
static inline void tp_client_mark(tp_client *c, tp_binding *b) {
    if (!(b->flags & TP_B_DIRTY)) {
        b->flags |= TP_B_DIRTY;
        c->dirty[c->dirty_count++] = b;
    }
}

/* Puts the text that may be sent on the account. */
static inline void tp_text_charge(tp_client *c, tp_text *text) {
    c->text_bytes += (uint64_t)text->ready - text->charged;
    text->charged = text->ready;
}

/* Puts the extras that may be sent on the account. */
static inline void tp_extras_charge(tp_client *c, tp_extras *extras) {
    c->extras_bytes += (uint64_t)extras->ready - extras->charged;
    extras->charged = extras->ready;
}

#endif
