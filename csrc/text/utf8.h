/* Which bytes form a character in UTF-8. */
#ifndef TP_UTF8_H
#define TP_UTF8_H

#include <stdint.h>

/* Returns the number of bytes of a character that begins with this byte. 0: no character begins with it. */
static inline uint32_t tp_utf8_length(uint8_t lead) {
    return lead < 0x80 ? 1 : lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
}

/* Whether c may be byte number `index` (1 is the second) of a character that begins with `lead`. */
static inline int tp_utf8_continues(uint8_t lead, uint32_t index, uint8_t c) {
    if (index == 1) { /* no overlong forms, no surrogates, nothing above U+10FFFF */
        switch (lead) {
        case 0xe0: return c >= 0xa0 && c <= 0xbf;
        case 0xed: return c >= 0x80 && c <= 0x9f;
        case 0xf0: return c >= 0x90 && c <= 0xbf;
        case 0xf4: return c >= 0x80 && c <= 0x8f;
        default: break;
        }
    }
    return (c & 0xc0) == 0x80;
}

#endif
