/* The common form of StepFrame and OutputFrame: a header of integers and a body of columns. */
#ifndef TP_COLUMNS_H
#define TP_COLUMNS_H

#include "wire/layout.h"
#include "wire/msgpack.h"
#include "wire/result.h"

/* A column of a parsed body. `data` is NULL if the column is absent or empty. */
typedef struct tp_column {
    const uint8_t *data;
    uint32_t size; /* bytes */
    uint32_t seen;
} tp_column;

/* A column to write. A column of size 0 is left out. */
typedef struct tp_part {
    uint32_t id;
    const void *data;
    size_t size; /* bytes */
} tp_part;

/* Reads a whole frame: `fields` header integers, then columns 1 to last into columns[id]. Columns with
 * other ids are skipped. */
tp_result tp_columns_read(const uint8_t *data, size_t size, uint32_t kind, uint64_t *header, uint32_t fields,
                          tp_column *columns, uint32_t last);

/* Writes the bytes before the columns. `present` is the number of columns. Returns the end of these bytes. */
uint8_t *tp_head_write(uint32_t kind, const uint64_t *header, uint32_t fields, uint8_t present, uint8_t *out);

/* Returns the exact size of a frame. */
size_t tp_columns_size(const uint64_t *header, uint32_t fields, const tp_part *parts, uint32_t n);
/* Writes a frame. Returns its size in bytes. */
size_t tp_columns_write(uint32_t kind, const uint64_t *header, uint32_t fields, const tp_part *parts,
                        uint32_t n, uint8_t *out);

/* Takes a column of exactly n entries of `width` bytes. The column may be absent. */
static inline tp_result tp_take(const tp_column *column, uint64_t n, uint32_t width, const uint8_t **data) {
    if (column->data != NULL && column->size != n * width) {
        return TP_E_COLUMN;
    }
    *data = column->data;
    return TP_OK;
}

/* The logprob columns of either frame. */
typedef struct tp_logprobs {
    const uint8_t *k, *ids, *values, *ranks;
    uint32_t entries, tokens;
} tp_logprobs;

/* Takes the four logprob columns, and checks them against the counts. The counts are u16 or u32, as
 * counts_width says. NULL means that all are 1. */
tp_result tp_logprobs_take(const tp_column *four, uint32_t rows, const uint8_t *counts, uint32_t counts_width,
                           tp_logprobs *lp);

/* Takes a column of u32 lengths and the next column, which has the bytes: at most `most`. */
tp_result tp_bytes_take(const tp_column *two, uint32_t rows, uint32_t most, const uint8_t **lengths,
                        const uint8_t **bytes, uint32_t *size);

uint64_t tp_sum_u16(const uint8_t *data, uint32_t n);
uint64_t tp_sum_u32(const uint8_t *data, uint32_t n);

#endif
