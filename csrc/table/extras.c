/* The queue of a request's extras. */
#include "table/extras.h"

#include <stdlib.h>
#include <string.h>

#include "buffer.h"

#define KEEP 65536u /* an empty queue with a larger buffer frees it */

tp_extras *tp_extras_new(uint64_t offset) {
    tp_extras *e = calloc(1, sizeof *e);
    if (e != NULL) {
        e->offset = offset;
    }
    return e;
}

void tp_extras_free(tp_extras *e) {
    if (e != NULL) {
        free(e->buffer);
        free(e);
    }
}

/* Moves the unsent bytes to the beginning. */
static void slide(tp_extras *e) {
    if (e->head > 0 && e->len > 0) {
        memmove(e->buffer, e->buffer + e->head, e->len);
    }
    e->head = 0;
}

tp_result tp_extras_reserve(tp_extras *e, uint32_t size) {
    const uint64_t need = (uint64_t)e->len + TP_WRAP_BYTES + size;
    if (e->head + need <= e->capacity) {
        return TP_OK;
    }
    if (e->head >= e->len) { /* so each byte is moved about once */
        slide(e);
    }
    return tp_buffer_grow(&e->buffer, 1, &e->capacity, e->head + need);
}

void tp_extras_add(tp_extras *e, const tp_wrap *wrap, const uint8_t *data) {
    uint8_t *to = e->buffer + e->head + e->len;
    memcpy(to, wrap, TP_WRAP_BYTES);
    memcpy(to + TP_WRAP_BYTES, data, wrap->size);
    e->len += TP_WRAP_BYTES + wrap->size;
}

void tp_extras_rebase(tp_extras *e, uint32_t base, uint64_t end, uint32_t total) {
    uint32_t at = 0;
    slide(e);
    while (at < e->len) {
        tp_wrap wrap;
        memcpy(&wrap, e->buffer + at, sizeof wrap);
        wrap.offset += base;
        if (wrap.offset >= end) {
            break;
        }
        if (wrap.count > end - wrap.offset) {
            wrap.count = (uint32_t)(end - wrap.offset);
        }
        memcpy(e->buffer + at, &wrap, sizeof wrap);
        at += TP_WRAP_BYTES + wrap.size;
        e->ready = wrap.offset < total ? at : e->ready;
    }
    e->len = at;
}

void tp_extras_sent(tp_extras *e, uint32_t bytes) {
    e->offset += bytes;
    e->len -= bytes;
    e->ready -= bytes;
    e->head += bytes;
    if (e->len == 0) {
        e->head = 0;
        if (e->capacity > KEEP) {
            free(e->buffer);
            e->buffer = NULL;
            e->capacity = 0;
        }
    }
}
