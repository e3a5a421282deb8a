/* The packer's memory. */
#include "pack/packer_scratch.h"

#include "buffer.h"

#define BY_ROW(s)                                                                     \
    {TP_GROWING((s)->handles),    TP_GROWING((s)->again),    TP_GROWING((s)->counts), \
     TP_GROWING((s)->status),     TP_GROWING((s)->position), TP_GROWING((s)->lp_k),   \
     TP_GROWING((s)->extras_len), TP_GROWING((s)->replaced)}
#define BY_TOKEN(s)  {TP_GROWING((s)->token_ids), TP_GROWING((s)->lp_ranks)}
#define BY_ENTRY(s)  {TP_GROWING((s)->lp_ids), TP_GROWING((s)->lp_values)}
#define COUNT(array) (sizeof(array) / sizeof *(array))

tp_result tp_scratch_reserve(tp_scratch *s, size_t rows, size_t tokens, size_t entries) {
    const tp_growing by_row[] = BY_ROW(s), by_token[] = BY_TOKEN(s), by_entry[] = BY_ENTRY(s);
    TP_TRY(tp_buffers_grow(by_row, COUNT(by_row), &s->rows, rows));
    TP_TRY(tp_buffers_grow(by_token, COUNT(by_token), &s->tokens, tokens));
    return tp_buffers_grow(by_entry, COUNT(by_entry), &s->entries, entries);
}

void tp_scratch_free(tp_scratch *s) {
    const tp_growing by_row[] = BY_ROW(s), by_token[] = BY_TOKEN(s), by_entry[] = BY_ENTRY(s);
    tp_buffers_free(by_row, COUNT(by_row));
    tp_buffers_free(by_token, COUNT(by_token));
    tp_buffers_free(by_entry, COUNT(by_entry));
    s->rows = s->tokens = s->entries = 0;
}
