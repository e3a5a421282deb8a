/* Finds the end of a request. */
#include "table/table_scan.h"

#include "text/text.h"

static const tp_end goes_on = {0, TP_FINISH_NONE, TP_CAUSE_NONE, -1, TP_NO_STOP};

/* Reads the text of a token that is no stop token. Sets *end if it ends the request. */
static inline void read_text(const tp_binding *b, int32_t token, uint32_t count, tp_end *end) {
    int32_t string = -1;
    const tp_result result = tp_text_step(b->text, token, count > b->min_tokens, &string);
    if (result != TP_OK) {
        end->cause = result == TP_E_MEMORY ? TP_CAUSE_MEMORY : TP_CAUSE_TEXT;
        end->token = token;
    } else if (string >= 0) {
        end->finish = TP_FINISH_STOP;
        end->string = string;
    }
}

/* Reads the text of a stop token. A stop string that is complete with this token counts instead. */
static void read_stop_token(const tp_binding *b, int32_t token, uint32_t count, tp_end *end) {
    tp_text *text = b->text;
    tp_text_mark before = {.stream = NULL};
    const tp_result result = tp_text_set_mark(text, &before);
    if (result == TP_OK) {
        read_text(b, token, count, end);
    } else {
        end->cause = result == TP_E_MEMORY ? TP_CAUSE_MEMORY : TP_CAUSE_TEXT;
        end->token = token;
    }
    if (end->cause == TP_CAUSE_NONE && end->finish == TP_FINISH_NONE) {
        end->finish = TP_FINISH_STOP;
        end->token = token;
        if (!text->include_stop) {
            tp_text_roll_back(text, &before);
            return;
        }
    }
    tp_text_drop_mark(text, &before);
}

TP_HOT tp_end tp_binding_scan(const tp_table *t, tp_binding *b, const int32_t *tokens, uint32_t n) {
    tp_end end = goes_on;
    while (end.used < n) {
        const int32_t token = tokens[end.used];
        const uint32_t count = b->total + end.used + 1;
        if ((uint32_t)token >= t->vocab_size) {
            end.cause = TP_CAUSE_TOKEN;
            end.token = token;
        } else if (tp_token_stops(b, token, count)) {
            if (b->text != NULL) {
                read_stop_token(b, token, count, &end);
            } else {
                end.finish = TP_FINISH_STOP;
                end.token = token;
            }
        } else if (b->text != NULL) {
            read_text(b, token, count, &end);
        }
        if (end.cause != TP_CAUSE_NONE) {
            break;
        }
        end.used++;
        if (end.finish == TP_FINISH_NONE && count >= b->max_tokens) {
            end.finish = TP_FINISH_LENGTH;
        }
        if (end.finish != TP_FINISH_NONE) {
            break;
        }
    }
    if (b->text != NULL) {
        tp_text_settle(b->text);
    }
    return end;
}
