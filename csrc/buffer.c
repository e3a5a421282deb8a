/* The growth of all arrays in csrc/. */
#include "buffer.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_ENTRIES 16u

/* Pointers are copied as bytes. The arrays have many types, and C has no other legal way to handle
 * pointers of different types with the same code. */
static int grow(const tp_growing *growing, uint64_t entries) {
    void *old, *grown = NULL;
    memcpy(&old, growing->array, sizeof old);
    if (entries <= SIZE_MAX / growing->width) {
        grown = realloc(old, (size_t)entries * growing->width);
    }
    if (grown == NULL) {
        return 0;
    }
    memcpy(growing->array, &grown, sizeof grown);
    return 1;
}

tp_result tp_buffers_grow(const tp_growing *arrays, size_t n, uint32_t *capacity, uint64_t need) {
    if (need <= *capacity) {
        return TP_OK;
    }
    if (need > UINT32_MAX) {
        return TP_E_MEMORY;
    }
    uint64_t entries = 2 * (uint64_t)*capacity;
    entries = entries < FIRST_ENTRIES ? FIRST_ENTRIES : entries > UINT32_MAX ? UINT32_MAX : entries;
    entries = entries < need ? need : entries;
    for (size_t i = 0; i < n; i++) {
        if (!grow(&arrays[i], entries)) {
            return TP_E_MEMORY;
        }
    }
    *capacity = (uint32_t)entries;
    return TP_OK;
}

void tp_buffers_free(const tp_growing *arrays, size_t n) {
    void *const none = NULL;
    for (size_t i = 0; i < n; i++) {
        void *old;
        memcpy(&old, arrays[i].array, sizeof old);
        free(old);
        memcpy(arrays[i].array, &none, sizeof none);
    }
}
