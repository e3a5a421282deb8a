/* Damages frames at random and reads them: `test_frames SEED ROUNDS FILE...`. Each damaged frame is in memory
 * of exactly its size, so that the sanitizers see a read past its end. What is still a frame is read to its
 * last entry and written again, and must be a frame then. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "pack/packer.h"
#include "pack/packer_positions.h"
#include "wire/envelope.h"
#include "wire/msgpack.h"
#include "wire/output.h"
#include "wire/step.h"

static uint64_t state; /* of the random numbers */

static uint64_t chance(uint64_t n) { return next_random(&state, n); }

static uint64_t sum(const uint8_t *data, size_t size) {
    uint64_t total = 0;
    for (size_t i = 0; data != NULL && i < size; i++) {
        total += data[i];
    }
    return total;
}

static volatile uint64_t sink;

static void read_step(const uint8_t *data, size_t size) {
    tp_step_view v, again;
    if (tp_step_parse(data, size, &v) != TP_OK) {
        return;
    }
    const size_t rows = v.rows;
    sink += sum(v.handles, rows * 8) + sum(v.counts, rows * 2) + sum(v.token_ids, v.tokens * 4ul) +
            sum(v.status, rows) + sum(v.position, rows * 4) + sum(v.lp_k, rows * 4) +
            sum(v.lp_ids, v.lp_entries * 4ul) + sum(v.lp_values, v.lp_entries * 4ul) +
            sum(v.lp_ranks, v.lp_tokens * 4ul) + sum(v.extras_len, rows * 4) + sum(v.extras, v.extras_bytes);
    const tp_step_rows w = {v.lane,
                            v.dp,
                            v.tp,
                            v.rows,
                            v.tokens,
                            v.step,
                            v.mono_ns,
                            (const int64_t *)v.handles,
                            (const uint16_t *)v.counts,
                            (const int32_t *)v.token_ids,
                            v.status,
                            (const uint32_t *)v.position,
                            (const int32_t *)v.lp_k,
                            (const int32_t *)v.lp_ids,
                            (const int32_t *)v.lp_ranks,
                            (const float *)v.lp_values,
                            v.lp_entries,
                            v.lp_tokens,
                            v.extras_bytes,
                            (const uint32_t *)v.extras_len,
                            v.extras};
    uint8_t *out = malloc(tp_step_size(&w));
    CHECK(tp_step_write(&w, out) == tp_step_size(&w));
    CHECK(tp_step_parse(out, tp_step_size(&w), &again) == TP_OK);
    CHECK(again.tokens == v.tokens && again.lp_entries == v.lp_entries);
    free(out);
}

static void read_output(const uint8_t *data, size_t size) {
    tp_output_view v, again;
    if (tp_output_parse(data, size, &v) != TP_OK) {
        return;
    }
    const size_t rows = v.rows;
    sink += sum(v.keys, rows * 8) + sum(v.counts, rows * 4) + sum(v.token_ids, v.tokens * 4ul) +
            sum(v.offsets, rows * 4) + sum(v.finish, rows) + sum(v.stop_reason, rows * 4) +
            sum(v.lp_k, rows * 4) + sum(v.lp_ids, v.lp_entries * 4ul) + sum(v.lp_values, v.lp_entries * 4ul) +
            sum(v.lp_ranks, v.lp_tokens * 4ul) + sum(v.error_len, rows * 2) + sum(v.error, v.error_bytes) +
            sum(v.text_len, rows * 4) + sum(v.text, v.text_bytes) + sum(v.text_offset, rows * 4) +
            sum(v.stop_string, rows * 4) + sum(v.cached, rows * 4) + sum(v.extras_len, rows * 4) +
            sum(v.extras, v.extras_bytes) + sum(v.extras_offset, rows * 8) + sum(v.error_code, rows);
    const tp_output_rows w = {v.lane,
                              v.processor,
                              v.client,
                              v.rows,
                              v.tokens,
                              v.mono_ns,
                              (const uint64_t *)v.keys,
                              (const uint32_t *)v.counts,
                              (const int32_t *)v.token_ids,
                              (const uint32_t *)v.offsets,
                              v.finish,
                              (const int32_t *)v.stop_reason,
                              (const int32_t *)v.lp_k,
                              (const int32_t *)v.lp_ids,
                              (const int32_t *)v.lp_ranks,
                              (const float *)v.lp_values,
                              (const uint16_t *)v.error_len,
                              v.error,
                              (const uint32_t *)v.text_len,
                              (const uint32_t *)v.text_offset,
                              v.text,
                              (const int32_t *)v.stop_string,
                              (const uint32_t *)v.cached,
                              v.lp_entries,
                              v.lp_tokens,
                              v.error_bytes,
                              v.text_bytes,
                              v.extras_bytes,
                              (const uint32_t *)v.extras_len,
                              v.extras,
                              (const uint64_t *)v.extras_offset,
                              v.error_code,
                              v.error_field};
    uint8_t *out = malloc(tp_output_size(&w));
    CHECK(tp_output_write(&w, out) == tp_output_size(&w));
    CHECK(tp_output_parse(out, tp_output_size(&w), &again) == TP_OK);
    CHECK(again.tokens == v.tokens && again.error_bytes == v.error_bytes);
    free(out);
}

static void read_all(const uint8_t *data, size_t size) {
    uint32_t kind;
    tp_lane_header lane;
    tp_frame_peek(data, size, &kind, &lane);
    tp_value_check(data, size, 8);
    read_step(data, size);
    read_output(data, size);
}

/* Damages a copy in place; returns its new size, never more than it was. */
static size_t damage(uint8_t *data, size_t size) {
    static const uint8_t tags[] = {0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xc1, 0xc4, 0xc5, 0xc6, 0xca, 0xcc,
                                   0xcd, 0xce, 0xcf, 0xd0, 0xd3, 0xdc, 0xdd, 0xde, 0xdf, 0xff};
    for (uint64_t n = 1 + chance(3); n > 0 && size > 0; n--) {
        const size_t reach = size < 96 || chance(4) == 0 ? size : 96; /* the structure is in front */
        const size_t at = chance(reach);
        switch (chance(5)) {
        case 0: data[at] = (uint8_t)chance(256); break;
        case 1: data[at] ^= (uint8_t)(1u << chance(8)); break;
        case 2: data[at] = tags[chance(sizeof tags)]; break;
        case 3:
            memmove(data + at, data + at + 1, size - at - 1);
            size--;
            break;
        default: size = chance(8) == 0 ? at : size;
        }
    }
    return size;
}

static void damage_frame(const uint8_t *frame, size_t size, long rounds) {
    read_all(frame, size);
    for (long i = 0; i < rounds; i++) {
        uint8_t *copy = malloc(size + 1);
        memcpy(copy, frame, size);
        const size_t left = damage(copy, size);
        uint8_t *damaged = malloc(left + (left == 0));
        memcpy(damaged, copy, left);
        read_all(damaged, left);
        free(copy);
        free(damaged);
    }
}

/* The arrays of a random step. Each is allocated in exactly its size, so that a read past its end is seen. */
typedef struct arrays {
    size_t rows, drained, tokens, entries, ranks, beside;
    int64_t *handles, *k, *token_ids, *ids, *rank_ids;
    int32_t *counts;
    uint8_t *status, *extras;
    uint32_t *extras_len;
    float *values;
} arrays;

static void *exact(size_t bytes) {
    void *memory = malloc(bytes + (bytes == 0));
    CHECK(memory != NULL);
    return memory;
}

static void make_rows(arrays *a) {
    a->rows = chance(6);
    a->drained = chance(3);
    a->handles = exact((a->rows + a->drained) * 8);
    a->counts = exact(a->rows * 4);
    a->k = exact(a->rows * 8);
    a->status = exact(a->rows);
    a->extras_len = exact(a->rows * 4);
    for (size_t r = 0; r < a->rows + a->drained; r++) {
        a->handles[r] = (int64_t)(3ull << 51 | chance(4) << 35 | (chance(50) == 0 ? 0 : 1 + chance(3)));
    }
    for (size_t r = 0; r < a->rows; r++) {
        a->counts[r] = (int32_t)chance(4);
        a->k[r] = (int64_t)chance(4) - 1;
        a->status[r] = chance(3) == 0 ? (uint8_t)chance(7) : 0;
        a->extras_len[r] = (uint32_t)chance(3) * 5;
        a->beside += a->extras_len[r];
        a->tokens += (size_t)a->counts[r];
        a->entries += (size_t)a->counts[r] * (size_t)(a->k[r] + 1);
        a->ranks += a->k[r] < 0 ? 0 : (size_t)a->counts[r];
    }
}

static void make_values(arrays *a) {
    a->token_ids = exact(a->tokens * 8);
    a->ids = exact(a->entries * 8);
    a->rank_ids = exact(a->ranks * 8);
    a->values = exact(a->entries * 4);
    a->extras = exact(a->beside);
    memset(a->values, 0, a->entries * 4);
    memset(a->extras, 0, a->beside);
    for (size_t t = 0; t < a->tokens; t++) {
        a->token_ids[t] = chance(8) == 0 ? (int64_t)chance(UINT64_MAX) : (int64_t)chance(100);
    }
    for (size_t t = 0; t < a->entries; t++) {
        a->ids[t] = chance(20) == 0 ? INT64_MIN : (int64_t)chance(100);
    }
    for (size_t t = 0; t < a->ranks; t++) {
        a->rank_ids[t] = chance(20) == 0 ? INT64_MAX : (int64_t)chance(100);
    }
}

static void free_arrays(const arrays *a) {
    free(a->handles), free(a->counts), free(a->k), free(a->status), free(a->extras_len);
    free(a->token_ids), free(a->ids), free(a->rank_ids), free(a->values), free(a->extras);
}

/* An array, or one that is not given. */
static tp_array array_of(void *data, size_t n, uint32_t width, int given) {
    return given ? (tp_array){data, n, width} : (tp_array){NULL, 0, 0};
}

static tp_step_input input_of(const arrays *a) {
    const int logprobs = chance(2) == 0, extras = chance(2) == 0;
    return (tp_step_input){
        .lane = {1, 2, 3, 4},
        .handles = {(uint8_t *)a->handles, a->rows, 8},
        .drained = array_of(a->handles + a->rows, a->drained, 8, a->drained > 0),
        .tokens = {(uint8_t *)a->token_ids, a->tokens, 8},
        .counts = {(uint8_t *)a->counts, a->rows, 4},
        .status = {a->status, a->rows, 1},
        .lp_k = array_of(a->k, a->rows, 8, logprobs),
        .lp_ids = array_of(a->ids, a->entries, 8, logprobs),
        .lp_values = array_of(a->values, a->entries, 4, logprobs),
        .lp_ranks = array_of(a->rank_ids, a->ranks, 8, logprobs),
        .extras_len = array_of(a->extras_len, a->rows, 4, extras),
        .extras = array_of(a->extras, a->beside, 1, extras),
    };
}

/* Packs random steps. What is packed must be a frame. */
static void pack_steps(long rounds) {
    tp_packer p;
    CHECK(tp_packer_init(&p, 3, 0, 4, 100) == TP_OK);
    for (long i = 0; i < rounds; i++) {
        arrays a = {0};
        make_rows(&a);
        make_values(&a);
        const tp_step_input in = input_of(&a);
        tp_step_rows rows;
        tp_fault fault;
        if (tp_packer_pack(&p, &in, &rows, &fault) == 0) {
            tp_step_view view;
            uint8_t *out = exact(tp_step_size(&rows));
            CHECK(tp_step_write(&rows, out) == tp_step_size(&rows));
            CHECK(tp_step_parse(out, tp_step_size(&rows), &view) == TP_OK);
            free(out);
            if (chance(2) == 0) {
                tp_packer_commit(&p);
            }
        }
        free_arrays(&a);
    }
    tp_packer_free(&p);
}

int main(int argc, char **argv) {
    CHECK(argc > 3);
    state = strtoull(argv[1], NULL, 10) * 2 + 1;
    const long rounds = strtol(argv[2], NULL, 10);
    for (int i = 3; i < argc; i++) {
        static uint8_t frame[1 << 20];
        FILE *file = fopen(argv[i], "rb");
        CHECK(file != NULL);
        const size_t size = fread(frame, 1, sizeof frame, file);
        fclose(file);
        damage_frame(frame, size, size > 4096 ? rounds / 64 : rounds);
    }
    pack_steps(rounds * 16);
    printf("%d frames, %ld rounds each\n", argc - 3, rounds);
    return 0;
}
