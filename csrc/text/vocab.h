/* The text of each token id: a table that is made once from a tokenizer and never changes. */
#ifndef TP_VOCAB_H
#define TP_VOCAB_H

#include "wire/layout.h"
#include "wire/result.h"

enum tp_word_flag {
    TP_WORD_NONE = 1,    /* there is no such id, so it has no text */
    TP_WORD_SPECIAL = 2, /* left out if special tokens are left out */
    TP_WORD_ADDED = 4,
    TP_WORD_BYTE = 8,   /* one byte of a character that is spelled byte by byte */
    TP_WORD_WHOLE = 16, /* valid UTF-8 by itself */
    TP_WORD_PLAIN = 32  /* a short word; after a whole character its text is its bytes */
};

#define TP_MAX_WORD   UINT16_MAX /* bytes of a word */
#define TP_WORD_SHORT 16u        /* bytes of a word that are in its tp_word */

/* Half a cache line: a plain word costs one cache miss. */
typedef struct tp_word {
    _Alignas(32) uint8_t text[TP_WORD_SHORT]; /* its first bytes, and zeros */
    uint64_t seen;                            /* bit c % 64 of every byte c of the word */
    uint32_t at;                              /* where its bytes begin in `bytes` */
    uint16_t size;
    uint8_t flags, reserved;
} tp_word;

_Static_assert(sizeof(tp_word) == 32, "a word lies in one cache line");

/* A decoder outside of C, for a tokenizer that no table can describe. Its streams belong to the caller. A
 * returned text is valid until the next call. */
typedef struct tp_foreign {
    void *context;
    void *(*begin)(void *context, int skip_special, int spaces); /* NULL: it failed */
    void *(*copy)(void *context, void *stream);                  /* NULL: it failed */
    void (*drop)(void *context, void *stream);
    /* Gives the text that a token adds. For a token < 0, gives the text that the end adds. 0, or -1: it
     * failed. */
    int (*step)(void *context, void *stream, int32_t token, const char **text, size_t *size);
} tp_foreign;

typedef struct tp_vocab {
    uint32_t count;
    const tp_foreign *foreign; /* NULL: the words describe all */
    tp_word *words;            /* text after another token */
    tp_word *first;            /* text as the first token; NULL: the same */
    tp_word *raw;              /* text without the prefix that their decoder adds; NULL: the same */
    uint8_t *bytes;
    uint64_t byte_count;
    uint8_t bytewise; /* byte-level: characters may be spread over all words, and not only over TP_WORD_BYTE
                         ones */
    uint8_t strip;    /* spaces to remove from the beginning of the text */
} tp_vocab;

/* One form of every word. The sizes sum to byte_count. */
typedef struct tp_words {
    const uint8_t *bytes;
    const uint16_t *sizes;
    uint64_t byte_count;
} tp_words;

/* Copies everything. first or raw may be NULL. `flags` has one entry per word; TP_WORD_WHOLE and
 * TP_WORD_PLAIN are found here. */
tp_result tp_vocab_init(tp_vocab *v, uint32_t count, const uint8_t *flags, const tp_words *words,
                        const tp_words *first, const tp_words *raw, uint8_t bytewise, uint8_t strip);
void tp_vocab_clear(tp_vocab *v);

/* Whether the bytes are whole characters. */
int tp_utf8_valid(const uint8_t *text, size_t size);

#endif
