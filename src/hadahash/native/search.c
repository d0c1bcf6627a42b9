/* The k nearest codes: a scan that compares many codes at once with the distance of the k-th best so far, and seldom
 * looks closer.
 *
 * A candidate is one number, its key: distance * 2^32 + rank, where the rank is the item's place in the order of ids. So
 * smaller keys are better, no two are equal, and ties in distance fall to the smaller id. Each query has a heap of its k
 * best keys with the worst on top; it starts full of a limit, and what is still not below the limit in the end is padding.
 *
 * A flat table is one run of codes in the order of ids. A routed table is cut into buckets, one for each centre, and
 * each bucket into runs of one distance to its centre, in the order of ids: by the triangle inequality no code of a run
 * is nearer to a query than |query to centre - run to centre|, so most runs need not be looked at.
 */
#include "hamming.h"

#include <stddef.h>

#define CHUNK 64               /* codes compared before one branch; the bits of one word of `allowed` */
#define STREAMS 8              /* places from which a run is read at once: the memory answers them side by side */
#define BLOCK_BYTES (1 << 17)  /* of codes, so that they stay in the cache while all queries visit them */
#define CACHE_LINE 64
#define VISITED 0xffff         /* in `spans`: this query has seen this bucket */

/* Mirrored in search.py. */
typedef struct {
    const uint8_t *codes;       /* (size, width) */
    const uint32_t *ranks;      /* (size,), ascending in each run; NULL: rank = position */
    const uint64_t *allowed;    /* one bit for each code; NULL: all */
    int64_t size, width;        /* width: bytes of a code, 4 or a multiple of 8 */
    const uint8_t *centres;     /* (buckets, width); the rest only for routed tables */
    const int64_t *bucket_runs; /* (buckets + 1,): bucket b has the runs bucket_runs[b] to bucket_runs[b + 1] */
    const int64_t *run_starts;  /* (runs + 1,) */
    const int32_t *run_spans;   /* (runs,): distance to the centre, ascending in each bucket */
    const uint32_t *run_ranks;  /* (runs,): rank of the first code, the least of the run */
    int64_t buckets;
} table_t;

/* One query and its heap. */
typedef struct {
    const uint8_t *code;
    uint64_t *heap;
    int64_t k;
} query_t;

/* ---- distances ------------------------------------------------------------------------------------------------ */

INLINE uint32_t distance(const uint8_t *query, const uint8_t *code, int64_t width)
{
    if (width == 4)
        return POPCOUNT32(*(const uint32_t *)query ^ *(const uint32_t *)code);
    uint32_t sum = 0;
    for (int64_t w = 0; w < width / 8; w++)
        sum += POPCOUNT(((const uint64_t *)query)[w] ^ ((const uint64_t *)code)[w]);
    return sum;
}

/* Whether any code of a chunk is nearer than `bound`. The lanes of the sum are as wide as a word, which compilers like. */
INLINE int any_nearer(const uint8_t *query, const uint8_t *codes, int64_t width, uint32_t bound)
{
    if (width == 4) {
        const uint32_t *code = (const uint32_t *)codes;
        uint32_t wanted = *(const uint32_t *)query, hit = 0;
        for (int i = 0; i < CHUNK; i++)
            hit |= POPCOUNT32(wanted ^ code[i]) < bound;
        return hit != 0;
    }
    const uint64_t *code = (const uint64_t *)codes, *wanted = (const uint64_t *)query;
    int64_t words = width / 8;
    uint64_t hit = 0, limit = bound;
    for (int i = 0; i < CHUNK; i++) {
        uint64_t sum = 0;
        for (int64_t w = 0; w < words; w++)
            sum += POPCOUNT(wanted[w] ^ code[i * words + w]);
        hit |= sum < limit;
    }
    return hit != 0;
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

/* Codes from `position` on can enter the heap only at a distance below this: a tie only with a lower rank, which is ruled
 * out where ranks ascend from here. */
INLINE uint32_t bound_from(const table_t *table, const query_t *query, int64_t position, int ascending)
{
    uint64_t worst = query->heap[0], rank = ascending ? rank_of(table, position) : 0;
    return (uint32_t)(worst >> 32) + (rank < (worst & 0xffffffffu));
}

/* ---- scanning a run ------------------------------------------------------------------------------------------- */

INLINE int is_allowed(const uint64_t *allowed, int64_t position)
{
    return !allowed || (allowed[position >> 6] >> (position & 63) & 1);
}

/* Whether none of the CHUNK codes from `position` is allowed. */
INLINE int none_allowed(const uint64_t *allowed, int64_t position)
{
    uint64_t low = allowed[position >> 6] >> (position & 63);
    uint64_t high = position & 63 ? allowed[(position >> 6) + 1] << (64 - (position & 63)) : 0;
    return (low | high) == 0;
}

/* Offer each code of a range, at most a chunk, to the heap; returns whether the worst of the heap changed. */
INLINE int offer(const table_t *table, const query_t *query, int64_t first, int64_t count, int64_t width)
{
    uint64_t before = query->heap[0];
    uint16_t near[CHUNK] = {0};
    for (int64_t i = 0; i < count; i++)
        near[i] = (uint16_t)distance(query->code, table->codes + (first + i) * width, width);
    for (int64_t i = 0; i < count; i++) {
        if (near[i] > query->heap[0] >> 32 || !is_allowed(table->allowed, first + i))
            continue;
        uint64_t key = (uint64_t)near[i] << 32 | rank_of(table, first + i);
        if (key < query->heap[0])
            replace_worst(query->heap, query->k, key);
    }
    return query->heap[0] != before;
}

/* Scan a range from `streams` places at once, each a whole number of chunks; returns where it ended. */
INLINE int64_t scan_streams(const table_t *table, const query_t *query, int64_t first, int64_t last, int ascending,
                            int64_t width, int streams)
{
    int64_t part = (last - first) / (streams * CHUNK) * CHUNK;
    uint32_t bounds[STREAMS];
    if (part == 0)
        return first;
    for (int s = 0; s < streams; s++)
        bounds[s] = bound_from(table, query, first + s * part, ascending);
    for (int64_t i = 0; i < part; i += CHUNK)
        for (int s = 0; s < streams; s++) {
            int64_t at = first + s * part + i;
            if (table->allowed && none_allowed(table->allowed, at))
                continue;
            if (!any_nearer(query->code, table->codes + at * width, width, bounds[s]))
                continue;
            int changed = offer(table, query, at, CHUNK, width);
            for (int t = changed ? 0 : s; t < (changed ? streams : s + 1); t++) {
                int64_t next = first + t * part + i + (t <= s ? CHUNK : 0);
                bounds[t] = bound_from(table, query, next < last ? next : last - 1, ascending);
            }
        }
    return first + streams * part;
}

INLINE void scan_width(const table_t *table, const query_t *query, int64_t first, int64_t last, int ascending,
                       int64_t width)
{
    int64_t head = (CACHE_LINE - (uintptr_t)(table->codes + first * width) % CACHE_LINE) % CACHE_LINE / (uintptr_t)width;
    head = head < last - first ? head : last - first; /* chunks that start on a cache line are read much faster */
    offer(table, query, first, head, width);
    first = scan_streams(table, query, first + head, last, ascending, width, STREAMS);
    first = scan_streams(table, query, first, last, ascending, width, 1);
    offer(table, query, first, last - first, width);
}

/* With the common widths known to the compiler: it then works on many codes at once. */
INLINE void scan_any(const table_t *table, const query_t *query, int64_t first, int64_t last, int ascending)
{
#define WIDTH(bytes)                                                                                                  \
    case bytes:                                                                                                       \
        scan_width(table, query, first, last, ascending, bytes);                                                               \
        break;
    switch (table->width) {
        WIDTH(4) WIDTH(8) WIDTH(16) WIDTH(32) WIDTH(64)
    default:
        scan_width(table, query, first, last, ascending, table->width);
    }
}

/* Offer the codes of a range; `ascending`: their ranks ascend, as in a run. */
typedef void scan_function(const table_t *, const query_t *, int64_t first, int64_t last, int ascending);

#define SCAN(name, attributes)                                                                                        \
    attributes static void name(const table_t *table, const query_t *query, int64_t first, int64_t last,              \
                                int ascending)                                                                        \
    {                                                                                                                 \
        scan_any(table, query, first, last, ascending);                                                               \
    }

SCAN(scan_portable, )
#ifdef BY_CPU
SCAN(scan_popcnt, TARGET_POPCNT)
SCAN(scan_avx2, TARGET_AVX2)
SCAN(scan_avx512, TARGET_AVX512)
#endif

static scan_function *scan_of_level(int level)
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

static query_t query_at(const table_t *table, const uint8_t *queries, uint64_t *heaps, int64_t k, int64_t q)
{
    query_t query = {queries + q * table->width, heaps + q * k, k};
    return query;
}

/* ---- flat tables ---------------------------------------------------------------------------------------------- */

/* Offer the codes first <= position < last to each query.
 *
 * queries   (n_queries, width) bytes
 * heaps     uint64 (n_queries, k), k > 0: in and out
 * level     of hadahash_cpu_level, for tests; -1 for the best there is
 */
void hadahash_scan(const table_t *table, const uint8_t *queries, int64_t n_queries, uint64_t *heaps, int64_t k,
                   int64_t first, int64_t last, int level)
{
    scan_function *scan = scan_of_level(level);
    int64_t block = BLOCK_BYTES / table->width;
    for (int64_t start = first; start < last; start += block) {
        int64_t end = last - start < block ? last : start + block;
        for (int64_t q = 0; q < n_queries; q++) {
            query_t query = query_at(table, queries, heaps, k, q);
            scan(table, &query, start, end, 1);
        }
    }
}

/* ---- routed tables -------------------------------------------------------------------------------------------- */

/* No code of the run has a smaller key than this. */
static uint64_t least_key(const table_t *table, int64_t run, int64_t span)
{
    int64_t least = span > table->run_spans[run] ? span - table->run_spans[run] : table->run_spans[run] - span;
    return (uint64_t)least << 32 | table->run_ranks[run];
}

/* Scan the runs of one bucket that may hold better keys, those first that may hold the best. */
static void scan_bucket(const table_t *table, const query_t *query, int64_t bucket, int64_t span, scan_function *scan)
{
    int64_t first = table->bucket_runs[bucket], last = table->bucket_runs[bucket + 1];
    int64_t up = first, down, run;
    while (up < last && table->run_spans[up] < span)
        up++;
    for (down = up - 1; down >= first || up < last;) {
        if (up < last && (down < first || table->run_spans[up] - span <= span - table->run_spans[down]))
            run = up++;
        else
            run = down--;
        if (least_key(table, run, span) < query->heap[0])
            scan(table, query, table->run_starts[run], table->run_starts[run + 1], 1);
    }
}

/* The runs first <= r < last of one bucket, for one query: neighbours that may hold better keys are scanned in one go, or
 * where `scan` is NULL only added to `work`. `unseen` is lowered to the least key of what is not scanned. */
static void sweep_runs(const table_t *table, const query_t *query, int64_t span, int64_t first, int64_t last,
                       scan_function *scan, int64_t *work, uint64_t *unseen)
{
    int64_t from = first; /* the runs from <= r < run are to be scanned */
    for (int64_t run = first; run <= last; run++) {
        uint64_t least = run < last ? least_key(table, run, span) : 0;
        int better = run < last && least < query->heap[0];
        if (better)
            *work += table->run_starts[run + 1] - table->run_starts[run];
        if (better && scan)
            continue;
        if (from < run)
            scan(table, query, table->run_starts[from], table->run_starts[run], run - from == 1);
        from = run + 1;
        if (run < last && least < *unseen)
            *unseen = least;
    }
}

/* For each query, measure the distance to every centre, and scan the `probes` nearest buckets, the nearest first.
 *
 * spans     uint16 (n_queries, buckets): out; VISITED where the bucket was scanned or is empty
 * work      int64 (n_queries,): added to, the number of codes elsewhere that may still have better keys
 * unseen    uint64 (n_queries,): lowered to the least key that a code elsewhere may have
 */
void hadahash_probe(const table_t *table, const uint8_t *queries, int64_t n_queries, uint64_t *heaps, int64_t k,
                    int64_t probes, uint16_t *spans, int64_t *work, uint64_t *unseen, int level)
{
    scan_function *scan = scan_of_level(level);
    for (int64_t q = 0; q < n_queries; q++) {
        query_t query = query_at(table, queries, heaps, k, q);
        uint16_t *span = spans + q * table->buckets;
        for (int64_t b = 0; b < table->buckets; b++)
            span[b] = table->bucket_runs[b] == table->bucket_runs[b + 1]
                          ? VISITED
                          : (uint16_t)distance(query.code, table->centres + b * table->width, table->width);
        for (int64_t probe = 0; probe < probes; probe++) {
            int64_t nearest = 0;
            for (int64_t b = 1; b < table->buckets; b++)
                if (span[b] < span[nearest])
                    nearest = b;
            if (span[nearest] == VISITED)
                break;
            scan_bucket(table, &query, nearest, span[nearest], scan);
            span[nearest] = VISITED;
        }
        for (int64_t b = 0; b < table->buckets; b++)
            if (span[b] != VISITED)
                sweep_runs(table, &query, span[b], table->bucket_runs[b], table->bucket_runs[b + 1], NULL, work + q,
                           unseen + q);
    }
}

/* Scan all runs of the buckets first <= b < last that a query has not visited and that may hold better keys.
 *
 * unseen    uint64 (n_queries,): lowered to the least key that a code in a run not scanned may have
 */
void hadahash_sweep(const table_t *table, const uint8_t *queries, int64_t n_queries, uint64_t *heaps, int64_t k,
                    const uint16_t *spans, int64_t first, int64_t last, uint64_t *unseen, int level)
{
    scan_function *scan = scan_of_level(level);
    int64_t block = BLOCK_BYTES / table->width, work = 0;
    for (int64_t b = first; b < last; b++)
        for (int64_t run = table->bucket_runs[b], next; run < table->bucket_runs[b + 1]; run = next) {
            for (next = run + 1; next < table->bucket_runs[b + 1]; next++) /* the runs that share a block */
                if (table->run_starts[next + 1] - table->run_starts[run] > block)
                    break;
            for (int64_t q = 0; q < n_queries; q++) {
                query_t query = query_at(table, queries, heaps, k, q);
                uint16_t span = spans[q * table->buckets + b];
                if (span != VISITED)
                    sweep_runs(table, &query, span, run, next, scan, &work, unseen + q);
            }
        }
}
