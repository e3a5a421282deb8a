/* Damages frames at random and reads them, under the sanitizers: `drive_frames SEED ROUNDS FILE...`.
 * Each damaged frame lies in memory of exactly its size, so that a read past it is seen; what is
 * still a frame is read to its last entry, written again, and must be a frame then. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pack/packer.h"
#include "pack/packer_positions.h"
#include "wire/envelope.h"
#include "wire/msgpack.h"
#include "wire/output.h"
#include "wire/step.h"

static uint64_t state;

static uint64_t chance(uint64_t n) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % n;
}

static void must(int holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "not so: %s\n", what);
        exit(1);
    }
}

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
            sum(v.lp_ranks, v.lp_tokens * 4ul) + sum(v.annex_len, rows * 4) + sum(v.annex, v.annex_bytes);
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
                            v.annex_bytes,
                            (const uint32_t *)v.annex_len,
                            v.annex};
    uint8_t *out = malloc(tp_step_size(&w));
    must(tp_step_write(&w, out) == tp_step_size(&w), "a step's size is exact");
    must(tp_step_parse(out, tp_step_size(&w), &again) == TP_OK, "a written step is read");
    must(again.tokens == v.tokens && again.lp_entries == v.lp_entries, "a step is the same again");
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
            sum(v.stop_string, rows * 4) + sum(v.cached, rows * 4) + sum(v.annex_len, rows * 4) +
            sum(v.annex, v.annex_bytes) + sum(v.annex_offset, rows * 8) + sum(v.error_code, rows);
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
                              v.annex_bytes,
                              (const uint32_t *)v.annex_len,
                              v.annex,
                              (const uint64_t *)v.annex_offset,
                              v.error_code,
                              v.error_field};
    uint8_t *out = malloc(tp_output_size(&w));
    must(tp_output_write(&w, out) == tp_output_size(&w), "an output's size is exact");
    must(tp_output_parse(out, tp_output_size(&w), &again) == TP_OK, "a written output is read");
    must(again.tokens == v.tokens && again.error_bytes == v.error_bytes, "it is the same again");
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
        uint8_t *exact = malloc(left + (left == 0));
        memcpy(exact, copy, left);
        read_all(exact, left);
        free(copy);
        free(exact);
    }
}

/* Packs steps of chance values from memory of exactly their size; what is packed must be a frame. */
static void pack_steps(long rounds) {
    tp_packer p;
    must(tp_packer_init(&p, 3, 0, 4, 100) == TP_OK, "memory");
    for (long i = 0; i < rounds; i++) {
        const size_t n = chance(6), drained = chance(3);
        int64_t *handles = malloc((n + drained) * 8 + 1);
        int32_t *counts = malloc(n * 4 + 1);
        int64_t *k = malloc(n * 8 + 1);
        uint8_t *status = malloc(n + 1);
        uint32_t *annex_len = malloc(n * 4 + 1);
        size_t beside = 0;
        size_t tokens = 0, entries = 0, ranks = 0;
        for (size_t r = 0; r < n + drained; r++) {
            handles[r] = (int64_t)(3ull << 51 | chance(4) << 35 | (chance(50) == 0 ? 0 : 1 + chance(3)));
        }
        for (size_t r = 0; r < n; r++) {
            counts[r] = (int32_t)chance(4);
            k[r] = (int64_t)chance(4) - 1;
            status[r] = chance(3) == 0 ? (uint8_t)chance(7) : 0;
            annex_len[r] = (uint32_t)chance(3) * 5;
            beside += annex_len[r];
            tokens += (size_t)counts[r];
            entries += (size_t)counts[r] * (size_t)(k[r] + 1);
            ranks += k[r] < 0 ? 0 : (size_t)counts[r];
        }
        int64_t *token_ids = malloc(tokens * 8 + 1), *ids = malloc(entries * 8 + 1);
        int64_t *rank_ids = malloc(ranks * 8 + 1);
        float *values = calloc(entries + 1, 4);
        uint8_t *annex = calloc(beside + 1, 1);
        for (size_t t = 0; t < tokens; t++) {
            token_ids[t] = chance(8) == 0 ? (int64_t)chance(UINT64_MAX) : (int64_t)chance(100);
        }
        for (size_t t = 0; t < entries; t++) {
            ids[t] = chance(20) == 0 ? INT64_MIN : (int64_t)chance(100);
        }
        for (size_t t = 0; t < ranks; t++) {
            rank_ids[t] = chance(20) == 0 ? INT64_MAX : (int64_t)chance(100);
        }
        const int logprobs = chance(2) == 0, annexes = chance(2) == 0;
        const tp_step_input in = {
            .lane = {1, 2, 3, 4},
            .handles = {(uint8_t *)handles, n, 8},
            .drained = {(uint8_t *)(handles + n), drained, drained ? 8 : 0},
            .tokens = {(uint8_t *)token_ids, tokens, 8},
            .counts = {(uint8_t *)counts, n, 4},
            .status = {status, n, 1},
            .lp_k = {(uint8_t *)k, logprobs ? n : 0, logprobs ? 8 : 0},
            .lp_ids = {(uint8_t *)ids, logprobs ? entries : 0, logprobs ? 8 : 0},
            .lp_values = {(uint8_t *)values, logprobs ? entries : 0, logprobs ? 4 : 0},
            .lp_ranks = {(uint8_t *)rank_ids, logprobs ? ranks : 0, logprobs ? 8 : 0},
            .annex_len = {(uint8_t *)annex_len, annexes ? n : 0, annexes ? 4 : 0},
            .annex = {annex, annexes ? beside : 0, annexes ? 1 : 0},
        };
        tp_step_rows rows;
        tp_fault fault;
        if (tp_packer_pack(&p, &in, &rows, &fault) == 0) {
            uint8_t *out = malloc(tp_step_size(&rows));
            tp_step_view view;
            must(tp_step_write(&rows, out) == tp_step_size(&rows), "a packed size is exact");
            must(tp_step_parse(out, tp_step_size(&rows), &view) == TP_OK, "a packed step is read");
            free(out);
            if (chance(2) == 0) {
                tp_packer_commit(&p);
            }
        }
        free(handles), free(counts), free(k), free(status);
        free(token_ids), free(ids), free(rank_ids), free(values), free(annex_len), free(annex);
    }
    tp_packer_free(&p);
}

int main(int argc, char **argv) {
    must(argc > 3, "usage: drive_frames SEED ROUNDS FILE...");
    state = strtoull(argv[1], NULL, 10) * 2 + 1;
    const long rounds = strtol(argv[2], NULL, 10);
    for (int i = 3; i < argc; i++) {
        static uint8_t frame[1 << 20];
        FILE *file = fopen(argv[i], "rb");
        must(file != NULL, argv[i]);
        const size_t size = fread(frame, 1, sizeof frame, file);
        fclose(file);
        damage_frame(frame, size, size > 4096 ? rounds / 64 : rounds);
    }
    pack_steps(rounds * 16);
    printf("%d frames, %ld rounds each\n", argc - 3, rounds);
    return 0;
}
