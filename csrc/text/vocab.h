/* What each token id reads as: a table made once from a tokenizer, never changed afterwards. */
#ifndef TP_VOCAB_H
#define TP_VOCAB_H

#include "wire/layout.h"
#include "wire/result.h"

enum tp_word_flag {
    TP_WORD_NONE = 1,    /* no such id: reads as nothing, as if it were not there */
    TP_WORD_SPECIAL = 2, /* left out where special tokens are skipped */
    TP_WORD_ADDED = 4,
    TP_WORD_BYTE = 8,   /* one byte of a character that is spelled byte by byte */
    TP_WORD_WHOLE = 16, /* valid UTF-8 by itself */
    TP_WORD_PLAIN = 32  /* behind a whole character it reads as its bytes, which are few */
};

#define TP_MAX_WORD   UINT16_MAX /* bytes of a word */
#define TP_WORD_SHORT 16u        /* bytes of a word that lie in it */

/* Half a cache line, so that a plain word is one miss. */
typedef struct tp_word {
    _Alignas(32) uint8_t text[TP_WORD_SHORT]; /* its first bytes, and zeros */
    uint64_t seen;                            /* bit c % 64 of every byte c of the word */
    uint32_t at;                              /* of all its bytes, into bytes */
    uint16_t size;
    uint8_t flags, reserved;
} tp_word;

_Static_assert(sizeof(tp_word) == 32, "words do not straddle lines");

/* A decoder that is no table. Its streams are the caller's; text lives until the next call. */
typedef struct tp_foreign {
    void *context;
    void *(*begin)(void *context, int skip_special, int spaces); /* NULL: it failed */
    void *(*copy)(void *context, void *stream);                  /* NULL: it failed */
    void (*drop)(void *context, void *stream);
    /* The text that a token brings, or the end (token < 0). 0, or -1: it failed. */
    int (*step)(void *context, void *stream, int32_t token, const char **text, size_t *size);
} tp_foreign;

typedef struct tp_vocab {
    uint32_t count;
    const tp_foreign *foreign; /* NULL: the words are all there is to it */
    tp_word *words;            /* as they read behind another token */
    tp_word *first;            /* as the first token of all; NULL: the same */
    tp_word *raw;              /* without what their decoder puts before them; NULL: the same */
    uint8_t *bytes;
    uint64_t byte_count;
    uint8_t bytewise; /* every word is bytes of one text (byte-level); else only TP_WORD_BYTE is */
    uint8_t strip;    /* so many spaces are cut off the beginning of the text */
} tp_vocab;

/* One form of every word; sizes sum to byte_count. */
typedef struct tp_words {
    const uint8_t *bytes;
    const uint16_t *sizes;
    uint64_t byte_count;
} tp_words;

/* Copies all. first or raw may be NULL. flags: one a word; the last two are found out here. */
tp_result tp_vocab_init(tp_vocab *v, uint32_t count, const uint8_t *flags, const tp_words *words,
                        const tp_words *first, const tp_words *raw, uint8_t bytewise, uint8_t strip);
void tp_vocab_clear(tp_vocab *v);

int tp_utf8_valid(const uint8_t *text, size_t size);

#endif
