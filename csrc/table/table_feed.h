/* Feeding the table with a StepFrame. */
#ifndef TP_TABLE_FEED_H
#define TP_TABLE_FEED_H

#include "table/table_types.h"
#include "wire/result.h"

/* Applies a frame of the lane of a rank. */
tp_result tp_table_feed(tp_table *t, uint32_t dp, uint32_t tp, const uint8_t *data, size_t size);

#endif
