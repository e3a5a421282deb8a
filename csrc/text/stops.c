/* The automaton is a table. The row of a state has `classes` next states, then the number of held bytes, then
 * 1 + the stop that ends there, or 0. A state is the offset of its row, so a transition is one addition.
 * Bit 31 of a next state says that a stop ends there. */
#include "text/stops.h"

#include <stdlib.h>
#include <string.h>

#define ENDS         UINT32_C(0x80000000)
#define WIDTH(s)     ((s)->classes + 2)
#define HELD(s, row) ((s)->rows[(row) + (s)->classes])
#define STOP(s, row) ((s)->rows[(row) + (s)->classes + 1])

static void find_classes(tp_stops *s, const uint8_t *text, size_t size) {
    s->classes = 1;
    for (size_t i = 0; i < size; i++) {
        if (s->class_of[text[i]] == 0 && s->classes < 256) { /* UTF-8 has fewer different bytes */
            s->class_of[text[i]] = (uint8_t)s->classes++;
        }
    }
}

/* Adds a string to the tree of all strings. 0 is "no child": no child leads back to the root. */
static uint32_t add(tp_stops *s, uint32_t nodes, const uint8_t *text, uint32_t size, uint32_t stop) {
    uint32_t row = 0;
    for (uint32_t i = 0; i < size; i++) {
        uint32_t *child = &s->rows[row + s->class_of[text[i]]];
        if (*child == 0) {
            *child = nodes++ * WIDTH(s);
            HELD(s, *child) = i + 1; /* for now, its depth: link_up needs it */
        }
        row = *child;
    }
    if (STOP(s, row) == 0) { /* of two equal strings the first is reported */
        STOP(s, row) = stop + 1;
    }
    return nodes;
}

/* Sets the next state for each byte that does not continue a string. It goes breadth first. The state that
 * it copies from is less deep, so it is already complete. */
static tp_result link_up(tp_stops *s, uint32_t nodes) {
    uint32_t *queue = malloc((size_t)nodes * 2 * sizeof *queue);
    if (queue == NULL) {
        return TP_E_MEMORY;
    }
    uint32_t *fail = queue + nodes; /* by row / WIDTH */
    uint32_t head = 0, tail = 0;
    queue[tail++] = 0;
    fail[0] = 0;
    while (head < tail) {
        const uint32_t row = queue[head++], back = fail[row / WIDTH(s)];
        int leaf = 1;
        for (uint32_t c = 0; c < s->classes; c++) {
            uint32_t *next = &s->rows[row + c];
            const uint32_t other = row == 0 ? 0 : s->rows[back + c] & ~ENDS;
            if (*next == 0) {
                *next = other;
            } else {
                leaf = 0;
                fail[*next / WIDTH(s)] = other;
                queue[tail++] = *next;
            }
        }
        if (row != 0) {
            if (leaf) { /* a complete stop, and not the beginning of a longer one: it is not held */
                HELD(s, row) = HELD(s, back);
            }
            if (STOP(s, row) == 0) { /* its own stop is the longest that ends here */
                STOP(s, row) = STOP(s, back);
            }
        }
    }
    free(queue);
    return TP_OK;
}

tp_result tp_stops_init(tp_stops *s, const uint8_t *text, const uint32_t *sizes, uint32_t count) {
    memset(s, 0, sizeof *s);
    uint64_t total = 0;
    for (uint32_t i = 0; i < count; i++) {
        total += sizes[i];
        if (sizes[i] == 0 || total > TP_MAX_STOP_BYTES) {
            return TP_E_LIMIT;
        }
    }
    find_classes(s, text, total);
    s->rows = calloc((total + 1) * WIDTH(s), sizeof *s->rows);
    s->sizes = malloc((count + 1) * sizeof *s->sizes);
    if (s->rows == NULL || s->sizes == NULL) {
        tp_stops_clear(s);
        return TP_E_MEMORY;
    }
    s->count = count;
    uint32_t nodes = 1;
    for (uint32_t i = 0; i < count; i++) {
        s->sizes[i] = sizes[i];
        s->first |= UINT64_C(1) << (text[0] & 63);
        nodes = add(s, nodes, text, sizes[i], i);
        text += sizes[i];
    }
    const tp_result result = link_up(s, nodes);
    if (result != TP_OK) {
        tp_stops_clear(s);
        return result;
    }
    for (uint32_t row = 0; row < nodes * WIDTH(s); row += WIDTH(s)) {
        for (uint32_t c = 0; c < s->classes; c++) {
            uint32_t *next = &s->rows[row + c];
            *next |= STOP(s, *next) != 0 ? ENDS : 0;
        }
    }
    return TP_OK;
}

void tp_stops_clear(tp_stops *s) {
    free(s->rows);
    free(s->sizes);
    memset(s, 0, sizeof *s);
}

size_t tp_stops_scan(const tp_stops *s, uint32_t *state, const uint8_t *text, size_t size, int32_t *found) {
    uint32_t row = *state;
    *found = -1;
    for (size_t i = 0; i < size; i++) {
        row = s->rows[row + s->class_of[text[i]]];
        if (row & ENDS) {
            row &= ~ENDS;
            *state = row;
            *found = (int32_t)STOP(s, row) - 1;
            return i + 1;
        }
    }
    *state = row;
    return size;
}

uint32_t tp_stops_held(const tp_stops *s, uint32_t state) { return HELD(s, state); }
