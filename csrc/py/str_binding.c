/* Decodes short text. CPython's decoder is made for long text. For the few bytes of a token it takes twice
 * as long as this one. */
#include "py/str_binding.h"

#include "text/utf8.h"

#define SHORT 256u /* bytes; CPython decodes longer text */

#define HIGH UINT64_C(0x8080808080808080)

/* For more than 16 bytes. */
static int is_ascii(const uint8_t *text, size_t size) {
    uint64_t seen = tp_load_u64(text + size - 8);
    for (size_t at = 0; at + 8 < size; at += 8) {
        seen |= tp_load_u64(text + at);
    }
    return (seen & HIGH) == 0;
}

/* The first and the last of 2 to 16 bytes. Two loads and two stores copy all of them, and some of them twice.
 * So there is no loop, and the only branch is for the width. */
typedef struct ends {
    uint64_t first, last;
} ends;

static inline ends load(const uint8_t *text, size_t size) {
    return size >= 8   ? (ends){tp_load_u64(text), tp_load_u64(text + size - 8)}
           : size >= 4 ? (ends){tp_load_u32(text), tp_load_u32(text + size - 4)}
                       : (ends){tp_load_u16(text), tp_load_u16(text + size - 2)};
}

static inline void store(uint8_t *to, size_t size, ends e) {
    const size_t width = size >= 8 ? 8 : size >= 4 ? 4 : 2;
    if (width == 8) {
        memcpy(to, &e.first, 8);
        memcpy(to + size - 8, &e.last, 8);
    } else if (width == 4) {
        memcpy(to, &e.first, 4);
        memcpy(to + size - 4, &e.last, 4);
    } else {
        memcpy(to, &e.first, 2);
        memcpy(to + size - 2, &e.last, 2);
    }
}

static inline PyObject *make_short_ascii(size_t size, ends e) {
    PyObject *made = PyUnicode_New((Py_ssize_t)size, 0x7f);
    if (made != NULL) {
        store(PyUnicode_1BYTE_DATA(made), size, e);
    }
    return made;
}

/* Writes the characters of at most SHORT bytes. Returns their number. 0: the bytes are not UTF-8. */
static size_t decode(const uint8_t *text, size_t size, uint32_t *chars, uint32_t *highest) {
    size_t n = 0;
    *highest = 0;
    for (size_t at = 0; at < size; n++) {
        const uint32_t length = tp_utf8_length(text[at]);
        if (length == 0 || length > size - at) {
            return 0;
        }
        uint32_t c = length == 1 ? text[at] : text[at] & (0x7fu >> length);
        for (uint32_t i = 1; i < length; i++) {
            if (!tp_utf8_continues(text[at], i, text[at + i])) {
                return 0;
            }
            c = c << 6 | (text[at + i] & 0x3f);
        }
        *highest = c > *highest ? c : *highest;
        chars[n] = c;
        at += length;
    }
    return n;
}

static PyObject *make(const uint32_t *chars, size_t n, uint32_t highest) {
    PyObject *made = PyUnicode_New((Py_ssize_t)n, highest);
    if (made == NULL) {
        return NULL;
    }
    if (highest < 0x100) {
        Py_UCS1 *to = PyUnicode_1BYTE_DATA(made);
        for (size_t i = 0; i < n; i++) {
            to[i] = (Py_UCS1)chars[i];
        }
    } else if (highest < 0x10000) {
        Py_UCS2 *to = PyUnicode_2BYTE_DATA(made);
        for (size_t i = 0; i < n; i++) {
            to[i] = (Py_UCS2)chars[i];
        }
    } else {
        memcpy(PyUnicode_4BYTE_DATA(made), chars, n * sizeof *chars);
    }
    return made;
}

PyObject *tp_py_str(const uint8_t *text, size_t size) {
    if (size > 1 && size <= 16) {
        const ends e = load(text, size);
        if (((e.first | e.last) & HIGH) == 0) {
            return make_short_ascii(size, e);
        }
    }
    if (size > 1 && size <= SHORT && !(size > 16 && is_ascii(text, size))) {
        uint32_t chars[SHORT], highest;
        const size_t n = decode(text, size, chars, &highest);
        if (n == 1) { /* CPython keeps objects for some single characters */
            return PyUnicode_FromOrdinal((int)highest);
        }
        if (n > 1) {
            return make(chars, n, highest);
        }
    }
    return PyUnicode_DecodeUTF8((const char *)text, (Py_ssize_t)size, "replace");
}
