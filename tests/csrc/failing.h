/* Allocations that fail. The linker puts these functions in place of the real ones: see build.WRAPPED. */
#ifndef TP_TEST_FAILING_H
#define TP_TEST_FAILING_H

#include <stdlib.h>

static long countdown = -1; /* allocations until one fails; negative: none fails */
static int armed, failed;

static int fails(void) {
    const int now = armed && countdown >= 0 && countdown-- == 0;
    failed |= now;
    return now;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
void *__wrap_malloc(size_t size) { return fails() ? NULL : __real_malloc(size); }
void *__wrap_calloc(size_t n, size_t size) { return fails() ? NULL : __real_calloc(n, size); }
void *__wrap_realloc(void *old, size_t size) { return fails() ? NULL : __real_realloc(old, size); }
void *__wrap_aligned_alloc(size_t alignment, size_t size) {
    return fails() ? NULL : __real_aligned_alloc(alignment, size);
}

/* Calls something that may fail for want of memory, and calls it once more if it did. */
#define TRY_AGAIN(call)                  \
    do {                                 \
        armed = 1;                       \
        tp_result try_result = (call);   \
        if (try_result == TP_E_MEMORY) { \
            CHECK(failed);               \
            try_result = (call);         \
        }                                \
        armed = 0;                       \
        CHECK(try_result == TP_OK);      \
    } while (0)

#endif
