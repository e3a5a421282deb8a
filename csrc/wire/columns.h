/* What StepFrame and OutputFrame share: the envelope, the body of columns, sums over counts. */
#ifndef TP_COLUMNS_H
#define TP_COLUMNS_H

#include "wire/layout.h"
#include "wire/msgpack.h"

#define TP_LANE_FIELDS 4  /* instance, sender, receiver, seq */
#define TP_STEP_FIELDS 10 /* header integers of a StepFrame */
#define TP_OUT_FIELDS  9

/* A column of a parsed body. data is NULL where it is absent or empty. */
typedef struct tp_column {
    const uint8_t *data;
    uint32_t size; /* bytes */
    uint32_t seen;
} tp_column;

/* A column to write; left out where size is 0. */
typedef struct tp_part {
    uint32_t id;
    const void *data;
    size_t size; /* bytes */
} tp_part;

/* Reads [kind, version and the head of the header array; *elements says how long that is. */
tp_result tp_envelope_read(tp_reader *r, uint32_t *kind, uint32_t *elements);

/* Reads a whole frame of columns: `fields` header integers, then columns 1..last into columns[id]. */
tp_result tp_columns_read(const uint8_t *data, size_t size, uint32_t kind, uint64_t *header, uint32_t fields,
                          tp_column *columns, uint32_t last);

/* Writes what stands before the columns, of which there are `present`; returns its end. */
uint8_t *tp_head_write(uint32_t kind, const uint64_t *header, uint32_t fields, uint8_t present, uint8_t *out);

size_t tp_columns_size(const uint64_t *header, uint32_t fields, const tp_part *parts, uint32_t n);
size_t tp_columns_write(uint32_t kind, const uint64_t *header, uint32_t fields, const tp_part *parts,
                        uint32_t n, uint8_t *out);

/* Takes a column of exactly n entries of `width` bytes, or an absent one. */
static inline tp_result tp_take(const tp_column *column, uint64_t n, uint32_t width, const uint8_t **data) {
    if (column->data != NULL && column->size != n * width) {
        return TP_E_COLUMN;
    }
    *data = column->data;
    return TP_OK;
}

/* The logprob columns of either frame, checked against counts (u16 or u32 wide; NULL = all 1). */
typedef struct tp_logprobs {
    const uint8_t *k, *ids, *values, *ranks;
    uint32_t entries, tokens;
} tp_logprobs;

tp_result tp_logprobs_take(const tp_column *four, uint32_t rows, const uint8_t *counts, uint32_t counts_width,
                           tp_logprobs *lp);

/* The two columns of bytes, of u32 lengths, at `two`: at most `most` bytes. */
tp_result tp_bytes_take(const tp_column *two, uint32_t rows, uint32_t most, const uint8_t **lengths,
                        const uint8_t **bytes, uint32_t *size);

uint64_t tp_sum_u16(const uint8_t *data, uint32_t n);
uint64_t tp_sum_u32(const uint8_t *data, uint32_t n);

#endif
