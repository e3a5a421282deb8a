/* The beginning of every frame: kind, version and the lane header. */
#ifndef TP_ENVELOPE_H
#define TP_ENVELOPE_H

#include "wire/layout.h"
#include "wire/msgpack.h"
#include "wire/result.h"

#define TP_LANE_FIELDS 4 /* instance, sender, receiver, seq */

/* Reads kind, version and the head of the header array. *elements is the length of that array. */
tp_result tp_envelope_read(tp_reader *r, uint32_t *kind, uint32_t *elements);

/* Whether the first byte is that of an array, as in every frame. No routing id of a lane begins so. */
static inline int tp_frame_looks(const uint8_t *data, size_t size) {
    return size > 0 && ((data[0] & 0xf0) == 0x90 || data[0] == 0xdc || data[0] == 0xdd);
}

/* Reads only kind, version and the lane header. *kind is set even if the version is unknown. */
tp_result tp_frame_peek(const uint8_t *data, size_t size, uint32_t *kind, tp_lane_header *lane);

/* Reads an acknowledgement of a lane (docs/lanes.md) in the form that this library writes. Any other form,
 * and any other message, gives TP_E_MSGPACK. */
tp_result tp_ack_read(const uint8_t *data, size_t size, tp_lane_header *lane, uint64_t *applied);

#endif
