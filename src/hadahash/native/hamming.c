/* Histograms of Hamming distances.
 *
 * Plain C99 without Python's headers. `__init__.py` calls it through ctypes, which releases the
 * interpreter lock; threads are Python's, and there is no other runtime. One binary serves every
 * CPU of its architecture: on x86-64 the inner loops are compiled for four instruction sets, and
 * the best one is selected at run time. On aarch64 they use NEON.
 */
#include "neon.h"

#include <stdlib.h>
#include <string.h>

/* Increase it whenever a function of the library changes: Python ignores a library of another
 * version. */
#define INTERFACE 8

#define TABLES 4             /* histograms filled in turn: equal neighbors do not wait */
#define BATCH 2048           /* codes whose bins are computed before counting; multiple of TABLES */
#define TILE_BYTES (1 << 18) /* of codes and labels: a tile stays in the cache for all queries */

/* ---- distances of a batch of codes ----------------------------------------------------------- */

/* bin[i] = distance of code i to the query */
INLINE void distances(const uint64_t *query, const uint64_t *codes, int64_t words, int64_t count,
                      uint16_t *bin)
{
    int64_t i = 0;
#ifdef NEON
    for (; 8 * words <= NEON_WIDTH && i + EIGHT <= count; i += EIGHT)
        vst1q_u16(bin + i, eight_distances((const uint8_t *)query,
                                           (const uint8_t *)(codes + i * words), 8 * words));
#endif
    for (; i < count; i++) {
        uint32_t distance = 0;
        for (int64_t w = 0; w < words; w++)
            distance += POPCOUNT(query[w] ^ codes[i * words + w]);
        bin[i] = (uint16_t)distance;
    }
}

/* bin[i] += shift where code i shares a class with the query */
INLINE void shift_shared(const uint64_t *query_labels, const uint64_t *labels, int64_t words,
                         uint16_t shift, int64_t count, uint16_t *bin)
{
    for (int64_t i = 0; i < count; i++) {
        uint64_t shared = 0;
        for (int64_t w = 0; w < words; w++)
            shared |= query_labels[w] & labels[i * words + w];
        bin[i] = (uint16_t)(bin[i] + (shared ? shift : 0));
    }
}

/* Both. The common widths are constants, so that the compiler vectorizes over several codes. */
INLINE void find_bins(const uint64_t *query, const uint64_t *codes, int64_t words,
                      const uint64_t *query_labels, const uint64_t *labels, int64_t label_words,
                      uint16_t shift, int64_t count, uint16_t *bin)
{
#define WIDTH(w)                                                                                  \
    case w:                                                                                       \
        distances(query, codes, w, count, bin);                                                   \
        break;
    switch (words) {
        WIDTH(1) WIDTH(2) WIDTH(3) WIDTH(4) WIDTH(5) WIDTH(6) WIDTH(7) WIDTH(8)
    default:
        distances(query, codes, words, count, bin);
    }
    if (label_words == 1)
        shift_shared(query_labels, labels, 1, shift, count, bin);
    else if (label_words == 2)
        shift_shared(query_labels, labels, 2, shift, count, bin);
    else if (label_words > 2)
        shift_shared(query_labels, labels, label_words, shift, count, bin);
}

typedef void find_bins_function(const uint64_t *, const uint64_t *, int64_t, const uint64_t *,
                                const uint64_t *, int64_t, uint16_t, int64_t, uint16_t *);

#define FIND_BINS(name, attributes)                                                               \
    attributes static void name(const uint64_t *query, const uint64_t *codes, int64_t words,      \
                                const uint64_t *query_labels, const uint64_t *labels,             \
                                int64_t label_words, uint16_t shift, int64_t count,               \
                                uint16_t *bin)                                                    \
    {                                                                                             \
        find_bins(query, codes, words, query_labels, labels, label_words, shift, count, bin);     \
    }

DEFINE_FOR_LEVELS(FIND_BINS, find_bins)

int hadahash_cpu_level(void)
{
#ifdef CPU_DISPATCH
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("popcnt"))
        return 0;
    if (!__builtin_cpu_supports("avx2"))
        return 1;
    if (!__builtin_cpu_supports("avx512vpopcntdq") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512vl"))
        return 2;
    return 3;
#else
    return 0;
#endif
}

const char *hadahash_level_name(int level)
{
#ifdef CPU_DISPATCH
    static const char *const names[] = {"portable", "popcnt", "avx2", "avx512"};
#elif defined(NEON)
    static const char *const names[] = {"neon"};
#else
    static const char *const names[] = {"portable"};
#endif
    return level < 0 || level >= (int)(sizeof names / sizeof *names) ? NULL : names[level];
}

static find_bins_function *find_bins_for_level(int level)
{
    find_bins_function *known[] = ALL_LEVELS(find_bins);
    return known[usable_level(level)];
}

/* ---- histograms ------------------------------------------------------------------------------ */

static void count_batch(const uint16_t *bin, int64_t count, uint32_t *tables, int64_t bins)
{
    uint32_t *a = tables, *b = tables + bins, *c = tables + 2 * bins, *d = tables + 3 * bins;
    int64_t i = 0;
    for (; i + TABLES <= count; i += TABLES) {
        a[bin[i]]++;
        b[bin[i + 1]]++;
        c[bin[i + 2]]++;
        d[bin[i + 3]]++;
    }
    for (; i < count; i++)
        a[bin[i]]++;
}

static void add_tables(const uint32_t *tables, int64_t bins, int64_t *counts)
{
    for (int64_t k = 0; k < bins; k++)
        for (int64_t t = 0; t < TABLES; t++)
            counts[k] += tables[t * bins + k];
}

int hadahash_interface(void) { return INTERFACE; }

/* For each query, count the codes at each distance.
 *
 * queries      uint64 (n_queries, words)
 * query_labels uint64 (n_queries, label_words): the classes of each query, as bits
 * ranges       int64 (n_queries, 2): count only codes[first:last] for this query
 * codes        uint64 (n_codes, words)
 * labels       uint64 (n_codes, label_words)
 * bins         bits + 1; at most 32,768
 * counts       int64 (n_queries, bins), added to; with label_words > 0 (n_queries, 2, bins): first
 *              the codes that share no class with the query, then those that do
 * level        of hadahash_cpu_level, for tests; -1 selects the best one
 * returns      0, or 1 if memory is exhausted
 */
int hadahash_count_distances(const uint64_t *queries, const uint64_t *query_labels,
                             const int64_t *ranges, int64_t n_queries, const uint64_t *codes,
                             const uint64_t *labels, int64_t n_codes, int64_t words,
                             int64_t label_words, int64_t bins, int64_t *counts, int level)
{
    find_bins_function *find = find_bins_for_level(level);
    int64_t all_bins = label_words ? 2 * bins : bins;
    int64_t tile = TILE_BYTES / (8 * (words + label_words)) + 1;
    size_t table_bytes = (size_t)(TABLES * all_bins) * sizeof(uint32_t);
    uint32_t *tables = malloc(table_bytes);
    uint16_t bin[BATCH];
    if (!tables)
        return 1;
    for (int64_t start = 0; start < n_codes; start += tile) {
        int64_t end = start + tile < n_codes ? start + tile : n_codes;
        for (int64_t q = 0; q < n_queries; q++) {
            int64_t first = ranges[2 * q] > start ? ranges[2 * q] : start;
            int64_t last = ranges[2 * q + 1] < end ? ranges[2 * q + 1] : end;
            if (first >= last)
                continue;
            memset(tables, 0, table_bytes);
            for (int64_t i = first; i < last; i += BATCH) {
                int64_t count = last - i < BATCH ? last - i : BATCH;
                find(queries + q * words, codes + i * words, words, query_labels + q * label_words,
                     labels + i * label_words, label_words, (uint16_t)bins, count, bin);
                count_batch(bin, count, tables, all_bins);
            }
            add_tables(tables, all_bins, counts + q * all_bins);
        }
    }
    free(tables);
    return 0;
}
