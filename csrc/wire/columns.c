/* Reads and writes frames of columns. */
#include "wire/columns.h"

#include "wire/envelope.h"

TP_HOT tp_result tp_columns_read(const uint8_t *data, size_t size, uint32_t kind, uint64_t *header,
                                 uint32_t fields, tp_column *columns, uint32_t last) {
    tp_reader r = {data, data + size};
    uint32_t found_kind, elements, n;
    tp_result result = tp_envelope_read(&r, &found_kind, &elements);
    if (found_kind != kind && found_kind != UINT32_MAX) {
        return TP_E_KIND; /* the kind is checked before the version, because it says more */
    }
    TP_TRY(result);
    if (elements < fields) {
        return TP_E_HEADER;
    }
    for (uint32_t i = 0; i < elements; i++) { /* a later version may add elements: they are skipped */
        uint64_t extra;
        TP_TRY(tp_read_uint(&r, i < fields ? &header[i] : &extra));
    }
    memset(columns, 0, (last + 1) * sizeof *columns);
    TP_TRY(tp_read_map(&r, &n));
    for (uint32_t i = 0; i < n; i++) {
        uint64_t id;
        tp_column column = {NULL, 0, 1};
        TP_TRY(tp_read_uint(&r, &id));
        TP_TRY(tp_read_bin(&r, &column.data, &column.size));
        if (id == 0 || id > last) {
            continue;
        }
        if (columns[id].seen) {
            return TP_E_COLUMN;
        }
        if (column.size == 0) {
            column.data = NULL;
        }
        columns[id] = column;
    }
    return tp_left(&r) == 0 ? TP_OK : TP_E_TRAILING;
}

TP_HOT size_t tp_columns_size(const uint64_t *header, uint32_t fields, const tp_part *parts, uint32_t n) {
    size_t size = 1 + 1 + 1 + (fields < 16 ? 1 : 3);
    uint32_t present = 0;
    for (uint32_t i = 0; i < fields; i++) {
        size += tp_uint_size(header[i]);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (parts[i].size != 0) {
            size += tp_uint_size(parts[i].id) + tp_bin_size(parts[i].size);
            present++;
        }
    }
    return size + (present < 16 ? 1 : 3);
}

TP_HOT uint8_t *tp_head_write(uint32_t kind, const uint64_t *header, uint32_t fields, uint8_t present,
                              uint8_t *p) {
    *p++ = 0x94;
    *p++ = (uint8_t)kind;
    *p++ = TP_WIRE_VERSION;
    *p++ = (uint8_t)(0x90 | fields);
    for (uint32_t i = 0; i < fields; i++) {
        p = tp_write_uint(p, header[i]);
    }
    if (present < 16) {
        *p++ = (uint8_t)(0x80 | present);
    } else {
        *p++ = 0xde;
        *p++ = 0;
        *p++ = present;
    }
    return p;
}

TP_HOT size_t tp_columns_write(uint32_t kind, const uint64_t *header, uint32_t fields, const tp_part *parts,
                               uint32_t n, uint8_t *out) {
    uint8_t present = 0;
    for (uint32_t i = 0; i < n; i++) {
        present += parts[i].size != 0;
    }
    uint8_t *p = tp_head_write(kind, header, fields, present, out);
    for (uint32_t i = 0; i < n; i++) {
        if (parts[i].size != 0) {
            p = tp_write_uint(p, parts[i].id);
            p = tp_write_bin(p, parts[i].data, parts[i].size);
        }
    }
    return (size_t)(p - out);
}

uint64_t tp_sum_u16(const uint8_t *data, uint32_t n) {
    uint64_t sum = 0;
    for (uint32_t at = 0; at < n;
         at += 65536) { /* 32-bit sums are twice as fast, and a 32-bit sum can hold this many counts */
        const uint32_t end = n - at < 65536 ? n - at : 65536;
        uint32_t part = 0;
        for (uint32_t i = 0; i < end; i++) {
            part += tp_load_u16(data + 2 * (size_t)(at + i));
        }
        sum += part;
    }
    return sum;
}

uint64_t tp_sum_u32(const uint8_t *data, uint32_t n) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += tp_load_u32(data + 4 * (size_t)i);
    }
    return sum;
}

tp_result tp_bytes_take(const tp_column *two, uint32_t rows, uint32_t most, const uint8_t **lengths,
                        const uint8_t **bytes, uint32_t *size) {
    TP_TRY(tp_take(&two[0], rows, 4, lengths));
    const uint64_t sum = *lengths == NULL ? 0 : tp_sum_u32(*lengths, rows);
    if (sum > most) {
        return TP_E_LIMIT;
    }
    if (two[1].size != sum) {
        return TP_E_COLUMN;
    }
    *bytes = two[1].data;
    *size = (uint32_t)sum;
    return TP_OK;
}

tp_result tp_logprobs_take(const tp_column *four, uint32_t rows, const uint8_t *counts, uint32_t counts_width,
                           tp_logprobs *lp) {
    memset(lp, 0, sizeof *lp);
    TP_TRY(tp_take(&four[0], rows, 4, &lp->k));
    uint64_t entries = 0, tokens = 0; /* the counts sum to at most 2^24, so this is at most 2^55 */
    for (uint32_t i = 0; lp->k != NULL && i < rows; i++) {
        const int32_t k = tp_load_i32(lp->k + 4 * (size_t)i);
        if (k < 0) {
            if (k != -1) {
                return TP_E_LOGPROBS;
            }
            continue;
        }
        const uint64_t count = counts == NULL      ? 1
                               : counts_width == 2 ? tp_load_u16(counts + 2 * (size_t)i)
                                                   : tp_load_u32(counts + 4 * (size_t)i);
        tokens += count;
        entries += count * (1 + (uint64_t)k);
    }
    if (entries > TP_MAX_ENTRIES) {
        return TP_E_LIMIT;
    }
    if (four[1].size != entries * 4 || four[2].size != entries * 4 || four[3].size != tokens * 4) {
        return TP_E_LOGPROBS;
    }
    lp->ids = four[1].data;
    lp->values = four[2].data;
    lp->ranks = four[3].data;
    lp->entries = (uint32_t)entries;
    lp->tokens = (uint32_t)tokens;
    return TP_OK;
}
