/* The words for a tp_result. */
#include "wire/layout.h"

const char *tp_result_text(tp_result result) {
    switch (result) {
    case TP_OK: return "ok";
    case TP_E_TRUNCATED: return "the bytes end inside a value";
    case TP_E_MSGPACK: return "not the MessagePack type that belongs here";
    case TP_E_KIND: return "not this kind of frame";
    case TP_E_VERSION: return "unknown version";
    case TP_E_HEADER: return "header too short or out of range";
    case TP_E_COLUMN: return "a column does not fit rows or tokens, or comes twice";
    case TP_E_COUNTS: return "counts do not sum to tokens";
    case TP_E_LOGPROBS: return "logprob columns do not fit one another";
    case TP_E_TRAILING: return "bytes after the frame";
    case TP_E_LIMIT: return "too many rows or tokens";
    case TP_E_MEMORY: return "out of memory";
    case TP_E_BASIS: return "it continues a frame that is not the one before it";
    case TP_E_FOREIGN: return "the tokenizer failed";
    }
    return "unknown result";
}
