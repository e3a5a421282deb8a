/* Ends the requests of a client that is gone or too slow. */
#ifndef TP_TABLE_SHED_H
#define TP_TABLE_SHED_H

#include "table/table_finish.h"
#include "table/table_types.h"
#include "wire/result.h"

/* The client is gone, so its unsent output is dropped. A binding with TP_B_HOLD gives TP_EV_SENT. */
tp_result tp_client_close(tp_table *t, uint32_t client);

/* The client is too slow. Its requests that run or have unsent output end with this error. A request that
 * runs or has TP_B_HOLD gives TP_EV_SHED. */
tp_result tp_client_shed(tp_table *t, uint32_t client, const tp_error_text *error);

#endif
