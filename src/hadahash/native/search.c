/* k-nearest-neighbor search: a scan that compares many codes at once with the distance of the
 * current k-th best, and looks at single codes only where one is nearer.
 *
 * A candidate is one number, its key: distance * 2^32 + ordinal, where the ordinal is the item's
 * position in the order of ids. Smaller keys are better, no two keys are equal, and ties in
 * distance are broken by the smaller id. Each query has a max-heap of its k best keys. The heap
 * starts full of a limit; entries that still equal the limit at the end are padding.
 *
 * A flat table is one block of codes in the order of ids. route.c searches tables of many blocks.
 */
#include "search.h"

#include "neon.h"

#define GROUP 16      /* codes; the last part of a range is compared in multiples of it */
#define STREAMS 8     /* positions read in parallel, so that memory latencies overlap */
#define CACHE_LINE 64 /* bytes */

/* ---- distances ----------------------------------------------------------------------------- */

/* Whether any of `count` codes is nearer than `bound`: its difference is then negative. The sum
 * has lanes as wide as a word, which compilers vectorize well. */
INLINE int any_nearer(const uint8_t *query, const uint8_t *codes, int64_t count, int64_t width,
                      uint32_t bound)
{
#ifdef NEON
    if (width <= NEON_WIDTH) { /* `count` is a multiple of GROUP */
        uint16x8_t nearest = eight_distances(query, codes, width);
        for (int64_t i = EIGHT; i < count; i += EIGHT)
            nearest = vminq_u16(nearest, eight_distances(query, codes + i * width, width));
        return vminvq_u16(nearest) < bound;
    }
#endif
    if (width == 4) {
        const uint32_t *code = (const uint32_t *)codes;
        uint32_t target = *(const uint32_t *)query, hit = 0;
        for (int64_t i = 0; i < count; i++)
            hit |= POPCOUNT32(target ^ code[i]) - bound;
        return hit >> 31 != 0;
    }
    const uint64_t *code = (const uint64_t *)codes, *target = (const uint64_t *)query;
    int64_t words = width / 8;
    uint64_t hit = 0, limit = bound;
    for (int64_t i = 0; i < count; i++) {
        uint64_t sum = 0;
        for (int64_t w = 0; w < words; w++)
            sum += POPCOUNT(target[w] ^ code[i * words + w]);
        hit |= sum - limit;
    }
    return hit >> 63 != 0;
}

/* Bit i is set where code i of `count` <= CHUNK codes is nearer than `bound`. */
INLINE uint64_t which_nearer(const uint8_t *query, const uint8_t *codes, int64_t count,
                             int64_t width, uint32_t bound)
{
    uint64_t which = 0;
    int64_t i = 0;
#ifdef NEON
    static const uint16_t places[EIGHT] = {1, 2, 4, 8, 16, 32, 64, 128};
    uint16x8_t limit = vdupq_n_u16((uint16_t)(bound < UINT16_MAX ? bound : UINT16_MAX));
    for (; width <= NEON_WIDTH && i + EIGHT <= count; i += EIGHT) {
        uint16x8_t nearer = vcltq_u16(eight_distances(query, codes + i * width, width), limit);
        which |= (uint64_t)vaddvq_u16(vandq_u16(nearer, vld1q_u16(places))) << i;
    }
#endif
    for (; i < count; i++)
        which |= (uint64_t)(distance(query, codes + i * width, width) < bound) << i;
    return which;
}

/* ---- the heap of the best keys --------------------------------------------------------------- */

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

/* Codes with at least this ordinal enter the heap only at a distance below the returned bound: a
 * tie in distance requires a smaller ordinal. */
INLINE uint32_t distance_bound(const query_t *query, uint64_t ordinal)
{
    uint64_t worst = query->heap[0];
    return (uint32_t)(worst >> 32) + (ordinal < (worst & 0xffffffffu));
}

/* The same bound for codes from `position` on. Ties are excluded only where ordinals ascend. */
INLINE uint32_t distance_bound_at(const table_t *table, const query_t *query, int64_t position,
                                  int ascending)
{
    return distance_bound(query, ascending ? ordinal_at(table, position) : 0);
}

/* ---- scanning a block ------------------------------------------------------------------------ */

/* Offer each code of a range of at most CHUNK codes to the heap. Returns whether the worst key of
 * the heap changed. */
INLINE int offer(const table_t *table, const query_t *query, int64_t first, int64_t count,
                 int64_t width)
{
    uint64_t before = query->heap[0];
    uint64_t which = which_nearer(query->code, table->codes + first * width, count, width,
                                  distance_bound(query, 0));
    if (table->allowed)
        which &= which_allowed(table->allowed, first);
    for (; which; which &= which - 1) {
        int64_t position = first + LOWEST_BIT(which);
        uint64_t near = distance(query->code, table->codes + position * width, width);
        uint64_t key = near << 32 | ordinal_at(table, position);
        if (key < query->heap[0])
            replace_worst(query->heap, query->k, key);
    }
    return query->heap[0] != before;
}

/* Scan a range chunk by chunk; `bound` holds for its first code. The comparison of the last chunk
 * may reach past the end of the range, never past the end of the table. */
INLINE void scan_chunks(const table_t *table, const query_t *query, int64_t first, int64_t last,
                        uint32_t bound, int ascending, int64_t width)
{
    for (int64_t at = first; at < last; at += CHUNK) {
        const uint8_t *codes = table->codes + at * width;
        int64_t count = last - at < CHUNK ? last - at : CHUNK;
        int64_t rounded = (count + GROUP - 1) / GROUP * GROUP;
        if (table->allowed && !which_allowed(table->allowed, at))
            continue;
        if (at + rounded <= table->size && !any_nearer(query->code, codes, rounded, width, bound))
            continue;
        if (offer(table, query, at, count, width))
            bound = distance_bound_at(table, query, at, ascending);
    }
}

/* Scan a range at STREAMS positions in parallel, each a whole number of chunks. Returns the first
 * position that was not scanned. */
INLINE int64_t scan_streams(const table_t *table, const query_t *query, int64_t first,
                            int64_t last, int ascending, int64_t width)
{
    int64_t part = (last - first) / (STREAMS * CHUNK) * CHUNK;
    uint32_t bounds[STREAMS];
    if (part == 0)
        return first;
    for (int s = 0; s < STREAMS; s++)
        bounds[s] = distance_bound_at(table, query, first + s * part, ascending);
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
                bounds[t] = distance_bound_at(table, query, next < last ? next : last - 1,
                                              ascending);
            }
        }
    return first + STREAMS * part;
}

INLINE void scan_width(const table_t *table, const query_t *query, int64_t first, int64_t last,
                       uint64_t ordinal, int ascending, int64_t width)
{
    if (last - first > STREAMS * CHUNK) { /* streams start on a cache line: much faster */
        int64_t past = (int64_t)((uintptr_t)(table->codes + first * width) % CACHE_LINE);
        int64_t head = (CACHE_LINE - past) % CACHE_LINE / width;
        scan_chunks(table, query, first, first + head, distance_bound(query, ordinal), ascending,
                    width);
        first = scan_streams(table, query, first + head, last, ascending, width);
        ordinal = ascending && first < last ? ordinal_at(table, first) : ordinal;
    }
    scan_chunks(table, query, first, last, distance_bound(query, ordinal), ascending, width);
}

/* The common widths are constants, so that the compiler vectorizes over several codes. */
INLINE void scan_any(const table_t *table, const query_t *query, int64_t first, int64_t last,
                     uint64_t ordinal, int ascending)
{
#define WIDTH(bytes)                                                                              \
    case bytes:                                                                                   \
        scan_width(table, query, first, last, ordinal, ascending, bytes);                         \
        break;
    switch (table->width) {
        WIDTH(4) WIDTH(8) WIDTH(16) WIDTH(32) WIDTH(64)
    default:
        scan_width(table, query, first, last, ordinal, ascending, table->width);
    }
}

#define SCAN(name, attributes)                                                                    \
    attributes static void name(const table_t *table, const query_t *query, int64_t first,        \
                                int64_t last, uint64_t ordinal, int ascending)                    \
    {                                                                                             \
        scan_any(table, query, first, last, ordinal, ascending);                                  \
    }

DEFINE_FOR_LEVELS(SCAN, scan)

scan_function *hadahash_scan_for_level(int level)
{
    scan_function *known[] = ALL_LEVELS(scan);
    return known[usable_level(level)];
}

/* ---- flat tables ----------------------------------------------------------------------------- */

/* Scan the positions first <= p < last of a flat table for each query.
 *
 * queries   (n_queries, width) bytes, aligned like the codes
 * heaps     uint64 (n_queries, k), k > 0: in and out
 * level     of hadahash_cpu_level, for tests; -1 selects the best one
 */
void hadahash_scan(const table_t *table, const uint8_t *queries, int64_t n_queries,
                   uint64_t *heaps, int64_t k, int64_t first, int64_t last, int level)
{
    scan_function *scan = hadahash_scan_for_level(level);
    int64_t tile = TILE_BYTES / table->width;
    for (int64_t start = first; start < last; start += tile) {
        int64_t end = last - start < tile ? last : start + tile;
        for (int64_t q = 0; q < n_queries; q++) {
            query_t query = query_at(table, queries, heaps, k, q);
            scan(table, &query, start, end, (uint64_t)start, 1);
        }
    }
}
