/* The automaton is a tree of all stops, breadth first, in which each node also knows where to go on if no
 * child fits. So its size is that of the stops. The root has a table, because most bytes are read there. */
#include "text/stops.h"

#include <stdlib.h>
#include <string.h>

#define FEW 8u /* children that are compared one by one */

_Static_assert(TP_MAX_STOP_BYTES < UINT16_MAX, "a node's number and a stop's number fit 16 bits");

/* One of the strings, for sorting. */
typedef struct item {
    const uint8_t *text;
    uint32_t size, stop;
} item;

/* What a node is made of: the strings from `begin` to `end`, which begin alike. */
typedef struct range {
    uint32_t begin, end, depth;
} range;

static int compare(const void *one, const void *other) {
    const item *a = one, *b = other;
    const int order = memcmp(a->text, b->text, a->size < b->size ? a->size : b->size);
    return order != 0           ? order
           : a->size != b->size ? (a->size < b->size ? -1 : 1)
           : a->stop == b->stop ? 0
           : a->stop < b->stop  ? -1 /* of two equal strings the first is reported */
                                : 1;
}

/* Returns the child of a node with this label, or 0. No child is the root. */
static inline uint32_t child_of(const tp_stop_node *nodes, const tp_stop_node *node, uint8_t label) {
    uint32_t at = node->child, n = node->children;
    while (n > FEW) { /* the labels grow */
        const uint32_t half = n / 2;
        at += nodes[at + half].label <= label ? half : 0;
        n -= half;
    }
    for (; n > 0; at++, n--) {
        if (nodes[at].label == label) {
            return at;
        }
    }
    return 0;
}

/* Returns the state after one more byte. */
static inline uint32_t go(const tp_stops *s, uint32_t state, uint8_t byte) {
    while (state != 0) {
        const tp_stop_node *node = &s->nodes[state];
        const uint32_t next = child_of(s->nodes, node, byte);
        if (next != 0) {
            return next;
        }
        state = node->fail;
    }
    return s->root[byte];
}

/* Makes the children of a node. Returns the number of nodes then. */
static uint32_t add_children(tp_stops *s, uint32_t at, const item *items, range *ranges, uint32_t nodes) {
    tp_stop_node *node = &s->nodes[at];
    range all = ranges[at];
    while (all.begin < all.end && items[all.begin].size == all.depth) {
        node->stop = node->stop == 0 ? (uint16_t)(items[all.begin].stop + 1) : node->stop;
        all.begin++;
    }
    node->child = (uint16_t)nodes;
    while (all.begin < all.end) {
        const uint8_t label = items[all.begin].text[all.depth];
        range *mine = &ranges[nodes];
        *mine = (range){all.begin, all.begin, all.depth + 1};
        while (mine->end < all.end && items[mine->end].text[all.depth] == label) {
            mine->end++;
        }
        all.begin = mine->end;
        s->nodes[nodes] = (tp_stop_node){.label = label};
        s->nodes[nodes].fail = (uint16_t)(at == 0 ? 0 : go(s, node->fail, label));
        if (at == 0) {
            s->root[label] = (uint16_t)nodes;
            s->first |= UINT64_C(1) << (label & 63);
        }
        nodes++;
    }
    node->children = (uint16_t)(nodes - node->child);
    return nodes;
}

/* Fills the tree. A node fails to a less deep node, which is complete by then. */
static void grow_tree(tp_stops *s, const item *items, range *ranges) {
    uint32_t nodes = 1;
    ranges[0] = (range){0, s->count, 0};
    s->nodes[0] = (tp_stop_node){.label = 0};
    for (uint32_t at = 0; at < nodes; at++) {
        nodes = add_children(s, at, items, ranges, nodes);
        tp_stop_node *node = &s->nodes[at];
        const tp_stop_node *back = &s->nodes[node->fail];
        if (at > 0) { /* a leaf is a complete stop, and not the beginning of a longer one: it is not held */
            node->held = node->children == 0 ? back->held : (uint16_t)ranges[at].depth;
            node->stop = node->stop == 0 ? back->stop : node->stop; /* its own stop is the longest */
        }
    }
}

static tp_result make_tree(tp_stops *s) {
    item *items = malloc(s->count * sizeof *items);
    range *ranges = malloc((s->total + 1) * sizeof *ranges);
    s->nodes = malloc((s->total + 1) * sizeof *s->nodes);
    const int made = items != NULL && ranges != NULL && s->nodes != NULL;
    if (made) {
        const uint8_t *text = s->text;
        for (uint32_t i = 0; i < s->count; i++) {
            items[i] = (item){text, s->sizes[i], i};
            text += s->sizes[i];
        }
        qsort(items, s->count, sizeof *items, compare);
        grow_tree(s, items, ranges);
    }
    free(items);
    free(ranges);
    return made ? TP_OK : TP_E_MEMORY;
}

static void free_stops(tp_stops *s) {
    free(s->nodes);
    free(s->sizes);
    free(s->text);
    free(s);
}

static tp_result make(const uint8_t *text, uint32_t total, const uint32_t *sizes, uint32_t count,
                      tp_stops **made) {
    tp_stops *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return TP_E_MEMORY;
    }
    s->count = count;
    s->total = total;
    s->sizes = malloc(count * sizeof *s->sizes);
    s->text = malloc(total);
    if (s->sizes == NULL || s->text == NULL) {
        free_stops(s);
        return TP_E_MEMORY;
    }
    memcpy(s->sizes, sizes, count * sizeof *s->sizes);
    memcpy(s->text, text, total);
    const tp_result result = make_tree(s);
    if (result != TP_OK) {
        free_stops(s);
        return result;
    }
    *made = s;
    return TP_OK;
}

/* FNV-1a: the strings of a request are compared anyhow, so a good hash is not needed. */
static uint64_t hash_of(const uint8_t *text, uint32_t total) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (uint32_t i = 0; i < total; i++) {
        hash = (hash ^ text[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

static int is_equal(const tp_stops *s, const uint8_t *text, uint32_t total, const uint32_t *sizes,
                    uint32_t count) {
    return s->total == total && s->count == count && memcmp(s->sizes, sizes, count * sizeof *s->sizes) == 0 &&
           memcmp(s->text, text, total) == 0;
}

static void enter(tp_stops_pool *pool, tp_stops *s, uint64_t hash) {
    s->at = &pool->buckets[hash >> 56];
    s->next = *s->at;
    if (s->next != NULL) {
        s->next->at = &s->next;
    }
    *s->at = s;
    s->hash = hash;
}

tp_result tp_stops_get(tp_stops_pool *pool, const uint8_t *text, const uint32_t *sizes, uint32_t count,
                       tp_stops **stops) {
    uint64_t total = 0;
    for (uint32_t i = 0; i < count; i++) {
        total += sizes[i];
        if (sizes[i] == 0 || total > TP_MAX_STOP_BYTES) {
            return TP_E_LIMIT;
        }
    }
    if (total == 0) {
        return TP_E_LIMIT;
    }
    const uint64_t hash = pool == NULL ? 0 : hash_of(text, (uint32_t)total);
    tp_stops *s = pool == NULL ? NULL : pool->buckets[hash >> 56];
    while (s != NULL && !(s->hash == hash && is_equal(s, text, (uint32_t)total, sizes, count))) {
        s = s->next;
    }
    if (s == NULL) {
        TP_TRY(make(text, (uint32_t)total, sizes, count, &s));
        if (pool != NULL) {
            enter(pool, s, hash);
        }
    }
    s->users++;
    *stops = s;
    return TP_OK;
}

void tp_stops_put(tp_stops *s) {
    if (s == NULL || --s->users > 0) {
        return;
    }
    if (s->at != NULL) {
        *s->at = s->next;
        if (s->next != NULL) {
            s->next->at = s->at;
        }
    }
    free_stops(s);
}

TP_HOT size_t tp_stops_scan(const tp_stops *s, uint32_t *state, const uint8_t *text, size_t size,
                            int32_t *found) {
    uint32_t at = *state;
    *found = -1;
    for (size_t i = 0; i < size; i++) {
        at = go(s, at, text[i]);
        if (at != 0 && s->nodes[at].stop != 0) {
            *state = at;
            *found = (int32_t)s->nodes[at].stop - 1;
            return i + 1;
        }
    }
    *state = at;
    return size;
}
