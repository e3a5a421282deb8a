/* A queue of tokens in three growing arrays. */
#include "stream/stream.h"

#include <stdlib.h>
#include <string.h>

#define KEEP_TOKENS 4096u /* an emptied stream that once held more gives its memory back */

void tp_stream_init(tp_stream *stream, uint64_t key) {
    memset(stream, 0, sizeof *stream);
    stream->key = key;
    stream->stop_reason = stream->stop_string = TP_NO_STOP;
    stream->kind = TP_DELTA;
}

static void drop_buffers(tp_stream *stream) {
    free(stream->tokens);
    free(stream->lp_k);
    free(stream->lp_ranks);
    free(stream->lp_ids);
    free(stream->lp_values);
    stream->tokens = stream->lp_k = stream->lp_ranks = stream->lp_ids = NULL;
    stream->lp_values = NULL;
    stream->head = stream->len = stream->cap = 0;
    stream->lp_head = stream->lp_len = stream->lp_cap = 0;
}

void tp_stream_clear(tp_stream *stream) {
    drop_buffers(stream);
    free(stream->text);
    stream->text = NULL;
    stream->text_len = stream->text_cap = 0;
    if (stream->annex != NULL) {
        free(stream->annex->bytes);
        free(stream->annex);
        stream->annex = NULL;
    }
    free(stream->error);
    stream->error = NULL;
    stream->error_len = 0;
    stream->error_field = 0;
}

/* Grows one array of 4-byte items; the old one stays valid on failure. */
static int grow(void *array, size_t items) {
    void **where = array, *larger = realloc(*where, items * 4);
    if (larger == NULL) {
        return 0;
    }
    *where = larger;
    return 1;
}

static size_t capacity_for(size_t items) {
    size_t cap = 16;
    while (cap < items) {
        cap *= 2;
    }
    return cap;
}

static void slide(void *array, uint32_t head, uint32_t len) {
    uint8_t *bytes = array;
    if (bytes != NULL && head > 0) {
        memmove(bytes, bytes + (size_t)head * 4, (size_t)len * 4);
    }
}

static int room_for_tokens(tp_stream *stream, uint32_t count) {
    size_t need = (size_t)stream->len + count;
    if ((size_t)stream->head + need <= stream->cap) {
        return 1;
    }
    if (stream->head > 0) {
        slide(stream->tokens, stream->head, stream->len);
        slide(stream->lp_k, stream->head, stream->len);
        slide(stream->lp_ranks, stream->head, stream->len);
        stream->head = 0;
    }
    if (need <= stream->cap) {
        return 1;
    }
    size_t cap = capacity_for(need);
    if (!grow(&stream->tokens, cap)) {
        return 0;
    }
    if (stream->lp_k != NULL && (!grow(&stream->lp_k, cap) || !grow(&stream->lp_ranks, cap))) {
        return 0;
    }
    stream->cap = (uint32_t)cap;
    return 1;
}

static int room_for_entries(tp_stream *stream, size_t count) {
    size_t need = stream->lp_len + count;
    if (stream->lp_head + need <= stream->lp_cap) {
        return 1;
    }
    slide(stream->lp_ids, stream->lp_head, stream->lp_len);
    slide(stream->lp_values, stream->lp_head, stream->lp_len);
    stream->lp_head = 0;
    if (need <= stream->lp_cap) {
        return 1;
    }
    size_t cap = capacity_for(need);
    if (cap > UINT32_MAX || !grow(&stream->lp_ids, cap) || !grow(&stream->lp_values, cap)) {
        return 0;
    }
    stream->lp_cap = (uint32_t)cap;
    return 1;
}

/* The first row with logprobs: tokens that already wait have none. */
static int begin_logprobs(tp_stream *stream) {
    int32_t *k = malloc((size_t)stream->cap * 4), *ranks = malloc((size_t)stream->cap * 4);
    if (k == NULL || ranks == NULL) {
        free(k);
        free(ranks);
        return 0;
    }
    for (uint32_t i = 0; i < stream->len; i++) {
        k[stream->head + i] = -1;
        ranks[stream->head + i] = 0;
    }
    stream->lp_k = k;
    stream->lp_ranks = ranks;
    return 1;
}

tp_result tp_stream_append(tp_stream *stream, const tp_piece *piece) {
    uint32_t count = piece->count;
    if (count == 0) {
        return TP_OK;
    }
    size_t entries = piece->k < 0 ? 0 : ((size_t)piece->k + 1) * count;
    if (!room_for_tokens(stream, count) || (entries > 0 && stream->lp_k == NULL && !begin_logprobs(stream)) ||
        (entries > 0 && !room_for_entries(stream, entries))) {
        return TP_E_MEMORY;
    }
    uint32_t at = stream->head + stream->len;
    memcpy(stream->tokens + at, piece->tokens, (size_t)count * 4);
    if (stream->lp_k != NULL) {
        for (uint32_t i = 0; i < count; i++) {
            stream->lp_k[at + i] = piece->k;
            stream->lp_ranks[at + i] = piece->k < 0 ? 0 : tp_load_i32(piece->lp_ranks + 4 * i);
        }
    }
    if (entries > 0) {
        uint32_t to = stream->lp_head + stream->lp_len;
        memcpy(stream->lp_ids + to, piece->lp_ids, entries * 4);
        memcpy(stream->lp_values + to, piece->lp_values, entries * 4);
        stream->lp_len += (uint32_t)entries;
    }
    stream->len += count;
    return TP_OK;
}

static tp_result append_bytes(uint8_t **to, uint32_t *len, uint32_t *capacity, const uint8_t *bytes,
                              uint32_t size) {
    const size_t need = (size_t)*len + size;
    if (need > *capacity) {
        const size_t cap = need * 2 < 64 ? 64 : need * 2;
        uint8_t *larger = cap > UINT32_MAX ? NULL : realloc(*to, cap);
        if (larger == NULL) {
            return TP_E_MEMORY;
        }
        *to = larger;
        *capacity = (uint32_t)cap;
    }
    memcpy(*to + *len, bytes, size);
    *len += size;
    return TP_OK;
}

tp_result tp_stream_append_text(tp_stream *stream, const uint8_t *text, uint32_t size) {
    return append_bytes(&stream->text, &stream->text_len, &stream->text_cap, text, size);
}

tp_result tp_stream_append_annex(tp_stream *stream, const uint8_t *annex, uint32_t size) {
    if (stream->annex == NULL && (stream->annex = calloc(1, sizeof *stream->annex)) == NULL) {
        return TP_E_MEMORY;
    }
    tp_waiting *to = stream->annex;
    return append_bytes(&to->bytes, &to->len, &to->capacity, annex, size);
}

void tp_stream_took_annex(tp_stream *stream) {
    tp_waiting *from = stream->annex;
    from->offset += from->len;
    from->len = 0;
    if (from->capacity > KEEP_TOKENS * 4) {
        free(from->bytes);
        from->bytes = NULL;
        from->capacity = 0;
    }
}

static void took_text(tp_stream *stream) {
    stream->text_offset += stream->text_len;
    stream->text_len = 0;
    if (stream->text_cap > KEEP_TOKENS * 4) {
        free(stream->text);
        stream->text = NULL;
        stream->text_cap = 0;
    }
}

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
        stream->text_shown = stream->text_len;
        return;
    }
    took_text(stream);
    stream->offset += count;
    stream->head += count;
    stream->len -= count;
    stream->lp_head += entries;
    stream->lp_len -= entries;
    if (stream->len == 0) {
        stream->head = stream->lp_head = 0;
        if (stream->cap > KEEP_TOKENS || stream->lp_cap > KEEP_TOKENS) {
            drop_buffers(stream);
        }
    }
}
