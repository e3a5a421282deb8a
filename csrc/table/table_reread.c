/* Reads the text of loaded bindings again. */
#include "table/table_reread.h"

#include <string.h>

tp_result tp_binding_reread(tp_table *t, tp_binding *b, const tp_text_options *options) {
    tp_text *text = NULL;
    tp_text_options shared = *options;
    shared.pool = &t->stops;
    tp_result result = tp_text_new(t->vocab, &shared, &text);
    for (uint32_t i = 0; result == TP_OK && i < b->total; i++) {
        int32_t stop; /* the saved binding has scanned these tokens, and goes on */
        result = tp_text_step(text, b->tokens[i], 0, &stop);
    }
    if (result != TP_OK) {
        tp_text_free(text);
        return result;
    }
    tp_text_settle(text);
    const tp_text *had = b->text;
    const uint64_t len = (uint64_t)had->offset + had->len;
    if (text->ended || text->len != len || text->len - text->ready != had->len - had->ready ||
        memcmp(text->buffer + had->offset, had->buffer, had->len) != 0) {
        tp_text_free(text);
        return TP_E_COUNTS;
    }
    tp_text_sent(text, had->offset);
    text->charged = had->charged;
    tp_text_free(b->text);
    b->text = text;
    return TP_OK;
}
