/* Detokenizes into a buffer, and searches it. */
#include "text/text.h"

#include <stdlib.h>
#include <string.h>

#include "buffer.h"

/* Moves the text to the beginning of its allocation. */
static void unshift(tp_text *t) {
    uint8_t *begin = t->buffer - t->shifted;
    memmove(begin, t->buffer, t->len);
    t->buffer = begin;
    t->capacity += t->shifted;
    t->shifted = 0;
}

/* A text is moved only if as much was sent before it. Else the work for a long text that is sent in small
 * parts would grow with its square. */
void tp_text_shift(tp_text *t, uint32_t bytes) {
    if (t->buffer == t->few || t->capacity - bytes < TP_WORD_SHORT) {
        memmove(t->buffer, t->buffer + bytes, t->len);
        return;
    }
    t->buffer += bytes;
    t->capacity -= bytes;
    t->shifted += bytes;
    if (t->shifted >= t->len) {
        unshift(t);
    }
}

static tp_result reserve(tp_text *t, size_t more) {
    const uint64_t need = (uint64_t)t->len + more;
    if (need <= t->capacity) {
        return TP_OK;
    }
    if (t->buffer != t->few) {
        const int rarely = t->shifted >= t->len; /* else it grows too, so that it moves rarely */
        unshift(t);
        const tp_result result = rarely && need <= t->capacity
                                     ? TP_OK
                                     : tp_buffer_grow(&t->buffer, 1, &t->capacity,
                                                      need > t->capacity ? need : t->capacity + UINT64_C(1));
        return need <= t->capacity ? TP_OK : result;
    }
    uint8_t *buffer = NULL;
    uint32_t capacity = 0;
    TP_TRY(tp_buffer_grow(&buffer, 1, &capacity, need));
    memcpy(buffer, t->few, t->len);
    t->buffer = buffer;
    t->capacity = capacity;
    return TP_OK;
}

/* Adds the text of a token. For a token < 0, adds the text of the end. */
static tp_result read_token(tp_text *t, int32_t token) {
    const tp_foreign *foreign = t->vocab->foreign;
    if (foreign != NULL) {
        const char *text;
        size_t size;
        if (foreign->step(foreign->context, t->stream, token, &text, &size) < 0) {
            return TP_E_FOREIGN;
        }
        if (reserve(t, size) != TP_OK) {
            return TP_E_MEMORY;
        }
        if (size > 0) { /* else `text` may be NULL */
            memcpy(t->buffer + t->len, text, size);
            t->len += (uint32_t)size;
        }
        return TP_OK;
    }
    if (token < 0) { /* each token made room for an end */
        t->len += (uint32_t)tp_detok_end(&t->detok, t->vocab, t->buffer + t->len);
        return TP_OK;
    }
    if (reserve(t, tp_detok_room(t->vocab, token)) != TP_OK) {
        return TP_E_MEMORY;
    }
    t->len += (uint32_t)tp_detok_step(&t->detok, t->vocab, token, t->buffer + t->len);
    return TP_OK;
}

/* Begins the stream of a foreign decoder. */
static tp_result begin(tp_text *t, const tp_text_options *options) {
    const tp_foreign *foreign = t->vocab->foreign;
    if (foreign == NULL) {
        return TP_OK;
    }
    if (t->stream != NULL) {
        foreign->drop(foreign->context, t->stream);
    }
    t->stream = foreign->begin(foreign->context, options->skip_special, options->spaces);
    return t->stream == NULL ? TP_E_FOREIGN : TP_OK;
}

/* Reads the end of the prompt, whose text is not shown. */
static tp_result prime(tp_text *t, const tp_text_options *options) {
    if (options->prompt_cut) {
        tp_detok_continue(&t->detok);
    }
    for (uint32_t i = 0; i < options->prompt_count; i++) {
        const tp_result result = options->prompt[i] < 0 ? TP_OK : read_token(t, options->prompt[i]);
        t->len = 0;
        if (result == TP_E_FOREIGN) { /* the output may still be decoded without it */
            return begin(t, options);
        }
        TP_TRY(result);
    }
    return TP_OK;
}

/* Fills a text that is all zero. */
static tp_result fill(tp_text *t, const tp_vocab *vocab, const tp_text_options *options) {
    t->buffer = t->few;
    t->capacity = sizeof t->few;
    t->vocab = vocab;
    t->include_stop = options->include_stop;
    tp_detok_init(&t->detok, vocab, options->skip_special, options->spaces);
    if (options->stop_count > 0) {
        TP_TRY(
            tp_stops_get(options->pool, options->stops, options->stop_sizes, options->stop_count, &t->stops));
        t->stop_first = t->stops->first;
    }
    TP_TRY(begin(t, options));
    return prime(t, options);
}

tp_result tp_text_new(const tp_vocab *vocab, const tp_text_options *options, tp_text **made) {
    tp_text *t = aligned_alloc(64, sizeof *t);
    *made = NULL;
    if (t == NULL) {
        return TP_E_MEMORY;
    }
    memset(t, 0, sizeof *t);
    const tp_result result = fill(t, vocab, options);
    if (result != TP_OK) {
        tp_text_free(t);
        return result;
    }
    *made = t;
    return TP_OK;
}

void tp_text_free(tp_text *t) {
    if (t != NULL) {
        tp_stops_put(t->stops);
        if (t->stream != NULL) {
            t->vocab->foreign->drop(t->vocab->foreign->context, t->stream);
        }
        if (t->buffer != t->few) {
            free(t->buffer - t->shifted);
        }
        free(t);
    }
}

tp_result tp_text_set_mark(const tp_text *t, tp_text_mark *mark) {
    *mark = (tp_text_mark){NULL, t->detok, t->len, t->state};
    if (t->stream != NULL) {
        mark->stream = t->vocab->foreign->copy(t->vocab->foreign->context, t->stream);
    }
    return t->stream != NULL && mark->stream == NULL ? TP_E_FOREIGN : TP_OK;
}

void tp_text_roll_back(tp_text *t, tp_text_mark *mark) {
    void *stream = t->stream;
    t->stream = mark->stream;
    mark->stream = stream;
    t->detok = mark->detok;
    t->len = mark->len;
    t->state = mark->state;
    tp_text_drop_mark(t, mark);
}

void tp_text_drop_mark(tp_text *t, tp_text_mark *mark) {
    if (mark->stream != NULL) {
        t->vocab->foreign->drop(t->vocab->foreign->context, mark->stream);
        mark->stream = NULL;
    }
}

TP_HOT tp_result tp_text_step(tp_text *t, int32_t token, int counts, int32_t *stop) {
    *stop = -1;
    if (tp_text_plain(t, t->vocab, token)) {
        return TP_OK;
    }
    uint32_t at = t->len;
    const tp_result result = token < 0 ? TP_OK : read_token(t, token);
    if (result != TP_OK) {
        return result;
    }
    while (t->stops != NULL && at < t->len) {
        int32_t found;
        at += (uint32_t)tp_stops_scan(t->stops, &t->state, t->buffer + at, t->len - at, &found);
        if (found >= 0 && counts) {
            t->len = t->include_stop ? at : at - t->stops->sizes[found];
            t->ready = t->len;
            t->ended = 1;
            *stop = found;
            break;
        }
    }
    return TP_OK;
}

void tp_text_end(tp_text *t) {
    if (!t->ended) {
        (void)read_token(t, -1); /* if a foreign decoder fails, it adds nothing */
        t->ready = t->len;
        t->ended = 1;
    }
}

size_t tp_text_tail(const tp_text *t, uint8_t *out, size_t room) {
    const size_t held = t->len - t->ready;
    const tp_foreign *foreign = t->vocab->foreign;
    tp_detok detok = t->detok;
    uint8_t last[16];
    const char *more = (const char *)last;
    size_t size = 0;
    void *copy = NULL;
    if (t->ended) {
        ;
    } else if (foreign == NULL) {
        size = tp_detok_end(&detok, t->vocab, last);
    } else if ((copy = foreign->copy(foreign->context, t->stream)) == NULL ||
               foreign->step(foreign->context, copy, -1, &more, &size) < 0) {
        size = 0;
    }
    if (held + size <= room) {
        if (held > 0) {
            memcpy(out, t->buffer + t->ready, held);
        }
        if (size > 0) {
            memcpy(out + held, more, size);
        }
    }
    if (copy != NULL) {
        foreign->drop(foreign->context, copy);
    }
    return held + size;
}
