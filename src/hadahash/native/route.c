/* Routed tables: the scan of search.c, of those runs of codes alone that may hold something near.
 *
 * A table is cut into buckets, one for each centre, each bucket into rings of one distance to its centre, and each ring
 * into runs of one distance in each quarter of the code, in the order of ids. By the triangle inequality no code of a ring
 * is nearer to a query than |query to centre - ring to centre|, and none of a run nearer than the sum of these differences
 * over the quarters: so most need not be looked at.
 */
#include "search.h"

#include <stdlib.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define VISITED 0xffff  /* in `spans`: this query has seen this bucket */
#define LEVELS 1024     /* by which runs are put in order; whatever is further comes last */

typedef struct {
    uint8_t distance[4];
} quarters_t;

static quarters_t quarters_between(const uint8_t *a, const uint8_t *b, int64_t width)
{
    quarters_t result;
    for (int64_t q = 0; q < 4; q++) {
        uint32_t sum = 0;
        for (int64_t i = q * width / 4; i < (q + 1) * width / 4; i++)
            sum += POPCOUNT32((uint32_t)(a[i] ^ b[i]));
        result.distance[q] = (uint8_t)(sum < 255 ? sum : 255);
    }
    return result;
}

/* How far two codes must be apart whose quarters are so far from a third one's. */
INLINE int64_t least_between(quarters_t a, const uint8_t *b)
{
#ifdef __SSE2__
    int left, right;
    memcpy(&left, a.distance, 4);
    memcpy(&right, b, 4);
    return _mm_cvtsi128_si32(_mm_sad_epu8(_mm_cvtsi32_si128(left), _mm_cvtsi32_si128(right)));
#else
    int64_t sum = 0;
    for (int q = 0; q < 4; q++)
        sum += a.distance[q] > b[q] ? a.distance[q] - b[q] : b[q] - a.distance[q];
    return sum;
#endif
}

/* A query and a bucket: the distance to its centre, in all and in each quarter. */
typedef struct {
    int64_t span;
    quarters_t quarters;
} view_t;

static view_t view_of(const table_t *table, const query_t *query, int64_t bucket, int64_t span)
{
    view_t view = {span, {{0, 0, 0, 0}}};
    if (table->run_quarters)
        view.quarters = quarters_between(query->code, table->centres + bucket * table->width, table->width);
    return view;
}

/* No code of the ring, or of the run in this ring, is nearer than this. */
INLINE int64_t least_of_ring(const table_t *table, const view_t *view, int64_t ring)
{
    int64_t difference = view->span - table->ring_spans[ring];
    return difference < 0 ? -difference : difference;
}

INLINE int64_t least_of_run(const table_t *table, const view_t *view, int64_t ring, int64_t run)
{
    return table->run_quarters ? least_between(view->quarters, table->run_quarters + 4 * run)
                               : least_of_ring(table, view, ring);
}

/* Room to put the runs of one bucket in order. */
typedef struct {
    uint16_t *least; /* of each run */
    int64_t *order;
} room_t;

/* The runs of a bucket in the order in which they may hold something near; returns how many. */
static int64_t put_in_order(const table_t *table, const view_t *view, int64_t bucket, room_t room)
{
    int64_t first = table->ring_runs[table->bucket_rings[bucket]], count = 0, places[LEVELS + 1] = {0};
    for (int64_t ring = table->bucket_rings[bucket]; ring < table->bucket_rings[bucket + 1]; ring++)
        for (int64_t run = table->ring_runs[ring]; run < table->ring_runs[ring + 1]; run++, count++) {
            int64_t least = least_of_run(table, view, ring, run);
            room.least[count] = (uint16_t)(least < LEVELS ? least : LEVELS - 1);
            places[room.least[count] + 1]++;
        }
    for (int level = 0; level < LEVELS; level++)
        places[level + 1] += places[level];
    for (int64_t run = 0; run < count; run++)
        room.order[places[room.least[run]]++] = first + run;
    return count;
}

/* Scan the runs of one bucket that may hold better keys, those first that may hold the best; returns how many codes. */
static int64_t scan_bucket(const table_t *table, const query_t *query, int64_t bucket, int64_t span, scan_function *scan,
                           room_t room)
{
    view_t view = view_of(table, query, bucket, span);
    int64_t first = table->ring_runs[table->bucket_rings[bucket]], compared = 0;
    int64_t count = put_in_order(table, &view, bucket, room);
    for (int64_t i = 0; i < count; i++) {
        int64_t run = room.order[i], start = table->run_starts[run], end = table->run_starts[run + 1];
        uint64_t least = (uint64_t)room.least[run - first] << 32;
        if (least >= query->heap[0])
            break;
        if ((least | table->run_ranks[run]) >= query->heap[0])
            continue;
        scan(table, query, start, end, table->run_ranks[run], 1);
        compared += end - start;
    }
    return compared;
}

INLINE void lower(uint64_t *unseen, uint64_t key)
{
    *unseen = key < *unseen ? key : *unseen;
}

/* The rings first <= r < last of one bucket, for one query: neighbouring runs that may hold better keys are scanned in one
 * go, or where `scan` is NULL only counted. `unseen` is lowered to the least key of what is not scanned; returns the number
 * of codes that may have better keys. */
static int64_t sweep_rings(const table_t *table, const query_t *query, int64_t bucket, int64_t span, int64_t first,
                           int64_t last, scan_function *scan, uint64_t *unseen)
{
    int64_t low = table->ring_spans[first] - span, high = span - table->ring_spans[last - 1], work = 0;
    int64_t nearest = low > 0 ? low : high > 0 ? high : 0;
    if ((uint64_t)nearest << 32 >= query->heap[0]) { /* as nearly always */
        lower(unseen, (uint64_t)nearest << 32);
        return 0;
    }
    view_t view = view_of(table, query, bucket, span);
    int64_t from = 0, upto = 0, pieces = 0; /* positions from <= p < upto are to be scanned */
    for (int64_t ring = first; ring < last; ring++) {
        uint64_t key = (uint64_t)least_of_ring(table, &view, ring) << 32 | table->ring_ranks[ring];
        if (key >= query->heap[0]) {
            lower(unseen, key);
            continue;
        }
        for (int64_t run = table->ring_runs[ring]; run < table->ring_runs[ring + 1]; run++) {
            key = (uint64_t)least_of_run(table, &view, ring, run) << 32 | table->run_ranks[run];
            if (key >= query->heap[0] || !scan)
                lower(unseen, key);
            if (key >= query->heap[0])
                continue;
            work += table->run_starts[run + 1] - table->run_starts[run];
            if (upto != table->run_starts[run]) {
                if (scan && from < upto)
                    scan(table, query, from, upto, 0, pieces == 1);
                from = table->run_starts[run];
                pieces = 0;
            }
            upto = table->run_starts[run + 1];
            pieces++;
        }
    }
    if (scan && from < upto)
        scan(table, query, from, upto, 0, pieces == 1);
    return work;
}

/* The nearest bucket that a query has not visited; -1 when there is none. */
static int64_t nearest_bucket(const uint16_t *spans, int64_t buckets)
{
    int64_t nearest = 0;
    for (int64_t b = 1; b < buckets; b++)
        if (spans[b] < spans[nearest])
            nearest = b;
    return buckets && spans[nearest] != VISITED ? nearest : -1;
}

static void measure_spans(const table_t *table, const uint8_t *code, uint16_t *spans)
{
    for (int64_t b = 0; b < table->buckets; b++)
        spans[b] = table->bucket_rings[b] == table->bucket_rings[b + 1]
                       ? VISITED
                       : (uint16_t)distance(code, table->centres + b * table->width, table->width);
}

static int64_t most_runs(const table_t *table)
{
    int64_t most = 1;
    for (int64_t b = 0; b < table->buckets; b++) {
        int64_t runs = table->ring_runs[table->bucket_rings[b + 1]] - table->ring_runs[table->bucket_rings[b]];
        most = runs > most ? runs : most;
    }
    return most;
}

/* For each query, measure the distance to every centre, and scan the `probes` nearest buckets, the nearest first; queries
 * of one bucket follow each other, so that it stays in the cache.
 *
 * spans     uint16 (n_queries, buckets): out; VISITED where the bucket was scanned or is empty
 * work      int64 (n_queries, 2): added to, the number of codes that were compared, and of those elsewhere that may still
 *           have better keys
 * unseen    uint64 (n_queries,): lowered to the least key that a code elsewhere may have
 *
 * Returns nonzero where there is no memory.
 */
int hadahash_probe(const table_t *table, const uint8_t *queries, int64_t n_queries, uint64_t *heaps, int64_t k,
                   int64_t probes, uint16_t *spans, int64_t *work, uint64_t *unseen, int level)
{
    scan_function *scan = hadahash_scan_of_level(level);
    int64_t runs = most_runs(table), buckets = table->buckets;
    int64_t *memory = malloc((size_t)(runs + n_queries) * sizeof *memory + (size_t)runs * sizeof(uint16_t));
    if (!memory)
        return 1;
    int64_t *homes = memory + runs;
    room_t room = {(uint16_t *)(homes + n_queries), memory};
    for (int64_t q = 0; q < n_queries; q++)
        measure_spans(table, queries + q * table->width, spans + q * buckets);
    for (int64_t probe = 0; probe < probes && probe < buckets; probe++) {
        for (int64_t q = 0; q < n_queries; q++)
            homes[q] = nearest_bucket(spans + q * buckets, buckets);
        for (int64_t b = 0; b < buckets; b++)
            for (int64_t q = 0; q < n_queries; q++) {
                query_t query = query_at(table, queries, heaps, k, q);
                if (homes[q] != b)
                    continue;
                work[2 * q] += scan_bucket(table, &query, b, spans[q * buckets + b], scan, room);
                spans[q * buckets + b] = VISITED;
            }
    }
    for (int64_t q = 0; q < n_queries; q++)
        for (int64_t b = 0; b < buckets; b++) {
            query_t query = query_at(table, queries, heaps, k, q);
            if (spans[q * buckets + b] != VISITED)
                work[2 * q + 1] += sweep_rings(table, &query, b, spans[q * buckets + b], table->bucket_rings[b],
                                               table->bucket_rings[b + 1], NULL, unseen + q);
        }
    free(memory);
    return 0;
}

/* Scan all runs of the buckets first <= b < last that a query has not visited and that may hold better keys.
 *
 * unseen    uint64 (n_queries,): lowered to the least key that a code in a run not scanned may have
 */
void hadahash_sweep(const table_t *table, const uint8_t *queries, int64_t n_queries, uint64_t *heaps, int64_t k,
                    const uint16_t *spans, int64_t first, int64_t last, uint64_t *unseen, int level)
{
    scan_function *scan = hadahash_scan_of_level(level);
    const int64_t *starts = table->run_starts, *runs = table->ring_runs;
    int64_t block = BLOCK_BYTES / table->width;
    for (int64_t b = first; b < last; b++)
        for (int64_t ring = table->bucket_rings[b], next; ring < table->bucket_rings[b + 1]; ring = next) {
            for (next = ring + 1; next < table->bucket_rings[b + 1]; next++) /* the rings that share a block */
                if (starts[runs[next + 1]] - starts[runs[ring]] > block)
                    break;
            for (int64_t q = 0; q < n_queries; q++) {
                query_t query = query_at(table, queries, heaps, k, q);
                uint16_t span = spans[q * table->buckets + b];
                if (span != VISITED)
                    sweep_rings(table, &query, b, span, ring, next, scan, unseen + q);
            }
        }
}
