/* The result of a function of the pure half: TP_OK, or the reason why it failed. */
#ifndef TP_RESULT_H
#define TP_RESULT_H

#include <stddef.h>
#include <stdint.h>

typedef enum tp_result {
    TP_OK = 0,
    TP_E_TRUNCATED, /* the bytes end inside a value */
    TP_E_MSGPACK,   /* a value has the wrong MessagePack type */
    TP_E_KIND,      /* a frame of another kind than the caller asked for */
    TP_E_VERSION,   /* a version that this code does not know */
    TP_E_HEADER,    /* the header is too short, or a value is out of range */
    TP_E_COLUMN,    /* a column's length does not fit rows or tokens, or the column comes twice */
    TP_E_COUNTS,    /* the counts do not sum to tokens */
    TP_E_LOGPROBS,  /* the logprob columns do not fit one another */
    TP_E_TRAILING,  /* bytes follow the frame */
    TP_E_LIMIT,     /* more than a TP_MAX_* allows */
    TP_E_MEMORY,
    TP_E_BASIS,  /* the frame does not continue the last frame */
    TP_E_FOREIGN /* the tokenizer's own decoder failed */
} tp_result;

/* Returns from the calling function if `call` failed. */
#define TP_TRY(call)                   \
    do {                               \
        tp_result try_result = (call); \
        if (try_result != TP_OK) {     \
            return try_result;         \
        }                              \
    } while (0)

/* Returns the text of a result for an error message. */
const char *tp_result_text(tp_result result);

#endif
