/* A queue of wrapped bytes. */
#include "table/annex.h"

#include <stdlib.h>
#include <string.h>

#define KEEP 65536u /* an emptied one that held more gives its memory back */

tp_annex *tp_annex_new(uint64_t offset) {
    tp_annex *a = calloc(1, sizeof *a);
    if (a != NULL) {
        a->offset = offset;
    }
    return a;
}

void tp_annex_free(tp_annex *a) {
    if (a != NULL) {
        free(a->buffer);
        free(a);
    }
}

static tp_result reserve(tp_annex *a, uint64_t size) {
    if (size <= a->capacity) {
        return TP_OK;
    }
    const uint64_t capacity = size + size / 2;
    uint8_t *grown = capacity > UINT32_MAX ? NULL : realloc(a->buffer, capacity);
    if (grown == NULL) {
        return TP_E_MEMORY;
    }
    a->buffer = grown;
    a->capacity = (uint32_t)capacity;
    return TP_OK;
}

tp_result tp_annex_add(tp_annex *a, const tp_wrap *wrap, const uint8_t *data) {
    if (reserve(a, (uint64_t)a->len + TP_WRAP_BYTES + wrap->size) != TP_OK) {
        return TP_E_MEMORY;
    }
    memcpy(a->buffer + a->len, wrap, TP_WRAP_BYTES);
    memcpy(a->buffer + a->len + TP_WRAP_BYTES, data, wrap->size);
    a->len += TP_WRAP_BYTES + wrap->size;
    return TP_OK;
}

void tp_annex_rebase(tp_annex *a, uint32_t base, uint64_t end, uint32_t total) {
    uint32_t at = 0;
    while (at < a->len) {
        tp_wrap wrap;
        memcpy(&wrap, a->buffer + at, sizeof wrap);
        wrap.offset += base;
        if (wrap.offset >= end) {
            break;
        }
        if (wrap.count > end - wrap.offset) {
            wrap.count = (uint32_t)(end - wrap.offset);
        }
        memcpy(a->buffer + at, &wrap, sizeof wrap);
        at += TP_WRAP_BYTES + wrap.size;
        a->ready = wrap.offset < total ? at : a->ready;
    }
    a->len = at;
}

void tp_annex_sent(tp_annex *a, uint32_t bytes) {
    a->offset += bytes;
    a->len -= bytes;
    a->ready -= bytes;
    if (a->len > 0) {
        memmove(a->buffer, a->buffer + bytes, a->len);
    } else if (a->capacity > KEEP) {
        free(a->buffer);
        a->buffer = NULL;
        a->capacity = 0;
    }
}
