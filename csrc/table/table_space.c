/* The memory of a flush. */
#include "table/table_space.h"

#include <string.h>

#include "buffer.h"

#define BY_ROW(s)                                                                                \
    {TP_GROWING((s)->keys),        TP_GROWING((s)->extras_offset), TP_GROWING((s)->counts),      \
     TP_GROWING((s)->offsets),     TP_GROWING((s)->stop_reason),   TP_GROWING((s)->stop_string), \
     TP_GROWING((s)->lp_k),        TP_GROWING((s)->finish),        TP_GROWING((s)->error_code),  \
     TP_GROWING((s)->error_field), TP_GROWING((s)->error_len),     TP_GROWING((s)->text_len),    \
     TP_GROWING((s)->text_offset), TP_GROWING((s)->cached),        TP_GROWING((s)->extras_len)}
#define BY_TOKEN(s)  {TP_GROWING((s)->token_ids), TP_GROWING((s)->lp_ranks)}
#define BY_ENTRY(s)  {TP_GROWING((s)->lp_ids), TP_GROWING((s)->lp_values)}
#define BYTES(s)     {TP_GROWING((s)->error), TP_GROWING((s)->text), TP_GROWING((s)->extras)}
#define COUNT(array) (sizeof(array) / sizeof *(array))

static tp_result grow(tp_space *s, const tp_space_need *need) {
    const tp_growing by_row[] = BY_ROW(s), by_token[] = BY_TOKEN(s), by_entry[] = BY_ENTRY(s);
    TP_TRY(tp_buffers_grow(by_row, COUNT(by_row), &s->row_capacity, need->rows));
    TP_TRY(tp_buffers_grow(by_token, COUNT(by_token), &s->token_capacity, need->tokens));
    TP_TRY(tp_buffers_grow(by_entry, COUNT(by_entry), &s->entry_capacity, need->entries));
    TP_TRY(tp_buffer_grow(&s->error, 1, &s->error_capacity, need->error));
    TP_TRY(tp_buffer_grow(&s->text, 1, &s->text_capacity, need->text));
    return tp_buffer_grow(&s->extras, 1, &s->extras_capacity, need->extras);
}

TP_HOT tp_result tp_space_reserve(tp_space *s, const tp_space_need *need) {
    const int fits = need->rows <= s->row_capacity && need->tokens <= s->token_capacity &&
                     need->entries <= s->entry_capacity && need->error <= s->error_capacity &&
                     need->text <= s->text_capacity && need->extras <= s->extras_capacity;
    return fits ? TP_OK : grow(s, need);
}

void tp_space_free(tp_space *s) {
    const tp_growing by_row[] = BY_ROW(s), by_token[] = BY_TOKEN(s), by_entry[] = BY_ENTRY(s);
    const tp_growing bytes[] = BYTES(s);
    tp_buffers_free(by_row, COUNT(by_row));
    tp_buffers_free(by_token, COUNT(by_token));
    tp_buffers_free(by_entry, COUNT(by_entry));
    tp_buffers_free(bytes, COUNT(bytes));
    memset(s, 0, sizeof *s);
}
