/* The k nearest codes: a scan that compares many codes at once with the distance of the k-th best so far, and seldom
 * looks closer.
 *
 * A candidate is one number, its key: distance * 2^32 + rank, where the rank is the item's place in the order of ids. So
 * smaller keys are better, no two are equal, and ties in distance fall to the smaller id. Each query has a heap of its k
 * best keys with the worst on top; it starts full of a limit, and what is still not below the limit in the end is padding.
 *
 * A flat table is one run of codes in the order of ids. route.c has those that are cut into many.
 */
#include "search.h"

#define CHUNK 64               /* codes compared before one branch; the bits of one word of `allowed` */
#define FEW 16                 /* codes; parts of a chunk are compared in multiples of it */
#define STREAMS 8              /* places from which a run is read at once: the memory answers them side by side */
#define CACHE_LINE 64

/* ---- distances ------------------------------------------------------------------------------------------------ */

/* Whether any of `count` codes is nearer than `bound`: then a difference is negative. The lanes of the sum are as wide as a
 * word, which compilers like. */
INLINE int any_nearer(const uint8_t *query, const uint8_t *codes, int64_t count, int64_t width, uint32_t bound)
{
    if (width == 4) {
        const uint32_t *code = (const uint32_t *)codes;
        uint32_t wanted = *(const uint32_t *)query, hit = 0;
        for (int64_t i = 0; i < count; i++)
            hit |= POPCOUNT32(wanted ^ code[i]) - bound;
        return hit >> 31 != 0;
    }
    const uint64_t *code = (const uint64_t *)codes, *wanted = (const uint64_t *)query;
    int64_t words = width / 8;
    uint64_t hit = 0, limit = bound;
    for (int64_t i = 0; i < count; i++) {
        uint64_t sum = 0;
        for (int64_t w = 0; w < words; w++)
            sum += POPCOUNT(wanted[w] ^ code[i * words + w]);
        hit |= sum - limit;
    }
    return hit >> 63 != 0;
}

/* Bit i is set where code i of `count`, at most a chunk, is nearer than `bound`. */
INLINE uint64_t which_nearer(const uint8_t *query, const uint8_t *codes, int64_t count, int64_t width, uint32_t bound)
{
    uint64_t which = 0;
    for (int64_t i = 0; i < count; i++)
        which |= (uint64_t)(distance(query, codes + i * width, width) < bound) << i;
    return which;
}

/* ---- the heap of the best keys -------------------------------------------------------------------------------- */

INLINE void replace_worst(uint64_t *heap, int64_t k, uint64_t key)
{
    int64_t at = 0;
    for (int64_t child = 1; child < k; child = 2 * at + 1) {
        child += child + 1 < k && heap[child + 1] > heap[child];
        if (heap[child] <= key)
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = key;
}

INLINE uint64_t rank_of(const table_t *table, int64_t position)
{
    return table->ranks ? table->ranks[position] : (uint64_t)position;
}

/* Codes of at least this rank can enter the heap only at a distance below this: a tie only with a lower rank. */
INLINE uint32_t bound_of(const query_t *query, uint64_t rank)
{
    uint64_t worst = query->heap[0];
    return (uint32_t)(worst >> 32) + (rank < (worst & 0xffffffffu));
}

/* The same for codes from `position` on; only where ranks ascend from here a tie can be ruled out. */
INLINE uint32_t bound_from(const table_t *table, const query_t *query, int64_t position, int ascending)
{
    return bound_of(query, ascending ? rank_of(table, position) : 0);
}

/* ---- scanning a run ------------------------------------------------------------------------------------------- */

/* Bit i is set where the code at `position` + i may be found, for a chunk. */
INLINE uint64_t which_allowed(const uint64_t *allowed, int64_t position)
{
    uint64_t low = allowed[position >> 6] >> (position & 63);
    return position & 63 ? low | allowed[(position >> 6) + 1] << (64 - (position & 63)) : low;
}

/* Offer each code of a range, at most a chunk, to the heap; returns whether the worst of the heap changed. */
INLINE int offer(const table_t *table, const query_t *query, int64_t first, int64_t count, int64_t width)
{
    uint64_t before = query->heap[0];
    uint64_t which = which_nearer(query->code, table->codes + first * width, count, width, bound_of(query, 0));
    if (table->allowed)
        which &= which_allowed(table->allowed, first);
    for (; which; which &= which - 1) {
        int64_t position = first + LOWEST_BIT(which);
        uint64_t near = distance(query->code, table->codes + position * width, width);
        uint64_t key = near << 32 | rank_of(table, position);
        if (key < query->heap[0])
            replace_worst(query->heap, query->k, key);
    }
    return query->heap[0] != before;
}

/* Scan a range chunk by chunk; `bound`: of its first code. The last comparison may reach past its end. */
INLINE void scan_chunks(const table_t *table, const query_t *query, int64_t first, int64_t last, uint32_t bound,
                        int ascending, int64_t width)
{
    for (int64_t at = first; at < last; at += CHUNK) {
        const uint8_t *codes = table->codes + at * width;
        int64_t count = last - at < CHUNK ? last - at : CHUNK, some = (count + FEW - 1) / FEW * FEW;
        if (table->allowed && !which_allowed(table->allowed, at))
            continue;
        if (at + some <= table->size && !any_nearer(query->code, codes, some, width, bound))
            continue;
        if (offer(table, query, at, count, width))
            bound = bound_from(table, query, at, ascending);
    }
}

/* Scan a range from STREAMS places at once, each a whole number of chunks; returns where it ended. */
INLINE int64_t scan_streams(const table_t *table, const query_t *query, int64_t first, int64_t last, int ascending,
                            int64_t width)
{
    int64_t part = (last - first) / (STREAMS * CHUNK) * CHUNK;
    uint32_t bounds[STREAMS];
    if (part == 0)
        return first;
    for (int s = 0; s < STREAMS; s++)
        bounds[s] = bound_from(table, query, first + s * part, ascending);
    for (int64_t i = 0; i < part; i += CHUNK)
        for (int s = 0; s < STREAMS; s++) {
            int64_t at = first + s * part + i;
            if (table->allowed && !which_allowed(table->allowed, at))
                continue;
            if (!any_nearer(query->code, table->codes + at * width, CHUNK, width, bounds[s]))
                continue;
            int changed = offer(table, query, at, CHUNK, width);
            for (int t = changed ? 0 : s; t < (changed ? STREAMS : s + 1); t++) {
                int64_t next = first + t * part + i + (t <= s ? CHUNK : 0);
                bounds[t] = bound_from(table, query, next < last ? next : last - 1, ascending);
            }
        }
    return first + STREAMS * part;
}

INLINE void scan_width(const table_t *table, const query_t *query, int64_t first, int64_t last, uint64_t rank,
                       int ascending, int64_t width)
{
    if (last - first > STREAMS * CHUNK) { /* chunks that start on a cache line are read much faster */
        int64_t past = (int64_t)((uintptr_t)(table->codes + first * width) % CACHE_LINE);
        int64_t head = (CACHE_LINE - past) % CACHE_LINE / width;
        scan_chunks(table, query, first, first + head, bound_of(query, rank), ascending, width);
        first = scan_streams(table, query, first + head, last, ascending, width);
        rank = ascending && first < last ? rank_of(table, first) : rank;
    }
    scan_chunks(table, query, first, last, bound_of(query, rank), ascending, width);
}

/* With the common widths known to the compiler: it then works on many codes at once. */
INLINE void scan_any(const table_t *table, const query_t *query, int64_t first, int64_t last, uint64_t rank, int ascending)
{
#define WIDTH(bytes)                                                                                                  \
    case bytes:                                                                                                       \
        scan_width(table, query, first, last, rank, ascending, bytes);                                                \
        break;
    switch (table->width) {
        WIDTH(4) WIDTH(8) WIDTH(16) WIDTH(32) WIDTH(64)
    default:
        scan_width(table, query, first, last, rank, ascending, table->width);
    }
}

#define SCAN(name, attributes)                                                                                        \
    attributes static void name(const table_t *table, const query_t *query, int64_t first, int64_t last,              \
                                uint64_t rank, int ascending)                                                         \
    {                                                                                                                 \
        scan_any(table, query, first, last, rank, ascending);                                                         \
    }

SCAN(scan_portable, )
#ifdef BY_CPU
SCAN(scan_popcnt, TARGET_POPCNT)
SCAN(scan_avx2, TARGET_AVX2)
SCAN(scan_avx512, TARGET_AVX512)
#endif

scan_function *hadahash_scan_of_level(int level)
{
#ifdef BY_CPU
    scan_function *known[] = {scan_portable, scan_popcnt, scan_avx2, scan_avx512};
    int best = hadahash_cpu_level();
    return known[level < 0 || level > best ? best : level];
#else
    (void)level;
    return scan_portable;
#endif
}

/* ---- flat tables ---------------------------------------------------------------------------------------------- */

/* Offer the codes first <= position < last of a flat table to each query.
 *
 * queries   (n_queries, width) bytes
 * heaps     uint64 (n_queries, k), k > 0: in and out
 * level     of hadahash_cpu_level, for tests; -1 for the best there is
 */
void hadahash_scan(const table_t *table, const uint8_t *queries, int64_t n_queries, uint64_t *heaps, int64_t k,
                   int64_t first, int64_t last, int level)
{
    scan_function *scan = hadahash_scan_of_level(level);
    int64_t block = BLOCK_BYTES / table->width;
    for (int64_t start = first; start < last; start += block) {
        int64_t end = last - start < block ? last : start + block;
        for (int64_t q = 0; q < n_queries; q++) {
            query_t query = query_at(table, queries, heaps, k, q);
            scan(table, &query, start, end, (uint64_t)start, 1);
        }
    }
}

