/* Feeds the table with a run: frames that continue one another. For each row, the tokens of all these frames
 * are applied at once. So a binding is touched once per run and not once per frame. */
#ifndef TP_TABLE_RUN_H
#define TP_TABLE_RUN_H

#include "table/table_types.h"

#define TP_RUN_MOST 64u /* frames of a run */

typedef struct tp_bytes {
    const uint8_t *data;
    size_t size;
} tp_bytes;

/* Applies frames of TP rank 0 of a DP rank, up to the first of n that has a row that is not plain. Returns
 * how many it applied. 0: nothing has changed, and the caller feeds the first frame with tp_table_feed. */
uint32_t tp_table_feed_run(tp_table *t, uint32_t dp, const tp_bytes *frames, uint32_t n);

#endif
