/* All numbers of the wire: kinds, columns, statuses, limits and the bits of a handle.
 * docs/wire.md explains them. tests/wire/test_layout.py compares them with Python's. */
#ifndef TP_LAYOUT_H
#define TP_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#define TP_WIRE_VERSION 1

/* Marks the functions that a publish, a feed or a flush calls for each frame or row. The linker places them
 * side by side, so that they take few pages and cache lines. */
#define TP_HOT __attribute__((hot))

/* First element of every frame: [kind, version, header, body]. */
enum tp_kind { TP_KIND_LANE = 0, TP_KIND_STEP = 1, TP_KIND_OUTPUT = 2, TP_KIND_CONTROL = 3 };

/* handle = dp (12 bits) | slot (16) | generation (35, from 1); always > 0 as int64 */
#define TP_GENERATION_BITS 35
#define TP_SLOT_BITS       16
#define TP_DP_BITS         12
#define TP_HANDLE_DP(h)    ((uint32_t)((uint64_t)(h) >> (TP_SLOT_BITS + TP_GENERATION_BITS)))
#define TP_HANDLE_SLOT(h)  ((uint32_t)(((uint64_t)(h) >> TP_GENERATION_BITS) & ((1u << TP_SLOT_BITS) - 1)))
#define TP_HANDLE_GENERATION(h) ((uint64_t)(h) & ((UINT64_C(1) << TP_GENERATION_BITS) - 1))

enum tp_row_status {
    TP_ROW_OK = 0,
    TP_ROW_DRAINED = 1,
    TP_ROW_RECOVERY_STOP = 2,
    TP_ROW_ERROR = 3,
    TP_ROW_BAD_TOKEN = 4,
    TP_ROW_FINISHED = 5,
    TP_ROW_REFUSED = 6,
    TP_ROW_STATUS_END = 7
};

enum tp_finish {
    TP_FINISH_NONE = 0,
    TP_FINISH_STOP = 1,
    TP_FINISH_LENGTH = 2,
    TP_FINISH_ABORT = 3,
    TP_FINISH_ERROR = 4,
    TP_FINISH_END = 5
};

/* The kind of error that ended a request. It tells whether the caller made the error, and whether another
 * attempt can help. */
enum tp_error_code {
    TP_ERROR_NONE = 0,        /* it did not end with an error */
    TP_ERROR_INVALID = 1,     /* the request cannot be served as it is */
    TP_ERROR_UNAVAILABLE = 2, /* nobody can serve it now */
    TP_ERROR_LOST = 3,        /* a process that held the request died */
    TP_ERROR_SLOW = 4,        /* its client, or the reader of its stream, did not take output in time */
    TP_ERROR_GAP = 5,         /* a part of its output did not arrive */
    TP_ERROR_INTERNAL = 6,    /* the engine, its worker or tokenpipe failed on it */
    TP_ERROR_CRASHES = 7,     /* its workers died again and again while they ran it */
    TP_ERROR_END = 8
};

/* Columns of a StepFrame. Little-endian arrays in msgpack bins; an absent column is its default. */
enum tp_step_column {
    TP_STEP_HANDLES = 1,     /* i64[rows], absent: the handles of the frame before */
    TP_STEP_COUNTS = 2,      /* u16[rows], default all 1 */
    TP_STEP_TOKENS = 3,      /* i32[tokens], required when tokens > 0 */
    TP_STEP_STATUS = 4,      /* u8[rows], default all 0 (ok) */
    TP_STEP_POSITION = 5,    /* u32[rows], tokens this handle produced before this row; default all 0 */
    TP_STEP_LP_K = 6,        /* i32[rows], top-k entries per token, -1 = no logprobs; default all -1 */
    TP_STEP_LP_IDS = 7,      /* i32[entries], per token 1+k ids, sampled first */
    TP_STEP_LP_VALUES = 8,   /* f32[entries], as ids */
    TP_STEP_LP_RANKS = 9,    /* i32[lp_tokens], rank of the sampled token, one per token with logprobs */
    TP_STEP_EXTRAS_LEN = 10, /* u32[rows], bytes of its extras, default all 0 */
    TP_STEP_EXTRAS = 11      /* the bytes, rows one after another; C does not read them */
};
#define TP_STEP_LAST TP_STEP_EXTRAS

/* Columns of an OutputFrame. */
enum tp_output_column {
    TP_OUT_KEYS = 1,        /* u64[rows], request key (internal id) */
    TP_OUT_COUNTS = 2,      /* u32[rows], default all 1 */
    TP_OUT_TOKENS = 3,      /* i32[tokens] */
    TP_OUT_OFFSETS = 4,     /* u32[rows], output tokens of the request before this row; a final row
                             * without tokens may say TP_OFFSET_UNKNOWN: then its request ends after
                             * the tokens that the client has */
    TP_OUT_FINISH = 5,      /* u8[rows], enum tp_finish, default all 0 */
    TP_OUT_STOP_REASON = 6, /* i32[rows], token id or -1; default all -1 */
    TP_OUT_LP_K = 7,        /* as in a StepFrame */
    TP_OUT_LP_IDS = 8,
    TP_OUT_LP_VALUES = 9,
    TP_OUT_LP_RANKS = 10,
    TP_OUT_ERROR_LEN = 11,     /* u16[rows], bytes of UTF-8 per row, default all 0 */
    TP_OUT_ERROR = 12,         /* the bytes, rows one after another */
    TP_OUT_TEXT_LEN = 13,      /* u32[rows], bytes of UTF-8 per row, default all 0 */
    TP_OUT_TEXT = 14,          /* the bytes, rows one after another */
    TP_OUT_TEXT_OFFSET = 15,   /* u32[rows], bytes of the request's text before the row's */
    TP_OUT_STOP_STRING = 16,   /* i32[rows], which of its stop strings ended it, or -1; default -1 */
    TP_OUT_CACHED = 17,        /* u32[rows], prompt tokens that a cache had, in a final row; default 0 */
    TP_OUT_EXTRAS_LEN = 18,    /* u32[rows], bytes of the request's extras that are new, default all 0 */
    TP_OUT_EXTRAS = 19,        /* the bytes, rows one after another */
    TP_OUT_EXTRAS_OFFSET = 20, /* u64[rows], bytes of the request's extras before the row's */
    TP_OUT_ERROR_CODE = 21,    /* u8[rows], enum tp_error_code, default all 0 */
    TP_OUT_ERROR_FIELD = 22    /* u8[rows], the last bytes of the row's error that name a field, default 0 */
};
#define TP_OUT_LAST TP_OUT_ERROR_FIELD

#define TP_OFFSET_UNKNOWN UINT32_MAX
#define TP_NO_STOP        (-1) /* of stop_reason and stop_string: nothing of the kind ended it */

#define TP_MAX_ROWS    1048576u
#define TP_MAX_TOKENS  16777216u
#define TP_MAX_ENTRIES 268435456u /* logprobs in a frame */
#define TP_MAX_TEXT    268435456u /* bytes of text in a frame */
#define TP_MAX_EXTRAS  268435456u /* bytes of extras in a frame */
#define TP_MAX_HEADER  32         /* elements of a header array */

/* The first four integers of every header. The transport reads these and nothing else. */
typedef struct tp_lane_header {
    uint64_t instance, sender, receiver, seq;
} tp_lane_header;

static inline uint16_t tp_load_u16(const uint8_t *p) {
    uint16_t v;
    __builtin_memcpy(&v, p, 2);
    return v;
}
static inline uint32_t tp_load_u32(const uint8_t *p) {
    uint32_t v;
    __builtin_memcpy(&v, p, 4);
    return v;
}
static inline int32_t tp_load_i32(const uint8_t *p) {
    int32_t v;
    __builtin_memcpy(&v, p, 4);
    return v;
}
static inline uint64_t tp_load_u64(const uint8_t *p) {
    uint64_t v;
    __builtin_memcpy(&v, p, 8);
    return v;
}
static inline int64_t tp_load_i64(const uint8_t *p) {
    int64_t v;
    __builtin_memcpy(&v, p, 8);
    return v;
}

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the wire is little-endian: a big-endian port must swap bytes in these functions"
#endif

#endif
