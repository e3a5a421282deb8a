/* Adds and removes streams. */
#include "stream/stream_map.h"

#include <stdlib.h>

#define FIRST_SLOTS 64u

tp_result tp_stream_map_init(tp_stream_map *map) {
    *map = (tp_stream_map){.mask = FIRST_SLOTS - 1};
    map->slots = calloc(FIRST_SLOTS, sizeof(tp_stream *));
    return map->slots == NULL ? TP_E_MEMORY : TP_OK;
}

void tp_stream_map_clear(tp_stream_map *map) {
    free(map->slots);
    *map = (tp_stream_map){.slots = NULL};
}

static void place(tp_stream_map *map, tp_stream *stream) {
    uint32_t i = tp_stream_map_home(map, stream->key);
    while (map->slots[i] != NULL) {
        i = (i + 1) & map->mask;
    }
    map->slots[i] = stream;
}

static tp_result resize(tp_stream_map *map, uint32_t size) {
    tp_stream **old = map->slots;
    const uint32_t old_size = map->mask + 1;
    tp_stream **slots = calloc(size, sizeof(tp_stream *));
    if (slots == NULL) {
        return TP_E_MEMORY;
    }
    map->slots = slots;
    map->mask = size - 1;
    for (uint32_t i = 0; i < old_size; i++) {
        if (old[i] != NULL) {
            place(map, old[i]);
        }
    }
    free(old);
    return TP_OK;
}

tp_result tp_stream_map_add(tp_stream_map *map, tp_stream *stream) {
    if ((uint64_t)(map->used + 1) * 2 > map->mask) {
        TP_TRY(resize(map, (map->mask + 1) * 2));
    }
    place(map, stream);
    map->used++;
    stream->listed = 1;
    return TP_OK;
}

void tp_stream_map_remove(tp_stream_map *map, tp_stream *stream) {
    if (!stream->listed) {
        return;
    }
    stream->listed = 0;
    map->used--;
    uint32_t hole = tp_stream_map_home(map, stream->key);
    while (map->slots[hole] != stream) {
        hole = (hole + 1) & map->mask;
    }
    /* Close the hole: a stream moves into it if the search for this stream passes the hole. */
    for (uint32_t i = (hole + 1) & map->mask; map->slots[i] != NULL; i = (i + 1) & map->mask) {
        const uint32_t home = tp_stream_map_home(map, map->slots[i]->key);
        if (((i - home) & map->mask) >= ((i - hole) & map->mask)) {
            map->slots[hole] = map->slots[i];
            hole = i;
        }
    }
    map->slots[hole] = NULL;
    if (map->mask >= FIRST_SLOTS * 4 && map->used < map->mask / 16) {
        (void)resize(map, (map->mask + 1) / 4); /* without memory the map stays large */
    }
}
