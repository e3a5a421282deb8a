/* Ends requests. */
#include "table/table_finish.h"

#include <stdlib.h>
#include <string.h>

#include "table/table_client.h"
#include "table/table_extras.h"
#include "text/text.h"

void tp_binding_finish(tp_table *t, tp_binding *b, uint8_t finish, int32_t stop_reason) {
    b->finish = finish;
    b->stop_reason = stop_reason;
    b->state = TP_LINGERING;
    if (b->text != NULL) {
        tp_text_end(b->text);
    }
    tp_binding_extras_settle(b);
    if (b->flags & TP_B_MUTED) {
        return;
    }
    tp_client_wake(t, b);
    if (b->text != NULL) {
        tp_text_charge(&t->clients[b->client], b->text);
    }
    if (b->extras != NULL) {
        tp_extras_charge(&t->clients[b->client], b->extras);
    }
    tp_client_urgent(t, b);
}

/* Returns the size of the whole characters in the first `most` bytes of a text. */
static size_t whole_characters(const char *text, size_t size, size_t most) {
    if (size <= most) {
        return size;
    }
    while (most > 0 && ((uint8_t)text[most] & 0xc0) == 0x80) {
        most--;
    }
    return most;
}

tp_result tp_binding_set_error(tp_table *t, tp_binding *b, const tp_error_text *error) {
    const size_t field = error->field_size <= UINT8_MAX ? error->field_size : 0;
    const size_t text = whole_characters(error->text, error->size, TP_MAX_ERROR - field);
    const size_t size = text + field;
    char *copy = malloc(size + 1);
    if (copy == NULL) {
        return TP_E_MEMORY;
    }
    memcpy(copy, error->text, text);
    if (field > 0) {
        memcpy(copy + text, error->field, field);
    }
    if (b->flags & TP_B_DIRTY) {
        t->clients[b->client].error_bytes += size;
        t->clients[b->client].error_bytes -= b->error_size;
    }
    free(b->error);
    b->error = copy;
    b->error_size = (uint16_t)size;
    b->error_code = error->code;
    b->error_field = (uint8_t)field;
    return TP_OK;
}

int tp_binding_hold(tp_table *t, tp_binding *b) {
    if (b->total > b->sent || (b->text != NULL && b->text->ready > 0)) {
        tp_client_wake(t, b);
    }
    if (!(b->flags & TP_B_DIRTY)) {
        return 0;
    }
    b->flags |= TP_B_HOLD;
    tp_client_urgent(t, b);
    return 1;
}
