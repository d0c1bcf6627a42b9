/* Ranked search: the k items with the most points, exactly.
 *
 * Points are integers: start + class points - losses. Class points follow from the distances to all
 * codewords (the probability of sharing a class, or its logarithm); losses are sums of weights over
 * the bits that differ, in the class bits or in the content bits. ranked_tables.py defines them.
 *
 * Few items are evaluated. An item must lie in one of a few balls around codewords (ranked_bounds.py
 * computes them), and its losses must not exceed what the current k-th best allows. A lower bound of
 * the losses comes from bit planes: weights are rounded down to small integers, and the population
 * counts of the planes are added. The remaining items are evaluated by tables per byte; class points
 * only if upper bounds by the distances to some codewords allow it, and only once per code as far as
 * a small cache remembers it.
 */
#include "ranked.h"

#if defined(__GNUC__) || defined(__clang__)
#define PREFETCH(address) __builtin_prefetch(address)
#else
#define PREFETCH(address) (void)(address)
#endif

#define QUEUE 256 /* items that wait for their content bits to be read */

/* ---- offering one item ----------------------------------------------------------------------- */

/* Offer one item to the heap. */
INLINE void offer(const items_t *items, const search_t *search, int64_t position, int64_t width)
{
    const table_t *table = items->table;
    const ranked_t *query = search->query;
    const uint8_t *code = table->codes + position * width;
    hit_t hit = {query->start, (int64_t)ordinal_at(table, position), position};
    hit_t worst = search->heap[0];
    if (query->radius < query->bits && distance(query->code, code, width) > query->radius)
        return;
    if (query->content)
        hit.points -= loss(query->content_losses, query->content,
                           items->content + hit.ordinal * items->content_width,
                           items->content_width);
    if (query->losses)
        hit.points -= loss(query->losses, query->code, code, width);
    if (query->classes) {
        hit_t best = hit;
        best.points += query->caps[distance(query->top, code, width)];
        if (!worse(worst, best))
            return;
        if (!may_reach(query, code, width, probability_below(query, worst.points - hit.points)))
            return;
        hit.points += remembered_points(search, table, position, width);
    }
    if (worse(worst, hit))
        replace_worst(search->heap, search->k, hit);
}

/* ---- filters over a chunk -------------------------------------------------------------------- */

/* Sums of `used` planes, from `first` on, over `count` codes; added to `sums` or replacing them. */
INLINE void sum_planes_width(const planes_t *planes, int64_t first, int64_t used, int add,
                             const uint8_t *query, const uint8_t *codes, int64_t count,
                             int64_t width, uint64_t *sums)
{
    const uint8_t *masks = planes->masks + first * width;
    const int64_t *shifts = planes->shifts + first;
    for (int64_t i = 0; i < count; i++) {
        uint64_t sum = 0;
        for (int64_t p = 0; p < used; p++) {
            uint64_t bits = 0;
            if (width == 4)
                bits = POPCOUNT32((((const uint32_t *)codes)[i] ^ *(const uint32_t *)query) &
                                  ((const uint32_t *)masks)[p]);
            for (int64_t w = 0; w < width / 8; w++)
                bits += POPCOUNT((((const uint64_t *)codes)[i * (width / 8) + w] ^
                                  ((const uint64_t *)query)[w]) &
                                 ((const uint64_t *)masks)[p * (width / 8) + w]);
            sum += bits << shifts[p];
        }
        sums[i] = add ? sums[i] + sum : sum;
    }
}

/* The common widths are constants, so that the compiler vectorizes over several codes. */
#define FOR_WIDTH(width, call)                                                                    \
    switch (width) {                                                                              \
    case 4: { enum { W = 4 }; call; break; }                                                      \
    case 8: { enum { W = 8 }; call; break; }                                                      \
    case 16: { enum { W = 16 }; call; break; }                                                    \
    case 32: { enum { W = 32 }; call; break; }                                                    \
    default: { int64_t W = width; call; }                                                         \
    }

/* Sums of all planes over a chunk; added to `sums` or replacing them. */
INLINE void sum_planes(const planes_t *planes, int add, const uint8_t *query,
                       const uint8_t *codes, int64_t count, int64_t width, uint64_t *sums)
{
    int64_t first = 0;
#define PLANES(used, add)                                                                         \
    FOR_WIDTH(width, sum_planes_width(planes, first, used, add, query, codes, count, W, sums))
    if (!add && planes->count >= 4) {
        PLANES(4, 0)
        first = 4;
    } else if (!add) {
        PLANES(1, 0)
        first = 1;
    }
    for (; first + 4 <= planes->count; first += 4)
        PLANES(4, 1)
    for (; first < planes->count; first++)
        PLANES(1, 1)
#undef PLANES
}

/* Bit i is set where sums[i] <= bound, for CHUNK sums. */
INLINE uint64_t which_below(const uint64_t *sums, uint64_t bound)
{
    uint64_t any = 0, which = 0;
    uint8_t flags[CHUNK];
    for (int64_t i = 0; i < CHUNK; i++)
        any |= sums[i] - (bound + 1); /* negative where the sum is not above the bound */
    if (!(any >> 63))
        return 0;
    for (int64_t i = 0; i < CHUNK; i++)
        flags[i] = sums[i] <= bound;
    for (int64_t i = 0; i < CHUNK; i += 8) { /* little-endian: collect the bits of 8 bytes */
        uint64_t eight;
        memcpy(&eight, flags + i, 8);
        which |= (eight * 0x0102040810204080u >> 56) << i;
    }
    return which;
}

/* Distances of `count` codes to an anchor, plus `more`; the smaller of this and `sums` if `least`. */
INLINE void measure_width(const uint8_t *anchor, uint64_t more, int least, const uint8_t *codes,
                          int64_t count, int64_t width, uint64_t *sums)
{
    for (int64_t i = 0; i < count; i++) {
        uint64_t sum = more;
        if (width == 4)
            sum += POPCOUNT32(*(const uint32_t *)anchor ^ ((const uint32_t *)codes)[i]);
        for (int64_t w = 0; w < width / 8; w++)
            sum += POPCOUNT(((const uint64_t *)anchor)[w] ^
                            ((const uint64_t *)codes)[i * (width / 8) + w]);
        sums[i] = least && sums[i] < sum ? sums[i] : sum;
    }
}

/* Bit i is set where code i lies in one of the balls: where the smallest of
 * distance - radius + bits is not above bits. */
INLINE uint64_t which_in_balls(const ranked_t *query, const uint8_t *codes, int64_t count,
                               int64_t width, uint64_t *sums)
{
    for (int64_t b = 0; b < query->balls; b++) {
        const uint8_t *anchor = query->anchors + b * width;
        uint64_t more = (uint64_t)(query->bits - query->radii[b]);
        if (b) {
            FOR_WIDTH(width, measure_width(anchor, more, 1, codes, count, W, sums))
        } else {
            FOR_WIDTH(width, measure_width(anchor, more, 0, codes, count, W, sums))
        }
    }
    return query->balls ? which_below(sums, (uint64_t)query->bits) : 0;
}

/* Items that passed the filters. */
typedef struct {
    int64_t positions[QUEUE], count;
} queue_t;

/* Offer the waiting items to the heap. */
INLINE void flush(const items_t *items, const search_t *search, queue_t *queue)
{
    for (int64_t i = 0; i < queue->count; i++)
        FOR_WIDTH(items->table->width, offer(items, search, queue->positions[i], W))
    queue->count = 0;
}

INLINE void enqueue(const items_t *items, queue_t *queue, int64_t first, uint64_t which)
{
    for (; which; which &= which - 1) {
        int64_t position = first + LOWEST_BIT(which);
        if (items->content)
            PREFETCH(items->content +
                     (int64_t)ordinal_at(items->table, position) * items->content_width);
        queue->positions[queue->count++] = position;
    }
}

/* Which items of a chunk may enter the heap. */
INLINE uint64_t filter_chunk(const items_t *items, const search_t *search, int64_t first,
                             int64_t count)
{
    const table_t *table = items->table;
    const ranked_t *query = search->query;
    const uint8_t *codes = table->codes + first * table->width;
    uint64_t which = count < CHUNK ? ((uint64_t)1 << count) - 1 : ~(uint64_t)0, sums[CHUNK];
    hit_t worst = search->heap[0];
    int64_t late = !table->ordinals && first > worst.ordinal; /* a tie does not suffice */
    int64_t slack = query->start + query->most - worst.points - late;
    uint64_t bound = (uint64_t)(slack / query->unit);
    if (table->allowed)
        which &= which_allowed(table->allowed, first);
    if (!which || slack < 0)
        return 0;
    if (query->balls >= 0)
        which &= which_in_balls(query, codes, count, table->width, sums);
    if (which && query->planes.count) {
        sum_planes(&query->planes, 0, query->code, codes, count, table->width, sums);
        which &= which_below(sums, bound);
    }
    if (query->content_planes.count && !table->ordinals && POPCOUNT(which) > CHUNK / 8) {
        sum_planes(&query->content_planes, query->planes.count > 0, query->content,
                   items->content + first * items->content_width, count, items->content_width,
                   sums);
        which &= which_below(sums, bound);
    }
    return which;
}

/* ---- scanning ranges ------------------------------------------------------------------------- */

typedef void chunk_function(const items_t *, const search_t *, int64_t first, int64_t last);

#define SCAN(name, attributes)                                                                    \
    attributes static void name(const items_t *items, const search_t *search, int64_t first,      \
                                int64_t last)                                                     \
    {                                                                                             \
        queue_t queue;                                                                            \
        queue.count = 0;                                                                          \
        for (int64_t at = first; at < last; at += CHUNK) {                                        \
            int64_t count = last - at < CHUNK ? last - at : CHUNK;                                \
            enqueue(items, &queue, at, filter_chunk(items, search, at, count));                   \
            if (queue.count > QUEUE - CHUNK)                                                      \
                flush(items, search, &queue);                                                     \
        }                                                                                         \
        flush(items, search, &queue);                                                             \
    }

DEFINE_FOR_LEVELS(SCAN, scan)

static chunk_function *scan_for_level(int level)
{
    chunk_function *known[] = ALL_LEVELS(scan);
    return known[usable_level(level)];
}

/* Scan ranges of positions for each query.
 *
 * content   (size, content_width) bytes in the order of ordinals, aligned like codes; or NULL
 * heaps     (n_queries, k), k > 0: in and out
 * caches    (n_queries, 1 << CACHE_BITS): in and out; empty at first
 * ranges    int64 (n_ranges, 2): first and last position
 * level     of hadahash_cpu_level, for tests; -1 selects the best one
 */
void hadahash_ranked(const table_t *table, const uint8_t *content, int64_t content_width,
                     const ranked_t *queries, int64_t n_queries, hit_t *heaps, int64_t k,
                     remembered_t *caches, const int64_t *ranges, int64_t n_ranges, int level)
{
    chunk_function *scan = scan_for_level(level);
    items_t items = {table, content, content_width};
    int64_t tile = TILE_BYTES / (table->width + content_width) / CHUNK * CHUNK;
    for (int64_t r = 0; r < n_ranges; r++)
        for (int64_t start = ranges[2 * r]; start < ranges[2 * r + 1]; start += tile) {
            int64_t last = ranges[2 * r + 1], end = last - start < tile ? last : start + tile;
            for (int64_t q = 0; q < n_queries; q++) {
                search_t search = {queries + q, heaps + q * k, k, caches + (q << CACHE_BITS)};
                scan(&items, &search, start, end);
            }
        }
}

/* Points of all items, for one query: int64 (size,). */
void hadahash_points(const table_t *table, const uint8_t *content, int64_t content_width,
                     const ranked_t *query, remembered_t *cache, int64_t first, int64_t last,
                     int64_t *points)
{
    search_t search = {query, 0, 0, cache};
    for (int64_t at = first; at < last; at++) {
        const uint8_t *code = table->codes + at * table->width;
        int64_t sum = query->start, ordinal = (int64_t)ordinal_at(table, at);
        if (query->content)
            sum -= loss(query->content_losses, query->content, content + ordinal * content_width,
                        content_width);
        if (query->losses)
            sum -= loss(query->losses, query->code, code, table->width);
        if (query->classes)
            sum += remembered_points(&search, table, at, table->width);
        points[at] = sum;
    }
}
