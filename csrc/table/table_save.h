/* Saves a table as bytes, from which tp_table_load makes the same table. */
#ifndef TP_TABLE_SAVE_H
#define TP_TABLE_SAVE_H

#include "table/table_types.h"

/* Returns the number of bytes. Writes them to `out`, which has room for them; NULL: only counts. */
size_t tp_table_save(const tp_table *t, uint8_t *out);

#endif
