/* The text of bindings: begun at bind, read as tokens come. */
#include "table/table.h"

tp_text *tp_bind_text(const tp_table *t, const tp_bind *bind) {
    tp_text *text = t->vocab == NULL ? NULL : tp_text_new(t->vocab, bind->text);
    for (uint32_t i = 0; text != NULL && i < bind->output_count; i++) {
        int32_t stop; /* what it has was judged where it came from */
        if (tp_text_step(text, bind->output_ids[i], 0, &stop) != TP_OK) {
            tp_text_free(text);
            return NULL;
        }
    }
    if (text != NULL) {
        tp_text_settle(text);
        tp_text_sent(text, text->ready);
    }
    return text;
}

/* The earliest token ends a request; of one token the stop string, the stop token, the length. */
tp_end tp_text_scan(const tp_table *t, tp_binding *b, const int32_t *tokens, uint32_t n) {
    tp_text *text = b->text;
    tp_end end = {n, TP_FINISH_NONE, TP_CAUSE_NONE, -1, -1};
    for (uint32_t i = 0; i < n; i++) {
        const int32_t token = tokens[i];
        const uint32_t count = b->total + i + 1;
        if ((uint32_t)token >= t->vocab_size) {
            end = (tp_end){i, TP_FINISH_NONE, TP_CAUSE_TOKEN, token, -1};
            break;
        }
        const int stops = tp_token_stops(b, token, count);
        tp_text_mark before = {.stream = NULL};
        int32_t string;
        tp_result result = stops ? tp_text_set_mark(text, &before) : TP_OK;
        if (result == TP_OK) {
            result = tp_text_step(text, token, count > b->min_tokens, &string);
        }
        if (result != TP_OK) {
            tp_text_drop_mark(text, &before);
            end = (tp_end){i, TP_FINISH_NONE, result == TP_E_MEMORY ? TP_CAUSE_MEMORY : TP_CAUSE_TEXT, token,
                           -1};
            break;
        }
        if (string >= 0) {
            tp_text_drop_mark(text, &before);
            end = (tp_end){i + 1, TP_FINISH_STOP, TP_CAUSE_NONE, -1, string};
            break;
        }
        if (stops) {
            if (text->include_stop) {
                tp_text_drop_mark(text, &before);
            } else {
                tp_text_roll_back(text, &before);
            }
            end = (tp_end){i + 1, TP_FINISH_STOP, TP_CAUSE_NONE, token, -1};
            break;
        }
        if (count >= b->max_tokens) {
            end = (tp_end){i + 1, TP_FINISH_LENGTH, TP_CAUSE_NONE, -1, -1};
            break;
        }
    }
    tp_text_settle(text);
    return end;
}
