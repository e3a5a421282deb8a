/* An array that the caller of publish() passed. */
#ifndef TP_ARRAY_H
#define TP_ARRAY_H

#include "wire/layout.h"

/* May be unaligned. width is the bytes of one entry. It is 0 if the caller gave no array. */
typedef struct tp_array {
    const uint8_t *data;
    size_t n;
    uint32_t width;
} tp_array;

/* Reads entry i. Entries of 1 and 2 bytes are unsigned. */
static inline int64_t tp_array_at(const tp_array *a, size_t i) {
    switch (a->width) {
    case 1: return a->data[i];
    case 2: return tp_load_u16(a->data + 2 * i);
    case 4: return tp_load_i32(a->data + 4 * i);
    default: return tp_load_i64(a->data + 8 * i);
    }
}

#endif
