/* The end of a request. */
#ifndef TP_TABLE_FINISH_H
#define TP_TABLE_FINISH_H

#include "table/table_types.h"
#include "wire/result.h"

/* Ends the request of a binding, which is then TP_LINGERING. What is unsent is urgent. */
void tp_binding_finish(tp_table *t, tp_binding *b, uint8_t finish, int32_t stop_reason);

/* An error of a request. `field` names the field of the request that is to blame, or is empty. */
typedef struct tp_error_text {
    uint8_t code;             /* enum tp_error_code */
    const char *text, *field; /* UTF-8 */
    size_t size, field_size;
} tp_error_text;

/* Sets the error, before the final row is sent. It keeps TP_MAX_ERROR bytes: the field, unless that is too
 * long, and whole characters of the text. */
tp_result tp_binding_set_error(tp_table *t, tp_binding *b, const tp_error_text *error);

/* Asks for TP_EV_SENT when all of the binding is sent. 0: all is sent already, and no event follows. */
int tp_binding_hold(tp_table *t, tp_binding *b);

#endif
