/* Feeding the table with frames that continue one another. Each row applies its tokens of all these frames at
 * once, so that a binding is touched once per run and not once per frame. */
#ifndef TP_TABLE_RUN_H
#define TP_TABLE_RUN_H

#include "table/table_types.h"

#define TP_RUN_MOST 64u /* frames of a run */

typedef struct tp_bytes {
    const uint8_t *data;
    size_t size;
} tp_bytes;

/* Applies the first of n frames of a rank's leader (TP rank 0), while all their rows are plain. Returns how
 * many frames that were. 0: nothing has changed, and the first frame is one for tp_table_feed. */
uint32_t tp_table_feed_run(tp_table *t, uint32_t dp, const tp_bytes *frames, uint32_t n);

#endif
