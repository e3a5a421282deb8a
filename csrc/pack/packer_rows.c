/* Checks and converts the arrays of a step. The common case is one vectorised pass over each array. Rows
 * are checked one by one only if some value is wrong. */
#include "pack/packer_rows.h"

#include <string.h>

#include "pack/packer_repair.h"

/* Returns whether all entries of an i32 or i64 array are in 0..max. *out is the array as i32: the array
 * itself, or its copy in the buffer. */
static int tokens_in(const tp_array *a, uint32_t max, int32_t *buffer, const int32_t **out) {
    uint32_t outside = 0;
    if (a->width == 4) {
        for (size_t i = 0; i < a->n; i++) {
            const uint32_t v = tp_load_u32(a->data + 4 * i);
            outside |= v | (max - v); /* bit 31 of one of the two is set if v is outside */
        }
        *out = (const int32_t *)a->data;
        return outside >> 31 == 0;
    }
    uint64_t high = 0;
    for (size_t i = 0; i < a->n; i++) {
        const uint64_t wide = tp_load_u64(a->data + 8 * i);
        const uint32_t v = (uint32_t)wide;
        high |= wide;
        outside |= max - v;
        buffer[i] = (int32_t)v;
    }
    *out = buffer;
    return (outside >> 31 | high >> 31) == 0;
}

/* Converts an i32 or i64 array to i32. 0: a value does not fit. */
static int narrow(const tp_array *a, int32_t *buffer, const int32_t **out) {
    if (a->width == 4) {
        *out = (const int32_t *)a->data;
        return 1;
    }
    uint64_t lost = 0;
    for (size_t i = 0; i < a->n; i++) {
        const int64_t v = tp_load_i64(a->data + 8 * i);
        buffer[i] = (int32_t)v;
        lost |= (uint64_t)(v ^ buffer[i]);
    }
    *out = buffer;
    return lost == 0;
}

/* Converts counts of one width. Each caller passes a constant width, so that the compiler
 * vectorises the loop. *all is the OR of all entries. *not_one is not 0 if some entry is not 1. */
static inline uint64_t read_counts(const tp_array *a, uint32_t width, uint16_t *restrict out, uint64_t *all,
                                   uint32_t *not_one) {
    const tp_array typed = {a->data, a->n, width};
    uint64_t sum = 0, bits = 0;
    uint32_t odd = 0;
    for (size_t i = 0; i < typed.n; i++) {
        const uint64_t count = (uint64_t)tp_array_at(&typed, i);
        out[i] = (uint16_t)count;
        sum += out[i];
        odd |= out[i] ^ 1u;
        bits |= count;
    }
    *all = bits;
    *not_one = odd;
    return sum;
}

/* Sets rows->counts: u16 in the scratch, or NULL if all are 1. */
static int take_counts(tp_packer *p, const tp_step_input *in, tp_step_rows *rows, tp_fault *fault) {
    const tp_array *a = &in->counts;
    const size_t n = in->handles.n;
    uint64_t sum = n, all = 0;
    uint32_t not_one = 0;
    if (a->width != 0) {
        if (a->n != n) {
            return tp_fault_set(fault, "counts has %zu entries for %zu handles", a->n, n);
        }
        uint16_t *out = p->scratch.counts;
        sum = a->width == 2   ? read_counts(a, 2, out, &all, &not_one)
              : a->width == 4 ? read_counts(a, 4, out, &all, &not_one)
                              : read_counts(a, 8, out, &all, &not_one);
        if (all > UINT16_MAX) {
            return tp_fault_set(fault, "counts has an entry outside 0..65535");
        }
    }
    if (sum != in->tokens.n) {
        return tp_fault_set(fault, "counts sum to %llu, tokens has %zu entries", (unsigned long long)sum,
                            in->tokens.n);
    }
    rows->counts = not_one ? p->scratch.counts : NULL;
    return 0;
}

static int take_status(const tp_step_input *in, tp_step_rows *rows, tp_fault *fault) {
    const tp_array *a = &in->status;
    uint8_t any = 0;
    if (a->width != 0 && a->n != in->handles.n) {
        return tp_fault_set(fault, "status has %zu entries for %zu handles", a->n, in->handles.n);
    }
    for (size_t i = 0; i < a->n; i++) {
        any |= a->data[i];
    }
    rows->status = any ? a->data : NULL;
    return 0;
}

/* How many logprobs, and how many tokens with logprobs, the rows have. */
typedef struct scored {
    uint64_t entries, tokens;
} scored;

static inline int is_top_k(int64_t k) { return (uint64_t)(k + 1) <= INT32_MAX; }

/* Copies i32 lp_k of rows with one token each into the scratch, and adds up. The common case, so it uses
 * operations that the compiler vectorises. 0: a value is no top-k. */
static int read_top_k_of_ones(const tp_array *a, int32_t *restrict out, scored *sums) {
    uint64_t entries = 0;
    uint32_t without = 0, every = 0;
    for (size_t i = 0; i < a->n; i++) {
        const uint32_t own = tp_load_u32(a->data + 4 * i) + 1u; /* logprobs of this row */
        out[i] = (int32_t)(own - 1u);
        every |= own; /* bit 31 is set if some value is no top-k */
        without += own == 0;
        entries += own;
    }
    *sums = (scored){entries, a->n - without};
    return every >> 31 == 0;
}

/* Copies lp_k of one width into the scratch, and adds up. The copy is what counts: the caller may write to
 * its array meanwhile. Returns the index of the first value that is no top-k, or n. */
static inline size_t read_top_k(const tp_array *a, uint32_t width, const uint16_t *counts,
                                int32_t *restrict out, scored *sums) {
    const tp_array typed = {a->data, a->n, width};
    uint64_t entries = 0, tokens = 0; /* at most 2^20 rows of 2^16 tokens of 2^31: no overflow */
    uint32_t wrong = 0;
    for (size_t i = 0; i < typed.n; i++) {
        const int64_t k = tp_array_at(&typed, i);
        const uint64_t count = counts == NULL ? 1 : counts[i];
        out[i] = (int32_t)k;
        wrong |= !is_top_k(k);
        tokens += k < 0 ? 0 : count;
        entries += count * (uint64_t)(k + 1);
    }
    *sums = (scored){entries, tokens};
    if (!wrong) {
        return typed.n;
    }
    size_t first = 0;
    while (first + 1 < typed.n && is_top_k(tp_array_at(&typed, first))) {
        first++;
    }
    return first;
}

/* Takes the four logprob arrays. Sets *fits to 0 if a value does not fit an i32. */
static int take_logprobs(tp_packer *p, const tp_step_input *in, tp_step_rows *rows, int *fits,
                         tp_fault *fault) {
    const size_t n = in->handles.n;
    if (in->lp_k.width == 0) {
        if (in->lp_ids.width != 0 || in->lp_values.width != 0 || in->lp_ranks.width != 0) {
            return tp_fault_set(fault, "logprobs: k is needed");
        }
        return 0;
    }
    if (in->lp_k.n != n) {
        return tp_fault_set(fault, "logprobs.k has %zu entries for %zu handles", in->lp_k.n, n);
    }
    scored sums = {0, 0};
    const tp_array *k = &in->lp_k;
    int32_t *out = p->scratch.lp_k;
    const int ones = k->width == 4 && rows->counts == NULL && read_top_k_of_ones(k, out, &sums);
    const size_t read = ones            ? n
                        : k->width == 4 ? read_top_k(k, 4, rows->counts, out, &sums)
                                        : read_top_k(k, 8, rows->counts, out, &sums);
    if (read < n) {
        return tp_fault_set(fault, "logprobs.k[%zu] is %lld", read, (long long)tp_array_at(&in->lp_k, read));
    }
    const uint64_t entries = sums.entries, tokens = sums.tokens;
    if (in->lp_ids.n != entries || in->lp_values.n != entries || in->lp_ranks.n != tokens) {
        return tp_fault_set(fault,
                            "logprobs: token_ids, logprobs and ranks need %llu, %llu and %llu entries, "
                            "not %zu, %zu and %zu",
                            (unsigned long long)entries, (unsigned long long)entries,
                            (unsigned long long)tokens, in->lp_ids.n, in->lp_values.n, in->lp_ranks.n);
    }
    if (entries > TP_MAX_ENTRIES) {
        return tp_fault_set(fault, "%llu logprobs, a frame holds %u", (unsigned long long)entries,
                            TP_MAX_ENTRIES);
    }
    if (entries == 0) {
        return 0; /* no row has logprobs: the columns are left out */
    }
    if (tp_scratch_reserve(&p->scratch, 0, 0, entries) != TP_OK) {
        return tp_fault_set(fault, "out of memory");
    }
    rows->lp_k = p->scratch.lp_k;
    *fits &= narrow(&in->lp_ids, p->scratch.lp_ids, &rows->lp_ids);
    *fits &= narrow(&in->lp_ranks, p->scratch.lp_ranks, &rows->lp_ranks);
    rows->lp_values = (const float *)in->lp_values.data;
    rows->lp_entries = (uint32_t)entries;
    rows->lp_tokens = (uint32_t)tokens;
    return 0;
}

/* Takes the extras unchanged. The extras of bad rows are sent too, but nobody reads them. */
static int take_extras(tp_packer *p, const tp_step_input *in, tp_step_rows *rows, tp_fault *fault) {
    const tp_array *lengths = &in->extras_len;
    uint32_t *out = p->scratch.extras_len; /* a copy: else the lengths might not be those of the sum */
    uint64_t sum = 0;
    if (lengths->width != 0 && lengths->n != in->handles.n) {
        return tp_fault_set(fault, "extras_len has %zu entries for %zu handles", lengths->n, in->handles.n);
    }
    for (size_t i = 0; i < lengths->n; i++) {
        out[i] = tp_load_u32(lengths->data + 4 * i);
        sum += out[i];
    }
    if (sum != in->extras.n) {
        return tp_fault_set(fault, "extras_len sums to %llu, extras has %zu bytes", (unsigned long long)sum,
                            in->extras.n);
    }
    if (sum > TP_MAX_EXTRAS) {
        return tp_fault_set(fault, "%llu bytes of extras, a frame holds %u", (unsigned long long)sum,
                            TP_MAX_EXTRAS);
    }
    rows->extras_len = sum > 0 ? out : NULL;
    rows->extras = sum > 0 ? in->extras.data : NULL;
    rows->extras_bytes = (uint32_t)sum;
    return 0;
}

/* Adds the drained rows after the others. They have no tokens. */
static void append_drained(tp_packer *p, const tp_array *drained, size_t n_again, tp_step_rows *rows) {
    tp_scratch *s = &p->scratch;
    const size_t n = rows->rows, extra = drained->n + n_again;
    if (extra == 0) {
        return;
    }
    if (drained->n != 0) {
        memcpy(s->handles + n, drained->data, drained->n * sizeof *s->handles);
    }
    memcpy(s->handles + n + drained->n, s->again, n_again * sizeof *s->handles);
    if (rows->counts == NULL) {
        for (size_t i = 0; i < n; i++) {
            s->counts[i] = 1;
        }
    }
    memset(s->counts + n, 0, extra * sizeof *s->counts);
    if (rows->status == NULL) {
        memset(s->status, TP_ROW_OK, n);
    } else if (rows->status != s->status) {
        memcpy(s->status, rows->status, n);
    }
    memset(s->status + n, TP_ROW_DRAINED, extra);
    if (rows->lp_k != NULL) {
        memset(s->lp_k + n, 0xff, extra * sizeof *s->lp_k); /* -1: no logprobs */
    }
    if (rows->extras_len != NULL) {
        memset(s->extras_len + n, 0, extra * sizeof *s->extras_len);
    }
    rows->counts = s->counts;
    rows->status = s->status;
    rows->rows += (uint32_t)extra;
}

int tp_packer_convert(tp_packer *p, const tp_step_input *in, tp_step_rows *rows, uint64_t *bad,
                      tp_fault *fault) {
    const size_t n = in->handles.n, tokens = in->tokens.n;
    size_t n_again = 0;
    if (n > TP_MAX_ROWS / 2 || in->drained.n > TP_MAX_ROWS / 2 || tokens > TP_MAX_TOKENS) {
        return tp_fault_set(fault, "%zu rows, %zu drained, %zu tokens are too many for a frame", n,
                            in->drained.n, tokens);
    }
    if (tp_scratch_reserve(&p->scratch, 2 * n + in->drained.n, tokens, 0) != TP_OK) {
        return tp_fault_set(fault, "out of memory");
    }
    if (n != 0) { /* a copy: the next pack may have to take these rows back */
        memcpy(p->scratch.handles, in->handles.data, n * sizeof *p->scratch.handles);
    }
    rows->handles = p->scratch.handles;
    rows->rows = (uint32_t)n;
    rows->tokens = (uint32_t)tokens;
    int fits = tokens_in(&in->tokens, p->max_token, p->scratch.token_ids, &rows->token_ids);
    if (take_counts(p, in, rows, fault) < 0 || take_status(in, rows, fault) < 0 ||
        take_logprobs(p, in, rows, &fits, fault) < 0 || take_extras(p, in, rows, fault) < 0) {
        return -1;
    }
    *bad = fits ? 0 : tp_packer_repair(p, in, rows, &n_again);
    if (n + in->drained.n + n_again > TP_MAX_ROWS) {
        return tp_fault_set(fault, "%zu rows are too many for a frame", n + in->drained.n + n_again);
    }
    append_drained(p, &in->drained, n_again, rows);
    return 0;
}
