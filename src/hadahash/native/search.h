/* What search.c and route.c share: the table that is searched, a query, and the scan of a range of codes. */
#ifndef HADAHASH_SEARCH_H
#define HADAHASH_SEARCH_H

#include "hamming.h"

#include <stddef.h>

#define BLOCK_BYTES (1 << 17) /* of codes, so that they stay in the cache while all queries visit them */

/* Mirrored in search.py. */
typedef struct {
    const uint8_t *codes;        /* (size, width) */
    const uint32_t *ranks;       /* (size,), ascending in each run; NULL: rank = position */
    const uint64_t *allowed;     /* one bit for each code; NULL: all */
    int64_t size, width;         /* width: bytes of a code, 4 or a multiple of 8 */
    const uint8_t *centres;      /* (buckets, width); the rest only for routed tables */
    const int64_t *bucket_rings; /* (buckets + 1,): bucket b has the rings bucket_rings[b] to bucket_rings[b + 1] */
    const int32_t *ring_spans;   /* (rings,): distance to the centre, ascending in each bucket */
    const uint32_t *ring_ranks;  /* (rings,): the least of the ring */
    const int64_t *ring_runs;    /* (rings + 1,) */
    const int64_t *run_starts;   /* (runs + 1,) */
    const uint32_t *run_ranks;   /* (runs,): rank of the first code, the least of the run */
    const uint8_t *run_quarters; /* (runs, 4): distance to the centre in each quarter, at most 255; NULL: not known */
    int64_t buckets;
} table_t;

/* One query and its heap. */
typedef struct {
    const uint8_t *code;
    uint64_t *heap;
    int64_t k;
} query_t;

/* Offer the codes of a range. `rank`: the least of them; `ascending`: they ascend, as in a run. */
typedef void scan_function(const table_t *, const query_t *, int64_t first, int64_t last, uint64_t rank, int ascending);

/* For a level of hadahash_cpu_level; -1 for the best there is */
scan_function *hadahash_scan_of_level(int level);

INLINE query_t query_at(const table_t *table, const uint8_t *queries, uint64_t *heaps, int64_t k, int64_t q)
{
    query_t query = {queries + q * table->width, heaps + q * k, k};
    return query;
}

INLINE uint32_t distance(const uint8_t *query, const uint8_t *code, int64_t width)
{
    if (width == 4)
        return POPCOUNT32(*(const uint32_t *)query ^ *(const uint32_t *)code);
    uint32_t sum = 0;
    for (int64_t w = 0; w < width / 8; w++)
        sum += POPCOUNT(((const uint64_t *)query)[w] ^ ((const uint64_t *)code)[w]);
    return sum;
}

#endif
