/* The words for a tp_result. */
#include "wire/result.h"

const char *tp_result_text(tp_result result) {
    switch (result) {
    case TP_OK: return "ok";
    case TP_E_TRUNCATED: return "the bytes end inside a value";
    case TP_E_MSGPACK: return "a value has the wrong MessagePack type";
    case TP_E_KIND: return "this is a frame of another kind";
    case TP_E_VERSION: return "the version is unknown";
    case TP_E_HEADER: return "the header is too short or out of range";
    case TP_E_COLUMN: return "a column does not fit rows or tokens, or comes twice";
    case TP_E_COUNTS: return "the counts do not sum to tokens";
    case TP_E_LOGPROBS: return "the logprob columns do not fit one another";
    case TP_E_TRAILING: return "bytes follow the frame";
    case TP_E_LIMIT: return "too many rows, tokens or bytes";
    case TP_E_MEMORY: return "out of memory";
    case TP_E_BASIS: return "the frame does not continue the frame before it";
    case TP_E_FOREIGN: return "the tokenizer failed";
    }
    return "unknown result";
}
