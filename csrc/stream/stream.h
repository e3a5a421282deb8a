/* What one request has got and its consumer has not taken yet. No Python, no clock. */
#ifndef TP_STREAM_H
#define TP_STREAM_H

#include "wire/layout.h"
#include "wire/result.h"

/* What an item holds; numbered as types.RequestOutputKind. */
enum tp_output_kind { TP_CUMULATIVE = 0, TP_DELTA = 1, TP_FINAL_ONLY = 2 };

/* Annexes that wait. They wake nobody, for tokens or the end follow them. */
typedef struct tp_waiting {
    uint8_t *bytes;
    uint32_t len, capacity;
    uint64_t offset; /* bytes of annexes handed out so far */
} tp_waiting;

typedef struct tp_stream {
    uint64_t key;
    uint32_t offset;         /* output tokens handed out so far: the offset of tokens[head] */
    uint32_t head, len, cap; /* tokens[head .. head + len) wait */
    int32_t *tokens;
    /* Logprobs: NULL until a row brings some. k and ranks run beside tokens (k -1: none for that
     * token), ids and values hold 1 + k entries for each token that has them. */
    int32_t *lp_k, *lp_ranks;
    int32_t *lp_ids;
    float *lp_values;
    uint32_t lp_head, lp_len, lp_cap;
    uint8_t *text; /* UTF-8 that waits, whole characters */
    uint32_t text_len, text_cap;
    uint32_t text_offset; /* bytes of text handed out so far */
    int32_t stop_reason, stop_string;
    uint32_t cached; /* prompt tokens that a cache had */
    uint32_t error_len;
    char *error;                /* UTF-8: text, then field; not terminated; NULL if none */
    struct tp_waiting *annex;   /* NULL until some came */
    uint32_t shown, text_shown; /* cumulative: how much of it the last item had */
    uint8_t kind;
    uint8_t finish;      /* enum tp_finish */
    uint8_t error_code;  /* enum tp_error_code */
    uint8_t error_field; /* the last bytes of `error` that are the name of the field to blame */
    uint8_t told;        /* the end was handed out */
    uint8_t listed;      /* an inbox knows it */
} tp_stream;

/* Tokens of one row, unaligned as they lie in a frame. */
typedef struct tp_piece {
    const uint8_t *tokens;
    uint32_t count;
    int32_t k; /* -1: no logprobs, then the three below are not read */
    const uint8_t *lp_ids, *lp_values, *lp_ranks;
} tp_piece;

void tp_stream_init(tp_stream *stream, uint64_t key);
void tp_stream_clear(tp_stream *stream); /* frees what it holds; tokens that wait are gone */

/* Takes all of the piece or, on TP_E_MEMORY, nothing. */
tp_result tp_stream_append(tp_stream *stream, const tp_piece *piece);

/* Takes all of the text, or none on TP_E_MEMORY. */
tp_result tp_stream_append_text(tp_stream *stream, const uint8_t *text, uint32_t size);

tp_result tp_stream_append_annex(tp_stream *stream, const uint8_t *annex, uint32_t size);
void tp_stream_took_annex(tp_stream *stream); /* all of it */

/* How a request ended. */
typedef struct tp_ending {
    uint8_t finish, error_code, error_field;
    int32_t stop_reason, stop_string;
    const uint8_t *error; /* UTF-8; its last `error_field` bytes are the name of the field to blame */
    uint32_t error_len;
} tp_ending;

/* Sets the end; the first one wins. The error is copied; without memory the end has none. A finish or
 * an error's code that is none of ours, or an error without one, is an internal error. A field
 * that is longer than the error is none. */
void tp_stream_end(tp_stream *stream, const tp_ending *ending);

/* The first `count` waiting tokens, with `entries` logprob entries, and all text were handed out.
 * They stay where the next item is to hold them again. */
void tp_stream_took(tp_stream *stream, uint32_t count, uint32_t entries);

static inline size_t tp_stream_bytes(const tp_stream *stream) {
    size_t bytes = (size_t)stream->len * 4 + stream->text_len;
    if (stream->annex != NULL) {
        bytes += stream->annex->len;
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

static inline int tp_stream_ready(const tp_stream *stream) {
    const int ends = stream->finish != TP_FINISH_NONE && !stream->told;
    if (stream->kind != TP_DELTA) {
        return ends || (stream->kind == TP_CUMULATIVE && !stream->told &&
                        (stream->len > stream->shown || stream->text_len > stream->text_shown));
    }
    return stream->len > 0 || stream->text_len > 0 || ends;
}

#endif
