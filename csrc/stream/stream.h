/* The output of one request that its consumer has not taken. */
#ifndef TP_STREAM_H
#define TP_STREAM_H

#include "wire/layout.h"
#include "wire/result.h"

/* The kind of an item. types.RequestOutputKind has the same numbers. */
enum tp_output_kind { TP_CUMULATIVE = 0, TP_DELTA = 1, TP_FINAL_ONLY = 2 };

/* Bytes that wait for the consumer: text or extras. */
typedef struct tp_waiting {
    uint8_t *bytes;
    uint32_t len, capacity;
    uint64_t offset; /* bytes that the consumer took before */
} tp_waiting;

typedef struct tp_stream {
    uint64_t key;
    uint32_t offset;              /* output tokens that the consumer took: the offset of tokens[head] */
    uint32_t head, len, capacity; /* tokens[head .. head + len) wait */
    int32_t *tokens;
    /* Logprobs: NULL until a row has some. lp_k and lp_ranks have one entry for each token (k -1: no
     * logprobs). lp_ids and lp_values have 1 + k entries for each token with logprobs. */
    int32_t *lp_k, *lp_ranks;
    int32_t *lp_ids;
    float *lp_values;
    uint32_t lp_head, lp_len, lp_capacity;
    tp_waiting text;    /* whole characters of UTF-8 */
    tp_waiting *extras; /* NULL until some came. They wake nobody, because tokens or the end follow */
    int32_t stop_reason, stop_string;
    uint32_t cached; /* prompt tokens that came from a cache */
    uint32_t error_len;
    char *error; /* UTF-8 without a terminator: the text, then the name of a field; NULL: none */
    uint32_t shown, text_shown; /* cumulative: tokens and text bytes that the last item had */
    uint8_t kind;
    uint8_t finish;      /* enum tp_finish */
    uint8_t error_code;  /* enum tp_error_code */
    uint8_t error_field; /* bytes at the end of `error` that name the wrong field */
    uint8_t told;        /* the consumer has taken the end */
    uint8_t listed;      /* an inbox holds it */
} tp_stream;

/* The tokens of one row, unaligned as they are in the frame. */
typedef struct tp_piece {
    const uint8_t *tokens;
    uint32_t count;
    int32_t k; /* -1: no logprobs, and the pointers below are not read */
    const uint8_t *lp_ids, *lp_values, *lp_ranks;
} tp_piece;

/* How a request ended. */
typedef struct tp_ending {
    uint8_t finish, error_code, error_field;
    int32_t stop_reason, stop_string;
    const uint8_t *error; /* UTF-8; its last `error_field` bytes name the wrong field */
    uint32_t error_len;
} tp_ending;

void tp_stream_init(tp_stream *stream, uint64_t key);
/* Frees everything that the stream holds, also output that waits. */
void tp_stream_clear(tp_stream *stream);

/* Each of these appends all. On TP_E_MEMORY, it appends nothing. */
tp_result tp_stream_append(tp_stream *stream, const tp_piece *piece);
tp_result tp_stream_append_text(tp_stream *stream, const uint8_t *text, uint32_t size);
tp_result tp_stream_append_extras(tp_stream *stream, const uint8_t *extras, uint32_t size);

/* Sets the end. Only the first end counts. The error is copied. If there is no memory, it is left out. An
 * unknown finish or error code, or an error without a code, is an internal error. A field that is longer than
 * the error is left out. */
void tp_stream_end(tp_stream *stream, const tp_ending *ending);

/* The consumer took the first `count` tokens and all text. `entries` is the number of their logprob entries.
 * They are kept if the next item has to hold them again. */
void tp_stream_took(tp_stream *stream, uint32_t count, uint32_t entries);
/* The consumer took all extras. */
void tp_stream_took_extras(tp_stream *stream);

static inline size_t tp_stream_bytes(const tp_stream *stream) {
    size_t bytes = (size_t)stream->len * 4 + stream->text.len;
    if (stream->extras != NULL) {
        bytes += stream->extras->len;
    }
    if (stream->lp_k != NULL) {
        bytes += (size_t)stream->len * 8 + (size_t)stream->lp_len * 8;
    }
    return bytes;
}

static inline size_t tp_piece_bytes(const tp_piece *piece) {
    size_t entries = piece->k < 0 ? 0 : (size_t)piece->k + 1;
    return (size_t)piece->count * (entries == 0 ? 4 : 12 + 8 * entries);
}

/* Whether the consumer can take an item. */
static inline int tp_stream_ready(const tp_stream *stream) {
    const int ends = stream->finish != TP_FINISH_NONE && !stream->told;
    if (stream->kind != TP_DELTA) {
        return ends || (stream->kind == TP_CUMULATIVE && !stream->told &&
                        (stream->len > stream->shown || stream->text.len > stream->text_shown));
    }
    return stream->len > 0 || stream->text.len > 0 || ends;
}

#endif
