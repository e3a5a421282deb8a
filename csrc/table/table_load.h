/* Makes a table of the bytes that tp_table_save wrote. */
#ifndef TP_TABLE_LOAD_H
#define TP_TABLE_LOAD_H

#include "table/table_types.h"
#include "wire/result.h"

/* Fills a new table, which has the ranks and slots of the saved one. If it fails, the table is fit only for
 * tp_table_clear. A binding that takes rows and has text needs tp_binding_reread. */
tp_result tp_table_load(tp_table *t, const uint8_t *data, size_t size);

#endif
