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
 *
 * Doubles are added and multiplied in the order of ranked_tables.py, without contraction, so that
 * points are equal to the bit.
 */
#include "search.h"

#include <string.h>

#if defined(__GNUC__) || defined(__clang__)
#define PREFETCH(address) __builtin_prefetch(address)
#else
#define PREFETCH(address) (void)(address)
#endif

#define CHUNK 64         /* items that are filtered together; the bits of one word */
#define LANES 4          /* partial sums over classes, as in ranked_tables.py */
#define MANTISSAS 128    /* as in ranked_tables.py */
#define CACHE_BITS 9     /* codes remembered per query: 2^CACHE_BITS */
#define STEPS 4          /* numbers of classes after which bounds are compared */
#define QUEUE 256        /* items that wait for their content bits to be read */
#define POWER_STEPS 1024 /* entries of each table of `power_below` */
#define LOGARITHM_BITS 32

/* Bit planes of rounded weights: the bound is the sum of popcount(difference & plane) << shift. */
typedef struct {
    const uint8_t *masks;  /* (count, width) */
    const int64_t *shifts; /* (count,) */
    int64_t count;
} planes_t;

/* Bounds from the `steps[i]` most probable classes of the query; see ranked_bounds.py. */
typedef struct {
    int64_t steps[STEPS];     /* ascending; 0: not used */
    const uint8_t *codewords; /* (classes, width), the most probable first */
    const double *values;     /* single-label: their probabilities; multi-label: their factors */
    double next[STEPS];       /* single-label: the probability of the class after those */
    double rest[STEPS];       /* lower bound of what the others add to the denominator, or of the
                                 product of their factors */
    const double *powers;     /* (2, POWER_STEPS): exp of fractions, of whole numbers; lower bounds */
} steps_t;

/* One query; mirrored in ranked_query.py. Pointers are NULL where a term is missing. */
typedef struct {
    const uint8_t *code; /* class bits */
    int64_t start, radius;
    int64_t classes, bits;
    const uint8_t *codewords;    /* (classes, width) */
    const double *probabilities; /* (classes,), single-label */
    const double *powers;        /* (bits + 1,), single-label */
    const double *factors;       /* (classes, bits + 1), multi-label */
    const double *logarithms;    /* (2, MANTISSAS): inverses, logarithms; NULL: no logarithm */
    const uint8_t *top;          /* codeword that `caps` refer to */
    const int64_t *caps;         /* (bits + 1,): most class points by the distance to `top` */
    int64_t most;                /* the largest of them; 0 without class term */
    int64_t balls;               /* -1: items may lie anywhere */
    const uint8_t *anchors;      /* (balls, width) */
    const int64_t *radii;        /* (balls,) */
    const int64_t *losses;       /* (width, 256): by byte of the difference in class bits */
    const uint8_t *content;      /* content bits */
    const int64_t *content_losses; /* (content width, 256) */
    int64_t unit;                  /* weight of one unit of the planes */
    planes_t planes, content_planes;
    steps_t steps;
} ranked_t;

/* The items: rows of content bits are in the order of ordinals. */
typedef struct {
    const table_t *table;
    const uint8_t *content;
    int64_t content_width;
} items_t;

typedef struct {
    int64_t points, ordinal, position;
} hit_t;

typedef struct {
    int64_t position, points; /* position + 1 of an item with this code; 0: empty */
} remembered_t;

typedef struct {
    const ranked_t *query;
    hit_t *heap; /* the worst of the best on top */
    int64_t k;
    remembered_t *cache; /* (1 << CACHE_BITS,) */
} search_t;

/* ---- the heap -------------------------------------------------------------------------------- */

INLINE int worse(hit_t a, hit_t b)
{
    return a.points < b.points || (a.points == b.points && a.ordinal > b.ordinal);
}

static void replace_worst(hit_t *heap, int64_t k, hit_t hit)
{
    int64_t at = 0;
    for (int64_t child = 1; child < k; child = 2 * at + 1) {
        child += child + 1 < k && worse(heap[child + 1], heap[child]);
        if (!worse(heap[child], hit))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = hit;
}

/* ---- points of one item ---------------------------------------------------------------------- */

INLINE double shared_single(const ranked_t *query, const uint8_t *code, int64_t width)
{
    double above[LANES] = {0}, below[LANES] = {0};
    int64_t classes = query->classes, c = 0;
    for (; c + LANES <= classes; c += LANES)
        for (int64_t lane = 0; lane < LANES; lane++) {
            double power =
                query->powers[distance(query->codewords + (c + lane) * width, code, width)];
            above[lane] += query->probabilities[c + lane] * power;
            below[lane] += power;
        }
    for (int64_t lane = 0; c + lane < classes; lane++) {
        double power = query->powers[distance(query->codewords + (c + lane) * width, code, width)];
        above[lane] += query->probabilities[c + lane] * power;
        below[lane] += power;
    }
    return ((above[0] + above[1]) + (above[2] + above[3])) /
           ((below[0] + below[1]) + (below[2] + below[3]));
}

INLINE double shared_multi(const ranked_t *query, const uint8_t *code, int64_t width)
{
    double product[LANES] = {1, 1, 1, 1};
    for (int64_t c = 0; c < query->classes; c++)
        product[c % LANES] *=
            query->factors[c * (query->bits + 1) +
                           distance(query->codewords + c * width, code, width)];
    return 1.0 - (product[0] * product[1]) * (product[2] * product[3]);
}

/* As `logarithm` of ranked_tables.py. */
INLINE double logarithm(const double *tables, double x)
{
    uint64_t bits, ones = (uint64_t)1023 << 52;
    double mantissa;
    memcpy(&bits, &x, 8);
    int64_t exponent = (int64_t)(bits >> 52) - 1023, entry = (bits >> 45) & (MANTISSAS - 1);
    bits = (bits & (((uint64_t)1 << 52) - 1)) | ones;
    memcpy(&mantissa, &bits, 8);
    double r = mantissa * tables[entry] - 1.0;
    double series =
        r * (1.0 + r * (-1.0 / 2 + r * (1.0 / 3 + r * (-1.0 / 4 + r * (1.0 / 5 + r * (-1.0 / 6))))));
    return (double)exponent * tables[2 * MANTISSAS] + (tables[MANTISSAS + entry] + series);
}

/* The nearest integer, halves to even: adding 1.5 * 2^52 leaves no bits behind the point. */
INLINE int64_t nearest_integer(double x)
{
    double large = x + 6755399441055744.0;
    return (int64_t)(large - 6755399441055744.0);
}

INLINE int64_t class_points(const ranked_t *query, const uint8_t *code, int64_t width)
{
    double p = query->factors ? shared_multi(query, code, width)
                              : shared_single(query, code, width);
    if (!query->logarithms)
        return nearest_integer(p * 1099511627776.0); /* 2^40 */
    double least = 1.0 / ((int64_t)1 << 60);
    return nearest_integer(logarithm(query->logarithms, p < least ? least : p) * 4294967296.0);
}

/* Class points of the item at `position`, from the cache where an equal code was evaluated. */
INLINE int64_t remembered_points(const search_t *search, const table_t *table, int64_t position,
                                 int64_t width)
{
    const uint8_t *code = table->codes + position * width;
    uint64_t hash = 0;
    for (int64_t i = 0; i < width; i += 4) {
        uint32_t word;
        memcpy(&word, code + i, 4);
        hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    }
    remembered_t *entry = search->cache + (hash >> (64 - CACHE_BITS));
    if (entry->position &&
        !memcmp(table->codes + (entry->position - 1) * width, code, (size_t)width))
        return entry->points;
    entry->position = position + 1;
    entry->points = class_points(search->query, code, width);
    return entry->points;
}

/* A lower bound of the probability that has at least `points` class points. */
INLINE double probability_below(const ranked_t *query, int64_t points)
{
    if (!query->logarithms)
        return (double)(points - 2) * (1.0 / 1099511627776.0);
    int64_t fine = (points - 2) >> (LOGARITHM_BITS - 10), whole = fine >> 10;
    if (whole < -(POWER_STEPS - 1))
        return 0;
    if (whole >= 1)
        return 2;
    return query->steps.powers[fine & (POWER_STEPS - 1)] *
           query->steps.powers[POWER_STEPS - whole];
}

/* Whether an item may share a class with at least this probability, by its distances to the most
 * probable classes. */
INLINE int may_reach(const ranked_t *query, const uint8_t *code, int64_t width, double least)
{
    const steps_t *steps = &query->steps;
    double above = 0, below = 0, product = 1;
    int64_t c = 0;
    for (int i = 0; i < STEPS && steps->steps[i]; i++) {
        for (; c < steps->steps[i]; c++) {
            uint32_t apart = distance(steps->codewords + c * width, code, width);
            if (query->factors)
                product *= steps->values[c * (query->bits + 1) + apart];
            else {
                above += steps->values[c] * query->powers[apart];
                below += query->powers[apart];
            }
        }
        if (query->factors ? product * steps->rest[i] > 1 - least
                           : least > steps->next[i] && above - least * below <
                                 (least - steps->next[i]) * steps->rest[i])
            return 0;
    }
    return 1;
}

INLINE int64_t loss_width(const int64_t *losses, const uint8_t *a, const uint8_t *b,
                          int64_t width)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < width; i++)
        sum += losses[256 * i + (a[i] ^ b[i])];
    return sum;
}

INLINE int64_t loss(const int64_t *losses, const uint8_t *a, const uint8_t *b, int64_t width)
{
    return width == 8    ? loss_width(losses, a, b, 8)
           : width == 16 ? loss_width(losses, a, b, 16)
                         : loss_width(losses, a, b, width);
}

INLINE int64_t ordinal_at(const table_t *table, int64_t position)
{
    return table->ordinals ? (int64_t)table->ordinals[position] : position;
}

/* Offer one item to the heap. */
INLINE void offer(const items_t *items, const search_t *search, int64_t position, int64_t width)
{
    const table_t *table = items->table;
    const ranked_t *query = search->query;
    const uint8_t *code = table->codes + position * width;
    hit_t hit = {query->start, ordinal_at(table, position), position};
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

INLINE void measure_width(const uint8_t *anchor, const uint8_t *codes, int64_t count,
                          int64_t width, uint64_t *sums)
{
    if (width == 4) {
        for (int64_t i = 0; i < count; i++)
            sums[i] = POPCOUNT32(*(const uint32_t *)anchor ^ ((const uint32_t *)codes)[i]);
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        uint64_t sum = 0;
        for (int64_t w = 0; w < width / 8; w++)
            sum += POPCOUNT(((const uint64_t *)anchor)[w] ^
                            ((const uint64_t *)codes)[i * (width / 8) + w]);
        sums[i] = sum;
    }
}

/* Bit i is set where code i lies in one of the balls. */
INLINE uint64_t which_in_balls(const ranked_t *query, const uint8_t *codes, int64_t count,
                               int64_t width, uint64_t *sums)
{
    uint64_t which = 0;
    for (int64_t b = 0; b < query->balls; b++) {
        const uint8_t *anchor = query->anchors + b * width;
        FOR_WIDTH(width, measure_width(anchor, codes, count, W, sums))
        which |= which_below(sums, (uint64_t)query->radii[b]);
    }
    return which;
}

/* Bit i is set where the code at `position` + i is allowed, for i < CHUNK. */
INLINE uint64_t which_allowed(const uint64_t *allowed, int64_t position)
{
    uint64_t low = allowed[position >> 6] >> (position & 63);
    return position & 63 ? low | allowed[(position >> 6) + 1] << (64 - (position & 63)) : low;
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
            PREFETCH(items->content + ordinal_at(items->table, position) * items->content_width);
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

SCAN(scan_portable, )
#ifdef CPU_DISPATCH
SCAN(scan_popcnt, TARGET_POPCNT)
SCAN(scan_avx2, TARGET_AVX2)
SCAN(scan_avx512, TARGET_AVX512)
#endif

static chunk_function *scan_for_level(int level)
{
#ifdef CPU_DISPATCH
    chunk_function *known[] = {scan_portable, scan_popcnt, scan_avx2, scan_avx512};
    int best = hadahash_cpu_level();
    return known[level < 0 || level > best ? best : level];
#else
    (void)level;
    return scan_portable;
#endif
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
        int64_t sum = query->start, ordinal = ordinal_at(table, at);
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
