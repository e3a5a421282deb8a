/* The MessagePack types that a frame consists of. A read checks each length against the bytes that are
 * left. A write uses the shortest form, as all msgpack libraries do, so equal values give equal bytes. */
#ifndef TP_MSGPACK_H
#define TP_MSGPACK_H

#include <string.h>

#include "wire/layout.h"
#include "wire/result.h"

typedef struct tp_reader {
    const uint8_t *at, *end;
} tp_reader;

static inline size_t tp_left(const tp_reader *r) { return (size_t)(r->end - r->at); }

static inline uint64_t tp_big_endian(const uint8_t *p, size_t width) {
    uint16_t v16;
    uint32_t v32;
    uint64_t v64;
    switch (width) {
    case 1: return p[0];
    case 2: memcpy(&v16, p, 2); return __builtin_bswap16(v16);
    case 4: memcpy(&v32, p, 4); return __builtin_bswap32(v32);
    default: memcpy(&v64, p, 8); return __builtin_bswap64(v64);
    }
}

/* Reads a tag and the big-endian number of `width` bytes that follows it. */
static inline tp_result tp_read_tagged(tp_reader *r, size_t width, uint64_t *value) {
    if (tp_left(r) < 1 + width) {
        return TP_E_TRUNCATED;
    }
    *value = tp_big_endian(r->at + 1, width);
    r->at += 1 + width;
    return TP_OK;
}

/* Reads an integer >= 0 in any form, also in one that is longer than needed. */
static inline tp_result tp_read_uint(tp_reader *r, uint64_t *value) {
    if (tp_left(r) == 0) {
        return TP_E_TRUNCATED;
    }
    const uint8_t tag = *r->at;
    if (tag < 0x80) {
        *value = tag;
        r->at++;
        return TP_OK;
    }
    if (tag >= 0xcc && tag <= 0xcf) {
        return tp_read_tagged(r, (size_t)1 << (tag - 0xcc), value);
    }
    if (tag >= 0xd0 && tag <= 0xd3) { /* a signed form: its value must not be negative */
        const size_t width = (size_t)1 << (tag - 0xd0);
        tp_result result = tp_read_tagged(r, width, value);
        if (result == TP_OK && *value >> (8 * width - 1) != 0) {
            return TP_E_MSGPACK;
        }
        return result;
    }
    return TP_E_MSGPACK;
}

static inline tp_result tp_read_u32(tp_reader *r, uint32_t *value) {
    uint64_t wide;
    tp_result result = tp_read_uint(r, &wide);
    if (result != TP_OK) {
        return result;
    }
    if (wide > UINT32_MAX) {
        return TP_E_HEADER;
    }
    *value = (uint32_t)wide;
    return TP_OK;
}

/* Reads the head of an array or a map. `fix` and `tag16` are the tags of its short and its 16-bit form. */
static inline tp_result tp_read_count(tp_reader *r, uint8_t fix, uint8_t tag16, uint32_t *count) {
    if (tp_left(r) == 0) {
        return TP_E_TRUNCATED;
    }
    const uint8_t tag = *r->at;
    if ((tag & 0xf0) == fix) {
        *count = tag & 0x0f;
        r->at++;
        return TP_OK;
    }
    if (tag != tag16 && tag != tag16 + 1) {
        return TP_E_MSGPACK;
    }
    uint64_t wide;
    tp_result result = tp_read_tagged(r, tag == tag16 ? 2 : 4, &wide);
    if (result == TP_OK) {
        *count = (uint32_t)wide;
    }
    return result;
}

static inline tp_result tp_read_array(tp_reader *r, uint32_t *count) {
    return tp_read_count(r, 0x90, 0xdc, count);
}

static inline tp_result tp_read_map(tp_reader *r, uint32_t *count) {
    return tp_read_count(r, 0x80, 0xde, count);
}

static inline tp_result tp_read_bin(tp_reader *r, const uint8_t **data, uint32_t *size) {
    if (tp_left(r) == 0) {
        return TP_E_TRUNCATED;
    }
    const uint8_t tag = *r->at;
    if (tag < 0xc4 || tag > 0xc6) {
        return TP_E_MSGPACK;
    }
    uint64_t wide;
    tp_result result = tp_read_tagged(r, (size_t)1 << (tag - 0xc4), &wide);
    if (result != TP_OK) {
        return result;
    }
    if (tp_left(r) < wide) {
        return TP_E_TRUNCATED;
    }
    *data = r->at;
    *size = (uint32_t)wide;
    r->at += wide;
    return TP_OK;
}

/* Checks that the bytes are exactly one value, that it has no extension types and is nested at most
 * max_depth (<= 16) deep, and that no length or count in it exceeds the bytes that are left. */
tp_result tp_value_check(const uint8_t *data, size_t size, uint32_t max_depth);

static inline size_t tp_uint_size(uint64_t v) {
    return v < 0x80 ? 1 : v <= UINT8_MAX ? 2 : v <= UINT16_MAX ? 3 : v <= UINT32_MAX ? 5 : 9;
}

static inline uint8_t *tp_write_uint(uint8_t *p, uint64_t v) {
    if (v < 0x80) {
        *p++ = (uint8_t)v;
    } else if (v <= UINT8_MAX) {
        *p++ = 0xcc;
        *p++ = (uint8_t)v;
    } else if (v <= UINT16_MAX) {
        const uint16_t big = __builtin_bswap16((uint16_t)v);
        *p++ = 0xcd;
        memcpy(p, &big, 2);
        p += 2;
    } else if (v <= UINT32_MAX) {
        const uint32_t big = __builtin_bswap32((uint32_t)v);
        *p++ = 0xce;
        memcpy(p, &big, 4);
        p += 4;
    } else {
        const uint64_t big = __builtin_bswap64(v);
        *p++ = 0xcf;
        memcpy(p, &big, 8);
        p += 8;
    }
    return p;
}

static inline size_t tp_bin_size(size_t size) {
    return size + (size <= UINT8_MAX ? 2 : size <= UINT16_MAX ? 3 : 5);
}

static inline uint8_t *tp_write_bin_head(uint8_t *p, size_t size) {
    if (size <= UINT8_MAX) {
        *p++ = 0xc4;
        *p++ = (uint8_t)size;
    } else if (size <= UINT16_MAX) {
        const uint16_t big = __builtin_bswap16((uint16_t)size);
        *p++ = 0xc5;
        memcpy(p, &big, 2);
        p += 2;
    } else {
        const uint32_t big = __builtin_bswap32((uint32_t)size);
        *p++ = 0xc6;
        memcpy(p, &big, 4);
        p += 4;
    }
    return p;
}

static inline uint8_t *tp_write_bin(uint8_t *p, const void *data, size_t size) {
    p = tp_write_bin_head(p, size);
    memcpy(p, data, size);
    return p + size;
}

#endif
