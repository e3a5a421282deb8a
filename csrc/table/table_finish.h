/* The end of a request. */
#ifndef TP_TABLE_FINISH_H
#define TP_TABLE_FINISH_H

#include "table/table_types.h"
#include "wire/result.h"

/* Ends the request of a binding. The binding is TP_LINGERING then, and its unsent output is urgent. */
void tp_binding_finish(tp_table *t, tp_binding *b, uint8_t finish, int32_t stop_reason);

/* An error of a request. `field` names the wrong field of the request, or is empty. */
typedef struct tp_error_text {
    uint8_t code;             /* enum tp_error_code */
    const char *text, *field; /* UTF-8 */
    size_t size, field_size;
} tp_error_text;

/* Sets the error, before the final row is sent. At most TP_MAX_ERROR bytes are kept: the field, unless it is
 * too long, and whole characters of the text. */
tp_result tp_binding_set_error(tp_table *t, tp_binding *b, const tp_error_text *error);

/* Asks for TP_EV_SENT when all output of the binding is sent. 0: all is sent already, so no event follows. */
int tp_binding_hold(tp_table *t, tp_binding *b);

#endif
