/* A row that is not plain. Plain rows are applied in table_feed.c. */
#ifndef TP_TABLE_ROW_H
#define TP_TABLE_ROW_H

#include "table/table_scan.h"
#include "table/table_types.h"

/* Applies a row. There must be room for 3 events. */
void tp_row_apply(tp_table *t, tp_binding *b, tp_row *row);

/* Ends or fails the request if the scan found an end or a wrong token. Returns whether the request goes on.
 */
int tp_row_judge(tp_table *t, tp_binding *b, const tp_end *end, uint64_t step);

/* Ends the request for a cause (enum tp_row_error). A parked binding remembers the cause for its bind. */
void tp_row_fail(tp_table *t, tp_binding *b, uint8_t cause, int64_t value, uint64_t step);

#endif
