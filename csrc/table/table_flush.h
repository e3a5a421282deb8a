/* Packs the unsent output of a client. */
#ifndef TP_TABLE_FLUSH_H
#define TP_TABLE_FLUSH_H

#include "table/table_types.h"
#include "wire/output.h"
#include "wire/result.h"

/* Packs unsent output of the client into rows: about max_bytes, and at least one token. urgent_only: packs
 * only bindings with an outcome that waits. rows->rows is 0 if nothing was unsent. The arrays of *rows are
 * valid until the next call. */
tp_result tp_table_flush(tp_table *t, uint32_t client, uint64_t max_bytes, int urgent_only,
                         tp_output_rows *rows);

/* The caller had no memory for the frame of the last flush. The next flush of the client returns the same
 * rows and events again. */
void tp_table_keep_flush(tp_table *t, uint32_t client, const tp_output_rows *rows);

#endif
