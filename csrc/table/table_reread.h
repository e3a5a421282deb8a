/* Gives loaded bindings the state of their text: decoder and stop strings. */
#ifndef TP_TABLE_REREAD_H
#define TP_TABLE_REREAD_H

#include "table/table_types.h"
#include "text/text.h"
#include "wire/result.h"

/* Whether a loaded binding needs the options of its text. */
static inline int tp_binding_lacks_text(const tp_binding *b) {
    return b->flags & TP_B_TEXT && tp_binding_is_open(b) && b->text != NULL && !b->text->ended;
}

/* Reads all tokens of such a binding again, so that the text goes on from there. TP_E_COUNTS: the options
 * are not those of the saved text. TP_E_MEMORY, TP_E_LIMIT, TP_E_FOREIGN: as tp_text_new. */
tp_result tp_binding_reread(tp_table *t, tp_binding *b, const tp_text_options *options);

#endif
