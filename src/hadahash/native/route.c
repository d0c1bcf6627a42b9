/* Routed tables (inverted lists): search.c's scan, restricted to blocks that may hold a neighbor.
 *
 * A table is partitioned into lists, one per centroid; each list into shells of equal distance to
 * its centroid; each shell into blocks of equal sub-distances (the distance to the centroid in each
 * quarter of the code), each in the order of ids. By the triangle inequality no code of a shell is
 * nearer to a query than |d(query, centroid) - d(shell, centroid)|, and no code of a block is
 * nearer than the sum of these differences over the quarters. Most blocks are skipped.
 */
#include "search.h"

#include <stdlib.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define VISITED 0xffff /* in `centroid_distances`: the query has visited this list */
#define LEVELS 1024    /* lower bounds that the counting sort of blocks distinguishes */

typedef struct {
    uint8_t distance[4];
} subdistances_t;

static subdistances_t subdistances_between(const uint8_t *a, const uint8_t *b, int64_t width)
{
    subdistances_t result;
    for (int64_t q = 0; q < 4; q++) {
        uint32_t sum = 0;
        for (int64_t i = q * width / 4; i < (q + 1) * width / 4; i++)
            sum += POPCOUNT32((uint32_t)(a[i] ^ b[i]));
        result.distance[q] = (uint8_t)(sum < 255 ? sum : 255);
    }
    return result;
}

/* Lower bound of the distance of two codes with these sub-distances to a third one. */
INLINE int64_t subdistance_lower_bound(subdistances_t a, const uint8_t *b)
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

/* Distance of a query to a centroid: in total and in each quarter. */
typedef struct {
    int64_t total;
    subdistances_t parts;
} centroid_distance_t;

static centroid_distance_t distance_to_centroid(const table_t *table, const query_t *query,
                                                int64_t list, int64_t total)
{
    centroid_distance_t result = {total, {{0, 0, 0, 0}}};
    if (table->block_subdistances)
        result.parts = subdistances_between(query->code, table->centroids + list * table->width,
                                            table->width);
    return result;
}

INLINE int64_t shell_lower_bound(const table_t *table, const centroid_distance_t *from,
                                 int64_t shell)
{
    int64_t difference = from->total - table->shell_distances[shell];
    return difference < 0 ? -difference : difference;
}

INLINE int64_t block_lower_bound(const table_t *table, const centroid_distance_t *from,
                                 int64_t shell, int64_t block)
{
    return table->block_subdistances
               ? subdistance_lower_bound(from->parts, table->block_subdistances + 4 * block)
               : shell_lower_bound(table, from, shell);
}

/* Memory for sorting the blocks of one list. */
typedef struct {
    uint16_t *bounds; /* lower bound of each block */
    int64_t *order;
} scratch_t;

/* Sort the blocks of a list by lower bound into scratch.order; returns their number. */
static int64_t sort_blocks(const table_t *table, const centroid_distance_t *from, int64_t list,
                           scratch_t scratch)
{
    int64_t first_shell = table->list_shells[list], last_shell = table->list_shells[list + 1];
    int64_t first = table->shell_blocks[first_shell], count = 0, offsets[LEVELS + 1] = {0};
    for (int64_t shell = first_shell; shell < last_shell; shell++)
        for (int64_t block = table->shell_blocks[shell]; block < table->shell_blocks[shell + 1];
             block++, count++) {
            int64_t bound = block_lower_bound(table, from, shell, block);
            scratch.bounds[count] = (uint16_t)(bound < LEVELS ? bound : LEVELS - 1);
            offsets[scratch.bounds[count] + 1]++;
        }
    for (int level = 0; level < LEVELS; level++)
        offsets[level + 1] += offsets[level];
    for (int64_t block = 0; block < count; block++)
        scratch.order[offsets[scratch.bounds[block]]++] = first + block;
    return count;
}

/* Scan the blocks of one list that may hold better keys, in the order of their lower bounds.
 * Returns the number of codes compared. */
static int64_t scan_list(const table_t *table, const query_t *query, int64_t list,
                         int64_t centroid_distance, scan_function *scan, scratch_t scratch)
{
    centroid_distance_t from = distance_to_centroid(table, query, list, centroid_distance);
    int64_t first = table->shell_blocks[table->list_shells[list]], compared = 0;
    int64_t count = sort_blocks(table, &from, list, scratch);
    for (int64_t i = 0; i < count; i++) {
        int64_t block = scratch.order[i];
        int64_t start = table->block_starts[block], end = table->block_starts[block + 1];
        uint64_t bound = (uint64_t)scratch.bounds[block - first] << 32;
        if (bound >= query->heap[0])
            break;
        if ((bound | table->block_ordinals[block]) >= query->heap[0])
            continue;
        scan(table, query, start, end, table->block_ordinals[block], 1);
        compared += end - start;
    }
    return compared;
}

INLINE void take_minimum(uint64_t *bound, uint64_t key)
{
    *bound = key < *bound ? key : *bound;
}

/* Visit the shells first <= s < last of one list for one query. Adjacent blocks that may hold
 * better keys are scanned together, or only counted where `scan` is NULL. `unvisited_bound` is
 * lowered to the smallest key that a code not scanned may have. Returns the number of codes that
 * may have better keys. */
static int64_t scan_shells(const table_t *table, const query_t *query, int64_t list,
                           int64_t centroid_distance, int64_t first, int64_t last,
                           scan_function *scan, uint64_t *unvisited_bound)
{
    int64_t below = table->shell_distances[first] - centroid_distance;
    int64_t above = centroid_distance - table->shell_distances[last - 1];
    int64_t nearest = below > 0 ? below : above > 0 ? above : 0, candidates = 0;
    if ((uint64_t)nearest << 32 >= query->heap[0]) { /* by far the most common case */
        take_minimum(unvisited_bound, (uint64_t)nearest << 32);
        return 0;
    }
    centroid_distance_t from = distance_to_centroid(table, query, list, centroid_distance);
    int64_t start = 0, end = 0, pieces = 0; /* pending: the positions start <= p < end */
    for (int64_t shell = first; shell < last; shell++) {
        uint64_t key = (uint64_t)shell_lower_bound(table, &from, shell) << 32;
        key |= table->shell_ordinals[shell];
        if (key >= query->heap[0]) {
            take_minimum(unvisited_bound, key);
            continue;
        }
        for (int64_t block = table->shell_blocks[shell]; block < table->shell_blocks[shell + 1];
             block++) {
            key = (uint64_t)block_lower_bound(table, &from, shell, block) << 32;
            key |= table->block_ordinals[block];
            if (key >= query->heap[0] || !scan)
                take_minimum(unvisited_bound, key);
            if (key >= query->heap[0])
                continue;
            candidates += table->block_starts[block + 1] - table->block_starts[block];
            if (end != table->block_starts[block]) {
                if (scan && start < end)
                    scan(table, query, start, end, 0, pieces == 1);
                start = table->block_starts[block];
                pieces = 0;
            }
            end = table->block_starts[block + 1];
            pieces++;
        }
    }
    if (scan && start < end)
        scan(table, query, start, end, 0, pieces == 1);
    return candidates;
}

/* The nearest list that a query has not visited; -1 if there is none. */
static int64_t nearest_list(const uint16_t *centroid_distances, int64_t lists)
{
    int64_t nearest = 0;
    for (int64_t l = 1; l < lists; l++)
        if (centroid_distances[l] < centroid_distances[nearest])
            nearest = l;
    return lists && centroid_distances[nearest] != VISITED ? nearest : -1;
}

static void measure_centroids(const table_t *table, const uint8_t *code,
                              uint16_t *centroid_distances)
{
    for (int64_t l = 0; l < table->lists; l++)
        centroid_distances[l] =
            table->list_shells[l] == table->list_shells[l + 1]
                ? VISITED
                : (uint16_t)distance(code, table->centroids + l * table->width, table->width);
}

static int64_t max_blocks_per_list(const table_t *table)
{
    int64_t most = 1;
    for (int64_t l = 0; l < table->lists; l++) {
        int64_t blocks = table->shell_blocks[table->list_shells[l + 1]] -
                         table->shell_blocks[table->list_shells[l]];
        most = blocks > most ? blocks : most;
    }
    return most;
}

/* For each query, compute the distance to every centroid and scan the `probes` nearest lists, the
 * nearest first. Queries that share a list follow each other, so that it stays in the cache.
 *
 * centroid_distances   uint16 (n_queries, lists), out: VISITED where the list was scanned or empty
 * work                 int64 (n_queries, 2), added to: codes compared, and codes in other lists
 *                      that may still have better keys
 * unvisited_bounds     uint64 (n_queries,): lowered to the smallest key that a code in another list
 *                      may have
 *
 * Returns nonzero if memory is exhausted.
 */
int hadahash_probe(const table_t *table, const uint8_t *queries, int64_t n_queries,
                   uint64_t *heaps, int64_t k, int64_t probes, uint16_t *centroid_distances,
                   int64_t *work, uint64_t *unvisited_bounds, int level)
{
    scan_function *scan = hadahash_scan_for_level(level);
    int64_t blocks = max_blocks_per_list(table), lists = table->lists;
    int64_t *memory = malloc((size_t)(blocks + n_queries) * sizeof *memory +
                             (size_t)blocks * sizeof(uint16_t));
    if (!memory)
        return 1;
    int64_t *next = memory + blocks; /* the list that each query visits next */
    scratch_t scratch = {(uint16_t *)(next + n_queries), memory};
    for (int64_t q = 0; q < n_queries; q++)
        measure_centroids(table, queries + q * table->width, centroid_distances + q * lists);
    for (int64_t probe = 0; probe < probes && probe < lists; probe++) {
        for (int64_t q = 0; q < n_queries; q++)
            next[q] = nearest_list(centroid_distances + q * lists, lists);
        for (int64_t l = 0; l < lists; l++)
            for (int64_t q = 0; q < n_queries; q++) {
                query_t query = query_at(table, queries, heaps, k, q);
                if (next[q] != l)
                    continue;
                work[2 * q] +=
                    scan_list(table, &query, l, centroid_distances[q * lists + l], scan, scratch);
                centroid_distances[q * lists + l] = VISITED;
            }
    }
    for (int64_t q = 0; q < n_queries; q++)
        for (int64_t l = 0; l < lists; l++) {
            query_t query = query_at(table, queries, heaps, k, q);
            if (centroid_distances[q * lists + l] != VISITED)
                work[2 * q + 1] += scan_shells(
                    table, &query, l, centroid_distances[q * lists + l], table->list_shells[l],
                    table->list_shells[l + 1], NULL, unvisited_bounds + q);
        }
    free(memory);
    return 0;
}

/* Scan all blocks of the lists first <= l < last that a query has not visited and that may hold
 * better keys.
 *
 * unvisited_bounds     uint64 (n_queries,): lowered to the smallest key that a code in a skipped
 *                      block may have
 */
void hadahash_scan_remaining(const table_t *table, const uint8_t *queries, int64_t n_queries,
                             uint64_t *heaps, int64_t k, const uint16_t *centroid_distances,
                             int64_t first, int64_t last, uint64_t *unvisited_bounds, int level)
{
    scan_function *scan = hadahash_scan_for_level(level);
    const int64_t *starts = table->block_starts, *blocks = table->shell_blocks;
    int64_t tile = TILE_BYTES / table->width;
    for (int64_t l = first; l < last; l++) {
        int64_t end = table->list_shells[l + 1];
        for (int64_t shell = table->list_shells[l], next; shell < end; shell = next) {
            for (next = shell + 1; next < end; next++) /* the shells that share a tile */
                if (starts[blocks[next + 1]] - starts[blocks[shell]] > tile)
                    break;
            for (int64_t q = 0; q < n_queries; q++) {
                query_t query = query_at(table, queries, heaps, k, q);
                uint16_t centroid_distance = centroid_distances[q * table->lists + l];
                if (centroid_distance != VISITED)
                    scan_shells(table, &query, l, centroid_distance, shell, next, scan,
                                unvisited_bounds + q);
            }
        }
    }
}
