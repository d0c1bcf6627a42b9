/* Shared by search.c, route.c and ranked.c: the table that is searched, a query, and the scan of a range. */
#ifndef HADAHASH_SEARCH_H
#define HADAHASH_SEARCH_H

#include "hamming.h"

#include <stddef.h>

#define CHUNK 64             /* codes that are filtered together; the bits of one word */
#define TILE_BYTES (1 << 17) /* of codes: a tile stays in the cache while all queries visit it */

/* Mirrored in tables.py. An item's ordinal is its position in ascending order of ids. */
typedef struct {
    const uint8_t *codes;           /* (size, width), aligned to 4 bytes for width 4, else to 8 */
    const uint32_t *ordinals;       /* (size,), ascending in each block; NULL: equal to position */
    const uint64_t *allowed;        /* one bit per code; NULL: all codes are allowed */
    int64_t size, width;            /* width: bytes per code, 4 or a multiple of 8 */
    const uint8_t *centroids;       /* (lists, width); this and the rest only for routed tables */
    const int64_t *list_shells;     /* (lists + 1,): shells of list l start at list_shells[l] */
    const int32_t *shell_distances; /* (shells,): distance to the centroid, ascending per list */
    const uint32_t *shell_ordinals; /* (shells,): smallest ordinal of the shell */
    const int64_t *shell_blocks;    /* (shells + 1,): blocks of shell s start at shell_blocks[s] */
    const int64_t *block_starts;    /* (blocks + 1,): first position of each block */
    const uint32_t *block_ordinals; /* (blocks,): smallest ordinal, that of the first code */
    const uint8_t *block_subdistances; /* (blocks, 4): distance to the centroid in each quarter of
                                          the code, at most 255; NULL: unknown */
    int64_t lists;
} table_t;

/* One query and the heap of its k best keys. */
typedef struct {
    const uint8_t *code;
    uint64_t *heap;
    int64_t k;
} query_t;

/* Scan the positions first <= p < last. `ordinal` is the smallest ordinal in the range;
 * `ascending`: whether ordinals ascend within it. */
typedef void scan_function(const table_t *, const query_t *, int64_t first, int64_t last,
                           uint64_t ordinal, int ascending);

/* The scan for a level of hadahash_cpu_level; -1 selects the best one. */
scan_function *hadahash_scan_for_level(int level);

INLINE query_t query_at(const table_t *table, const uint8_t *queries, uint64_t *heaps, int64_t k,
                        int64_t q)
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

INLINE uint64_t ordinal_at(const table_t *table, int64_t position)
{
    return table->ordinals ? table->ordinals[position] : (uint64_t)position;
}

/* Bit i is set where the code at `position` + i is allowed, for i < CHUNK. */
INLINE uint64_t which_allowed(const uint64_t *allowed, int64_t position)
{
    uint64_t low = allowed[position >> 6] >> (position & 63);
    return position & 63 ? low | allowed[(position >> 6) + 1] << (64 - (position & 63)) : low;
}

#endif
