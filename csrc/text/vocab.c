/* Makes the table of words. */
#include "text/vocab.h"

#include <stdlib.h>
#include <string.h>

#include "text/utf8.h"

int tp_utf8_valid(const uint8_t *text, size_t size) {
    size_t at = 0;
    while (at < size) {
        const uint32_t length = tp_utf8_length(text[at]);
        if (length == 0 || length > size - at) {
            return 0;
        }
        for (uint32_t i = 1; i < length; i++) {
            if (!tp_utf8_continues(text[at], i, text[at + i])) {
                return 0;
            }
        }
        at += length;
    }
    return 1;
}

/* Whether the text of a word is its bytes if no character is incomplete. */
static int is_plain(const tp_vocab *v, const tp_word *word) {
    const uint8_t rare = TP_WORD_NONE | TP_WORD_SPECIAL | TP_WORD_ADDED;
    return word->size <= TP_WORD_SHORT && !(word->flags & rare) &&
           (v->bytewise ? word->flags & TP_WORD_WHOLE : !(word->flags & TP_WORD_BYTE));
}

static tp_word make_word(const tp_vocab *v, const uint8_t *text, uint16_t size, uint8_t flags) {
    tp_word word = {.size = size, .flags = flags & (uint8_t)~(TP_WORD_WHOLE | TP_WORD_PLAIN)};
    if (size > 0) {
        memcpy(word.text, text, size < TP_WORD_SHORT ? size : TP_WORD_SHORT);
    }
    for (uint32_t i = 0; i < size; i++) {
        word.seen |= UINT64_C(1) << (text[i] & 63);
    }
    word.flags |= tp_utf8_valid(text, size) ? TP_WORD_WHOLE : 0;
    word.flags |= is_plain(v, &word) ? TP_WORD_PLAIN : 0;
    return word;
}

static tp_word *place(tp_vocab *v, const tp_words *from, const uint8_t *flags) {
    tp_word *words = aligned_alloc(64, ((size_t)v->count / 2 + 1) * 64);
    uint64_t at = v->byte_count;
    for (uint32_t i = 0; words != NULL && i < v->count; i++) {
        words[i] = make_word(v, from->bytes + (at - v->byte_count), from->sizes[i], flags[i]);
        words[i].at = (uint32_t)at;
        at += from->sizes[i];
    }
    if (words != NULL && from->byte_count > 0) {
        memcpy(v->bytes + v->byte_count, from->bytes, from->byte_count);
        v->byte_count = at;
    }
    return words;
}

tp_result tp_vocab_init(tp_vocab *v, uint32_t count, const uint8_t *flags, const tp_words *words,
                        const tp_words *first, const tp_words *raw, uint8_t bytewise, uint8_t strip) {
    *v = (tp_vocab){.count = count, .bytewise = bytewise, .strip = strip};
    const tp_words *forms[] = {words, first, raw};
    uint64_t total = 0;
    for (size_t f = 0; f < 3; f++) {
        uint64_t sum = 0;
        for (uint32_t i = 0; forms[f] != NULL && i < count; i++) {
            sum += forms[f]->sizes[i];
        }
        if (forms[f] != NULL && sum != forms[f]->byte_count) {
            return TP_E_COUNTS;
        }
        total += sum;
    }
    if (total > UINT32_MAX) {
        return TP_E_LIMIT;
    }
    v->bytes = malloc(total + 1);
    if (v->bytes == NULL) {
        return TP_E_MEMORY;
    }
    v->words = place(v, words, flags);
    v->first = first == NULL ? NULL : place(v, first, flags);
    v->raw = raw == NULL ? NULL : place(v, raw, flags);
    if (v->words == NULL || (first != NULL && v->first == NULL) || (raw != NULL && v->raw == NULL)) {
        tp_vocab_clear(v);
        return TP_E_MEMORY;
    }
    return TP_OK;
}

void tp_vocab_clear(tp_vocab *v) {
    free(v->words);
    free(v->first);
    free(v->raw);
    free(v->bytes);
    memset(v, 0, sizeof *v);
}
