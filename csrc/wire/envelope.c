/* Reads the beginning of every frame. */
#include "wire/envelope.h"

tp_result tp_envelope_read(tp_reader *r, uint32_t *kind, uint32_t *elements) {
    uint32_t four, version;
    *kind = UINT32_MAX;
    TP_TRY(tp_read_array(r, &four));
    if (four != 4) {
        return TP_E_MSGPACK;
    }
    TP_TRY(tp_read_u32(r, kind));
    TP_TRY(tp_read_u32(r, &version));
    if (version != TP_WIRE_VERSION) {
        return TP_E_VERSION;
    }
    if (*kind > TP_KIND_CONTROL) {
        return TP_E_KIND;
    }
    TP_TRY(tp_read_array(r, elements));
    return *elements < TP_LANE_FIELDS || *elements > TP_MAX_HEADER ? TP_E_HEADER : TP_OK;
}

static tp_result read_lane(tp_reader *r, tp_lane_header *lane) {
    TP_TRY(tp_read_uint(r, &lane->instance));
    TP_TRY(tp_read_uint(r, &lane->sender));
    TP_TRY(tp_read_uint(r, &lane->receiver));
    return tp_read_uint(r, &lane->seq);
}

tp_result tp_frame_peek(const uint8_t *data, size_t size, uint32_t *kind, tp_lane_header *lane) {
    tp_reader r = {data, data + size};
    uint32_t elements;
    TP_TRY(tp_envelope_read(&r, kind, &elements));
    return read_lane(&r, lane);
}

tp_result tp_ack_read(const uint8_t *data, size_t size, tp_lane_header *lane, uint64_t *applied) {
    static const char body[] = "\x82\xa4type\xa3"
                               "ack\xa7"
                               "applied";
    const size_t length = sizeof body - 1;
    tp_reader r = {data, data + size};
    uint32_t kind, elements;
    TP_TRY(tp_envelope_read(&r, &kind, &elements));
    TP_TRY(read_lane(&r, lane));
    if (kind != TP_KIND_LANE || elements != TP_LANE_FIELDS || tp_left(&r) <= length ||
        memcmp(r.at, body, length) != 0) {
        return TP_E_MSGPACK;
    }
    r.at += length;
    TP_TRY(tp_read_uint(&r, applied));
    return tp_left(&r) == 0 ? TP_OK : TP_E_TRAILING;
}
