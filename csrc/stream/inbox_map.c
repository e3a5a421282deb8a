/* The inbox as a map: from request key to stream. */
#include "stream/inbox.h"

#include <stdlib.h>

#define FIRST_SLOTS 64u

tp_result tp_inbox_init(tp_inbox *inbox, size_t stream_bytes) {
    *inbox = (tp_inbox){.stream_bytes = stream_bytes, .mask = FIRST_SLOTS - 1};
    inbox->slots = calloc(FIRST_SLOTS, sizeof *inbox->slots);
    return inbox->slots == NULL ? TP_E_MEMORY : TP_OK;
}

void tp_inbox_clear(tp_inbox *inbox) {
    free(inbox->slots);
    free(inbox->woken);
    free(inbox->notes);
    *inbox = (tp_inbox){.slots = NULL};
}

static void place(tp_inbox *inbox, tp_stream *stream) {
    uint32_t i = tp_inbox_home(inbox, stream->key);
    while (inbox->slots[i] != NULL) {
        i = (i + 1) & inbox->mask;
    }
    inbox->slots[i] = stream;
}

static tp_result resize(tp_inbox *inbox, uint32_t size) {
    tp_stream **old = inbox->slots;
    uint32_t old_size = inbox->mask + 1;
    tp_stream **slots = calloc(size, sizeof *slots);
    if (slots == NULL) {
        return TP_E_MEMORY;
    }
    inbox->slots = slots;
    inbox->mask = size - 1;
    for (uint32_t i = 0; i < old_size; i++) {
        if (old[i] != NULL) {
            place(inbox, old[i]);
        }
    }
    free(old);
    return TP_OK;
}

tp_result tp_inbox_add(tp_inbox *inbox, tp_stream *stream) {
    if ((uint64_t)(inbox->used + 1) * 2 > inbox->mask && resize(inbox, (inbox->mask + 1) * 2) != TP_OK) {
        return TP_E_MEMORY;
    }
    place(inbox, stream);
    inbox->used++;
    stream->listed = 1;
    return TP_OK;
}

void tp_inbox_remove(tp_inbox *inbox, tp_stream *stream) {
    if (!stream->listed) {
        return;
    }
    stream->listed = 0;
    inbox->used--;
    uint32_t hole = tp_inbox_home(inbox, stream->key);
    while (inbox->slots[hole] != stream) {
        hole = (hole + 1) & inbox->mask;
    }
    /* Close the hole: whoever probed past it moves back into it. */
    for (uint32_t i = (hole + 1) & inbox->mask; inbox->slots[i] != NULL; i = (i + 1) & inbox->mask) {
        uint32_t home = tp_inbox_home(inbox, inbox->slots[i]->key);
        if (((i - home) & inbox->mask) >= ((i - hole) & inbox->mask)) {
            inbox->slots[hole] = inbox->slots[i];
            hole = i;
        }
    }
    inbox->slots[hole] = NULL;
    if (inbox->mask >= FIRST_SLOTS * 4 && inbox->used < inbox->mask / 16) {
        (void)resize(inbox, (inbox->mask + 1) / 4); /* without memory it merely stays large */
    }
}
