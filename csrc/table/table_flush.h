/* Packing what a client has unsent. */
#ifndef TP_TABLE_FLUSH_H
#define TP_TABLE_FLUSH_H

#include "table/table_types.h"
#include "wire/output.h"
#include "wire/result.h"

/* Packs what the client has unsent into rows of about max_bytes, at least one token. urgent_only: only
 * bindings of which an outcome waits. rows->rows is 0 where nothing was unsent. The arrays of *rows are valid
 * until the next call. */
tp_result tp_table_flush(tp_table *t, uint32_t client, uint64_t max_bytes, int urgent_only,
                         tp_output_rows *rows);

#endif
