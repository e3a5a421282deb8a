/* Texts: any vocabulary, tokens and stop strings. Text that is taken after each token, and text that is taken
 * at the end, are the same valid UTF-8. A saved state that is rolled back has no effect. */
#include "input.h"

#include "text/text.h"

#include <stdlib.h>

enum { WORDS = 16, LONGEST = 6, STOPS = 3, TOKENS = 200, ROOM = TOKENS * (LONGEST + 4) * 3 };

static const uint8_t letters[] = {' ',  'a',  'b',  'c',  0xc3, 0xa9, 0xe2,
                                  0x82, 0xac, 0xf0, 0x9f, 0x98, 0x80, 0xff};

typedef struct words {
    uint8_t bytes[WORDS * LONGEST];
    uint16_t sizes[WORDS];
    tp_words form;
} words;

static const tp_words *read_words(input *in, words *w) {
    uint32_t at = 0;
    for (uint32_t i = 0; i < WORDS; i++) {
        w->sizes[i] = (uint16_t)next_below(in, LONGEST + 1);
        for (uint32_t j = 0; j < w->sizes[i]; j++) {
            w->bytes[at++] = letters[next_below(in, sizeof letters)];
        }
    }
    w->form = (tp_words){w->bytes, w->sizes, at};
    return &w->form;
}

typedef struct taken {
    uint8_t bytes[ROOM];
    size_t size;
} taken;

static void take(tp_text *text, taken *to) {
    CHECK(text->ready <= text->len && text->len <= text->capacity && to->size + text->ready <= ROOM);
    memcpy(to->bytes + to->size, text->buffer, text->ready);
    to->size += text->ready;
    tp_text_sent(text, text->ready);
}

static void compare(const tp_vocab *vocab, const tp_text_options *options, input *in) {
    static taken each, late;
    tp_text *one, *other;
    each.size = late.size = 0;
    CHECK(tp_text_new(vocab, options, &one) == TP_OK && tp_text_new(vocab, options, &other) == TP_OK);
    for (int i = 0; i < TOKENS && in->at < in->end; i++) {
        const uint8_t byte = next_byte(in);
        const int32_t token = (int32_t)(byte % (WORDS + 2)) - 1;
        int32_t stop = -1, same = -1, unused;
        if (byte & 0x80) {
            tp_text_mark mark;
            CHECK(tp_text_set_mark(one, &mark) == TP_OK && tp_text_step(one, token, 0, &unused) == TP_OK);
            tp_text_roll_back(one, &mark);
        }
        CHECK(tp_text_step(one, token, 1, &stop) == TP_OK && tp_text_step(other, token, 1, &same) == TP_OK);
        CHECK(stop == same);
        tp_text_settle(one);
        take(one, &each);
        if (stop >= 0) {
            break;
        }
    }
    uint8_t tail[ROOM];
    tp_text_settle(other);
    const size_t held = tp_text_tail(one, tail, sizeof tail), before = each.size;
    tp_text_end(one);
    take(one, &each);
    tp_text_end(other);
    take(other, &late);
    CHECK(each.size - before == held && memcmp(each.bytes + before, tail, held) == 0);
    CHECK(each.size == late.size && memcmp(each.bytes, late.bytes, each.size) == 0);
    tp_text_free(one);
    tp_text_free(other);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    input in = {data, data + size};
    static words plain, first, raw;
    uint8_t flags[WORDS], stops[STOPS * LONGEST];
    uint32_t sizes[STOPS], at = 0;
    int32_t prompt[4];
    const uint8_t how = next_byte(&in);
    for (uint32_t i = 0; i < WORDS; i++) {
        flags[i] = next_byte(&in) & (TP_WORD_NONE | TP_WORD_SPECIAL | TP_WORD_ADDED | TP_WORD_BYTE);
    }
    tp_vocab vocab;
    const tp_words *form = read_words(&in, &plain);
    const tp_words *begin = how & 1 ? read_words(&in, &first) : NULL;
    const tp_words *bare = how & 2 ? read_words(&in, &raw) : NULL;
    if (tp_vocab_init(&vocab, WORDS, flags, form, begin, bare, how >> 2 & 1, how >> 3 & 3) != TP_OK) {
        return 0;
    }
    tp_text_options options = {.skip_special = how >> 5 & 1,
                               .spaces = how >> 6 & 1,
                               .include_stop = how >> 7,
                               .stops = stops,
                               .stop_sizes = sizes,
                               .stop_count = next_below(&in, STOPS + 1),
                               .prompt = prompt,
                               .prompt_count = next_below(&in, 5)};
    for (uint32_t i = 0; i < options.stop_count; i++) {
        sizes[i] = 1 + next_below(&in, LONGEST);
        for (uint32_t j = 0; j < sizes[i]; j++) {
            stops[at++] = letters[next_below(&in, sizeof letters)];
        }
    }
    for (uint32_t i = 0; i < options.prompt_count; i++) {
        prompt[i] = (int32_t)next_below(&in, WORDS + 2) - 1;
    }
    compare(&vocab, &options, &in);
    tp_vocab_clear(&vocab);
    return 0;
}
