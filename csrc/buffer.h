/* Arrays that grow. Several arrays may share one length, as the columns of a table do. */
#ifndef TP_BUFFER_H
#define TP_BUFFER_H

#include "wire/result.h"

/* One of the arrays that share a capacity. */
typedef struct tp_growing {
    void *array;  /* address of the pointer to its entries */
    size_t width; /* bytes of one entry */
} tp_growing;

#define TP_GROWING(array) {&(array), sizeof *(array)}

/* Gives each of the n arrays room for `need` entries. *capacity is the number of entries that
 * each array has room for. TP_E_MEMORY: every array still has its entries, and *capacity is unchanged. */
tp_result tp_buffers_grow(const tp_growing *arrays, size_t n, uint32_t *capacity, uint64_t need);

/* The same for one array. `width` is the bytes of one entry, `array` the address of the array's pointer. */
static inline tp_result tp_buffer_grow(void *array, size_t width, uint32_t *capacity, uint64_t need) {
    const tp_growing one = {array, width};
    return need <= *capacity ? TP_OK : tp_buffers_grow(&one, 1, capacity, need);
}

/* Frees the n arrays, and sets their pointers to NULL. */
void tp_buffers_free(const tp_growing *arrays, size_t n);

#endif
