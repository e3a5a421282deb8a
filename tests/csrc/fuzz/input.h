/* What the fuzz targets share: an input is a program, of which each byte means something. */
#ifndef TP_FUZZ_INPUT_H
#define TP_FUZZ_INPUT_H

#include "../check.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Reads an input and aborts on a fault. libFuzzer calls it, and so does driver.c. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct input {
    const uint8_t *at, *end;
} input;

/* Behind the end all bytes are 0. */
static inline uint8_t next_byte(input *in) { return in->at < in->end ? *in->at++ : 0; }

static inline uint32_t next_below(input *in, uint32_t n) { return next_byte(in) % n; }

#endif
