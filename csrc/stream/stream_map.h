/* A map from request key to stream. It does not own the streams. */
#ifndef TP_STREAM_MAP_H
#define TP_STREAM_MAP_H

#include "stream/stream.h"
#include "wire/result.h"

typedef struct tp_stream_map {
    tp_stream **slots; /* open addressing with linear probing; the number of slots is a power of two */
    uint32_t mask;     /* number of slots - 1 */
    uint32_t used;
} tp_stream_map;

tp_result tp_stream_map_init(tp_stream_map *map);
void tp_stream_map_clear(tp_stream_map *map);

/* Adds a stream whose key is not in the map. It must be removed before it is freed. */
tp_result tp_stream_map_add(tp_stream_map *map, tp_stream *stream);
/* Does nothing if the stream is not in the map. */
void tp_stream_map_remove(tp_stream_map *map, tp_stream *stream);

/* The slot at which the search for a key begins. The keys of a client differ in their low bits; the
 * multiplication spreads neighbours over the map. */
static inline uint32_t tp_stream_map_home(const tp_stream_map *map, uint64_t key) {
    return (uint32_t)((key * UINT64_C(0x9E3779B97F4A7C15)) >> 32) & map->mask;
}

/* Returns the stream of a key, or NULL. */
static inline tp_stream *tp_stream_map_find(const tp_stream_map *map, uint64_t key) {
    for (uint32_t i = tp_stream_map_home(map, key);; i = (i + 1) & map->mask) {
        tp_stream *stream = map->slots[i];
        if (stream == NULL || stream->key == key) {
            return stream;
        }
    }
}

#endif
