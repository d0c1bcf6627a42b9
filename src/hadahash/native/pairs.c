/* Pairs of nearly equal codes among those that share a key: a join of a table with itself. */
#include "search.h"

#define MOST_PAIRS (1 << 24) /* compared in one call, so that the caller can stop */

INLINE int64_t near_pairs_width(const uint64_t *keys, int64_t size, const uint8_t *codes,
                                int64_t width, const uint32_t *components, uint32_t radius,
                                int64_t *state, int64_t *links, int64_t capacity)
{
    int64_t found = 0, compared = 0, run_end = 0, component_end = 0, i = state[0];
    for (; i < size; i++) {
        if (i >= run_end)
            for (run_end = i + 1; run_end < size && keys[run_end] >> 32 == keys[i] >> 32;)
                run_end++;
        if (run_end == i + 1)
            continue;
        uint32_t own = (uint32_t)keys[i];
        if (i >= component_end)
            for (component_end = i + 1; component_end < run_end &&
                                        components[(uint32_t)keys[component_end]] == components[own];)
                component_end++;
        if (found + run_end - component_end > capacity || compared > MOST_PAIRS)
            break;
        compared += run_end - component_end;
        for (int64_t j = component_end; j < run_end; j++) {
            uint32_t other = (uint32_t)keys[j];
            uint32_t apart = distance(codes + own * width, codes + other * width, width);
            if (apart > radius)
                continue;
            int64_t *link = links + 3 * found++;
            link[0] = own, link[1] = other, link[2] = apart;
        }
    }
    state[0] = i;
    state[1] += compared;
    return found;
}

/* The common widths are constants, so that the compiler unrolls the distance. */
INLINE int64_t near_pairs_any(const uint64_t *keys, int64_t size, const uint8_t *codes,
                              int64_t width, const uint32_t *components, uint32_t radius,
                              int64_t *state, int64_t *links, int64_t capacity)
{
#define WIDTH(bytes)                                                                              \
    case bytes:                                                                                   \
        return near_pairs_width(keys, size, codes, bytes, components, radius, state, links,       \
                                capacity);
    switch (width) {
        WIDTH(8) WIDTH(16) WIDTH(24) WIDTH(32)
    default:
        return near_pairs_width(keys, size, codes, width, components, radius, state, links,
                                capacity);
    }
}

typedef int64_t near_pairs_function(const uint64_t *, int64_t, const uint8_t *, int64_t,
                                    const uint32_t *, uint32_t, int64_t *, int64_t *, int64_t);

#define NEAR_PAIRS(name, attributes)                                                              \
    attributes static int64_t name(const uint64_t *keys, int64_t size, const uint8_t *codes,      \
                                   int64_t width, const uint32_t *components, uint32_t radius,    \
                                   int64_t *state, int64_t *links, int64_t capacity)              \
    {                                                                                             \
        return near_pairs_any(keys, size, codes, width, components, radius, state, links,         \
                              capacity);                                                          \
    }

DEFINE_FOR_LEVELS(NEAR_PAIRS, near_pairs)

/* Compare the codes that share a key, unless they are in the same component.
 *
 * keys        uint64 (size,), ascending: key * 2^32 + position of the code
 * codes       (codes, width) bytes, width a multiple of 8, aligned to 8
 * components  uint32 (codes,), ascending: the component of each code
 * radius      largest distance of a pair that is written
 * state       position in `keys` to go on from, and number of pairs compared: in and out. A call
 *             ends before the last position if there is no space, or after many comparisons.
 * links       int64 (capacity, 3): two positions of codes and their distance; capacity >= size
 * level       of hadahash_cpu_level, for tests; -1 selects the best one
 * returns     number of links
 */
int64_t hadahash_near_pairs(const uint64_t *keys, int64_t size, const uint8_t *codes,
                            int64_t width, const uint32_t *components, uint32_t radius,
                            int64_t *state, int64_t *links, int64_t capacity, int level)
{
    near_pairs_function *known[] = ALL_LEVELS(near_pairs);
    return known[usable_level(level)](keys, size, codes, width, components, radius, state, links,
                                      capacity);
}
