/* Checks a MessagePack value of any shape before a general decoder reads it. */
#include "wire/msgpack.h"

#define MAX_DEPTH 16

/* Reads a tag: finds the bytes that follow it in a scalar or string, or the children of a collection. */
static tp_result measure(tp_reader *r, uint64_t *bytes, uint64_t *children) {
    uint64_t value;
    uint32_t count;
    const uint8_t tag = *r->at;
    *bytes = *children = 0;
    if (tag < 0x80 || tag >= 0xe0 || tag == 0xc0 || tag == 0xc2 || tag == 0xc3) {
        r->at++;
        return TP_OK;
    }
    if ((tag & 0xf0) == 0x90 || tag == 0xdc || tag == 0xdd) {
        tp_result result = tp_read_array(r, &count);
        *children = count;
        return result;
    }
    if ((tag & 0xf0) == 0x80 || tag == 0xde || tag == 0xdf) {
        tp_result result = tp_read_map(r, &count);
        *children = 2 * (uint64_t)count;
        return result;
    }
    if ((tag & 0xe0) == 0xa0) {
        *bytes = tag & 0x1f;
        r->at++;
        return TP_OK;
    }
    if (tag >= 0xc4 && tag <= 0xc6) {
        return tp_read_tagged(r, (size_t)1 << (tag - 0xc4), bytes);
    }
    if (tag >= 0xd9 && tag <= 0xdb) {
        return tp_read_tagged(r, (size_t)1 << (tag - 0xd9), bytes);
    }
    if (tag == 0xca || tag == 0xcb) {
        return tp_read_tagged(r, tag == 0xca ? 4 : 8, &value);
    }
    if (tag >= 0xcc && tag <= 0xd3) {
        return tp_read_tagged(r, (size_t)1 << ((tag - 0xcc) & 3), &value);
    }
    return TP_E_MSGPACK; /* an extension type, or the tag that MessagePack never uses */
}

tp_result tp_value_check(const uint8_t *data, size_t size, uint32_t max_depth) {
    tp_reader r = {data, data + size};
    uint64_t open[MAX_DEPTH + 1] = {1}; /* per level: values that still follow */
    uint32_t depth = 0;
    if (max_depth > MAX_DEPTH) {
        max_depth = MAX_DEPTH;
    }
    for (;;) {
        while (open[depth] == 0) {
            if (depth == 0) {
                return tp_left(&r) == 0 ? TP_OK : TP_E_TRAILING;
            }
            depth--;
        }
        uint64_t bytes, children;
        if (tp_left(&r) == 0) {
            return TP_E_TRUNCATED;
        }
        tp_result result = measure(&r, &bytes, &children);
        if (result != TP_OK) {
            return result;
        }
        /* Each child takes at least one byte. So a decoder never reserves room for more children than there
         * are bytes. */
        if (bytes > tp_left(&r) || children > tp_left(&r)) {
            return TP_E_TRUNCATED;
        }
        r.at += bytes;
        open[depth]--;
        if (children != 0) {
            if (depth == max_depth) {
                return TP_E_LIMIT;
            }
            open[++depth] = children;
        }
    }
}
