/* The output of one request that waits for its reader: tokens, logprobs, text, extras. */
#include "stream/stream.h"

#include <stdlib.h>
#include <string.h>

#include "buffer.h"

#define KEEP_TOKENS 4096u /* if an empty stream has room for more tokens, its memory is freed */

void tp_stream_init(tp_stream *stream, uint64_t key) {
    memset(stream, 0, sizeof *stream);
    stream->key = key;
    stream->stop_reason = stream->stop_string = TP_NO_STOP;
    stream->kind = TP_DELTA;
}

static void free_tokens(tp_stream *stream) {
    const tp_growing all[] = {TP_GROWING(stream->tokens), TP_GROWING(stream->lp_k),
                              TP_GROWING(stream->lp_ranks), TP_GROWING(stream->lp_ids),
                              TP_GROWING(stream->lp_values)};
    tp_buffers_free(all, sizeof all / sizeof *all);
    stream->head = stream->len = stream->capacity = 0;
    stream->lp_head = stream->lp_len = stream->lp_capacity = 0;
}

static void free_bytes(tp_waiting *waiting) {
    free(waiting->bytes);
    waiting->bytes = NULL;
    waiting->len = waiting->capacity = 0;
}

void tp_stream_clear(tp_stream *stream) {
    free_tokens(stream);
    free_bytes(&stream->text);
    if (stream->extras != NULL) {
        free_bytes(stream->extras);
        free(stream->extras);
        stream->extras = NULL;
    }
    free(stream->error);
    stream->error = NULL;
    stream->error_len = 0;
    stream->error_field = 0;
}

/* Moves entries of 4 bytes to the beginning of their array. It is called only if as many were taken before
 * them. So a consumer that takes few of many pays for these few. */
static void slide(void *array, uint32_t head, uint32_t len) {
    uint8_t *bytes = array;
    if (bytes != NULL && head > 0) {
        memmove(bytes, bytes + (size_t)head * 4, (size_t)len * 4);
    }
}

static tp_result reserve_tokens(tp_stream *stream, uint32_t count) {
    const uint64_t need = (uint64_t)stream->len + count;
    if (stream->head + need <= stream->capacity) {
        return TP_OK;
    }
    if (stream->head >= stream->len) {
        slide(stream->tokens, stream->head, stream->len);
        slide(stream->lp_k, stream->head, stream->len);
        slide(stream->lp_ranks, stream->head, stream->len);
        stream->head = 0;
    }
    const tp_growing arrays[] = {TP_GROWING(stream->tokens), TP_GROWING(stream->lp_k),
                                 TP_GROWING(stream->lp_ranks)};
    return tp_buffers_grow(arrays, stream->lp_k == NULL ? 1 : 3, &stream->capacity, stream->head + need);
}

static tp_result reserve_entries(tp_stream *stream, uint64_t count) {
    const uint64_t need = stream->lp_len + count;
    if (stream->lp_head + need <= stream->lp_capacity) {
        return TP_OK;
    }
    if (stream->lp_head >= stream->lp_len) {
        slide(stream->lp_ids, stream->lp_head, stream->lp_len);
        slide(stream->lp_values, stream->lp_head, stream->lp_len);
        stream->lp_head = 0;
    }
    const tp_growing arrays[] = {TP_GROWING(stream->lp_ids), TP_GROWING(stream->lp_values)};
    return tp_buffers_grow(arrays, 2, &stream->lp_capacity, stream->lp_head + need);
}

/* Prepares for the first row with logprobs: the tokens that wait have none. */
static tp_result begin_logprobs(tp_stream *stream) {
    int32_t *k = malloc((size_t)stream->capacity * 4), *ranks = malloc((size_t)stream->capacity * 4);
    if (k == NULL || ranks == NULL) {
        free(k);
        free(ranks);
        return TP_E_MEMORY;
    }
    for (uint32_t i = 0; i < stream->len; i++) {
        k[stream->head + i] = -1;
        ranks[stream->head + i] = 0;
    }
    stream->lp_k = k;
    stream->lp_ranks = ranks;
    return TP_OK;
}

tp_result tp_stream_append(tp_stream *stream, const tp_piece *piece) {
    const uint32_t count = piece->count;
    const uint64_t entries = piece->k < 0 ? 0 : ((uint64_t)piece->k + 1) * count;
    if (count == 0) {
        return TP_OK;
    }
    TP_TRY(reserve_tokens(stream, count));
    if (entries > 0) {
        TP_TRY(reserve_entries(stream, entries));
        TP_TRY(stream->lp_k == NULL ? begin_logprobs(stream) : TP_OK);
        const uint32_t to = stream->lp_head + stream->lp_len;
        memcpy(stream->lp_ids + to, piece->lp_ids, entries * 4);
        memcpy(stream->lp_values + to, piece->lp_values, entries * 4);
        stream->lp_len += (uint32_t)entries;
    }
    const uint32_t at = stream->head + stream->len;
    memcpy(stream->tokens + at, piece->tokens, (size_t)count * 4);
    for (uint32_t i = 0; stream->lp_k != NULL && i < count; i++) {
        stream->lp_k[at + i] = piece->k;
        stream->lp_ranks[at + i] = piece->k < 0 ? 0 : tp_load_i32(piece->lp_ranks + 4 * (size_t)i);
    }
    stream->len += count;
    return TP_OK;
}

static tp_result append_bytes(tp_waiting *to, const uint8_t *bytes, uint32_t size) {
    TP_TRY(tp_buffer_grow(&to->bytes, 1, &to->capacity, (uint64_t)to->len + size));
    memcpy(to->bytes + to->len, bytes, size);
    to->len += size;
    return TP_OK;
}

tp_result tp_stream_append_text(tp_stream *stream, const uint8_t *text, uint32_t size) {
    return append_bytes(&stream->text, text, size);
}

tp_result tp_stream_append_extras(tp_stream *stream, const uint8_t *extras, uint32_t size) {
    if (stream->extras == NULL && (stream->extras = calloc(1, sizeof *stream->extras)) == NULL) {
        return TP_E_MEMORY;
    }
    return append_bytes(stream->extras, extras, size);
}

static void took_bytes(tp_waiting *from) {
    from->offset += from->len;
    from->len = 0;
    if (from->capacity > KEEP_TOKENS * 4) {
        free_bytes(from);
    }
}

void tp_stream_took_extras(tp_stream *stream) { took_bytes(stream->extras); }

void tp_stream_end(tp_stream *stream, const tp_ending *ending) {
    if (stream->finish != TP_FINISH_NONE) {
        return;
    }
    stream->finish = ending->finish < TP_FINISH_END ? ending->finish : TP_FINISH_ERROR;
    stream->error_code = TP_ERROR_NONE;
    if (stream->finish == TP_FINISH_ERROR) {
        const int known = ending->error_code != TP_ERROR_NONE && ending->error_code < TP_ERROR_END;
        stream->error_code = known ? ending->error_code : TP_ERROR_INTERNAL;
    }
    stream->stop_reason = ending->stop_reason;
    stream->stop_string = ending->stop_string;
    if (ending->error_len > 0 && (stream->error = malloc(ending->error_len)) != NULL) {
        memcpy(stream->error, ending->error, ending->error_len);
        stream->error_len = ending->error_len;
        stream->error_field = ending->error_field <= ending->error_len ? ending->error_field : 0;
    }
}

void tp_stream_took(tp_stream *stream, uint32_t count, uint32_t entries) {
    if (stream->kind != TP_DELTA) {
        stream->shown = stream->len;
        stream->text_shown = stream->text.len;
        return;
    }
    took_bytes(&stream->text);
    stream->offset += count;
    stream->head += count;
    stream->len -= count;
    stream->lp_head += entries;
    stream->lp_len -= entries;
    if (stream->len == 0) {
        stream->head = stream->lp_head = 0;
        if (stream->capacity > KEEP_TOKENS || stream->lp_capacity > KEEP_TOKENS) {
            free_tokens(stream);
        }
    }
}
