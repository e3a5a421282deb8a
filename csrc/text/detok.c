/* Turns invalid bytes into U+FFFD. In a byte-level vocabulary, the beginning of a character that is not
 * completed becomes one U+FFFD, as in a full decode. If a vocabulary spells only some characters in bytes,
 * each invalid byte becomes one U+FFFD. A full decode with such a vocabulary replaces the whole run of bytes,
 * with the valid characters in it. A stream cannot do this, because it has already written these characters.
 */
#include "text/detok.h"

#include <string.h>

#include "text/utf8.h"

void tp_detok_init(tp_detok *d, const tp_vocab *v, int skip_special, int spaces) {
    memset(d, 0, sizeof *d);
    d->begun = v->first == NULL;
    d->strip = v->strip;
    d->skip_special = skip_special != 0;
    d->spaces = spaces != 0;
}

static uint8_t *put(tp_detok *d, uint8_t *out, const uint8_t *text, size_t size) {
    while (d->strip > 0 && size > 0) {
        if (*text != ' ') {
            d->strip = 0;
            break;
        }
        d->strip--;
        text++;
        size--;
    }
    if (size > 0) {
        memcpy(out, text, size);
        out += size;
    }
    return out;
}

static uint8_t *put_invalid(tp_detok *d, uint8_t *out, uint32_t times) {
    for (uint32_t i = 0; i < times; i++) {
        out = put(d, out, (const uint8_t *)"\xef\xbf\xbd", 3);
    }
    return out;
}

/* Writes U+FFFD for the pending bytes, which will not become a character. */
static uint8_t *put_pending(tp_detok *d, const tp_vocab *v, uint8_t *out) {
    const uint32_t times = v->bytewise ? d->count > 0 : d->count;
    d->count = 0;
    return put_invalid(d, out, times);
}

static uint8_t *put_byte(tp_detok *d, const tp_vocab *v, uint8_t *out, uint8_t c) {
    if (d->count > 0) {
        if (tp_utf8_continues(d->pending[0], d->count, c)) {
            uint8_t whole[4];
            memcpy(whole, d->pending, d->count);
            whole[d->count] = c;
            if (d->count + 1u < tp_utf8_length(whole[0])) {
                d->pending[d->count++] = c;
                return out;
            }
            const size_t size = d->count + 1u;
            d->count = 0;
            return put(d, out, whole, size);
        }
        out = put_pending(d, v, out);
    }
    const uint32_t length = tp_utf8_length(c);
    if (length == 1) {
        return put(d, out, &c, 1);
    }
    if (length == 0) {
        return put_invalid(d, out, 1);
    }
    d->pending[0] = c;
    d->count = 1;
    return out;
}

/* Returns the form of a token that applies now. NULL: the token has no text, and changes nothing. */
static const tp_word *find_word(tp_detok *d, const tp_vocab *v, int32_t token) {
    const tp_word *word = &v->words[token];
    if (!(word->flags & (TP_WORD_NONE | TP_WORD_SPECIAL | TP_WORD_ADDED))) {
        d->added = 0;
        return d->begun ? word : &v->first[token];
    }
    if (word->flags & TP_WORD_NONE || (word->flags & TP_WORD_SPECIAL && d->skip_special)) {
        return NULL;
    }
    if (v->raw != NULL && d->added && !d->spaces) {
        word = &v->raw[token];
    } else if (!d->begun) {
        word = &v->first[token];
    }
    d->added = (word->flags & TP_WORD_ADDED) != 0;
    return word;
}

TP_HOT size_t tp_detok_step(tp_detok *d, const tp_vocab *v, int32_t token, uint8_t *out) {
    const tp_word *word = token < 0 || (uint32_t)token >= v->count ? NULL : find_word(d, v, token);
    if (word == NULL) {
        return 0;
    }
    d->begun = 1;
    const uint8_t *text = v->bytes + word->at;
    const uint8_t *start = out;
    if (v->bytewise ? d->count == 0 && word->flags & TP_WORD_WHOLE : !(word->flags & TP_WORD_BYTE)) {
        if (d->count > 0) {
            out = put_pending(d, v, out);
        }
        out = put(d, out, text, word->size);
    } else {
        for (uint32_t i = 0; i < word->size; i++) {
            out = put_byte(d, v, out, text[i]);
        }
    }
    return (size_t)(out - start);
}

size_t tp_detok_end(tp_detok *d, const tp_vocab *v, uint8_t *out) {
    return (size_t)(put_pending(d, v, out) - out);
}
