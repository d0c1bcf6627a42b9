/* All kernels on random data, without Python: prints one line with a digest per case.
 *
 * Builds for other instruction sets and architectures must print the same text. Distances, searches
 * and points are also compared with plain loops; the first difference ends the program.
 *
 *     kernel_cases [LEVEL]     of hadahash_cpu_level; -1, the default, is the best one
 */
#include "kernel_cases.h"

#define LISTS 5
#define MOST_ITEMS 1700

int hadahash_count_distances(const uint64_t *, const uint64_t *, const int64_t *, int64_t,
                             const uint64_t *, const uint64_t *, int64_t, int64_t, int64_t,
                             int64_t, int64_t *, int);
void hadahash_scan(const table_t *, const uint8_t *, int64_t, uint64_t *, int64_t, int64_t,
                   int64_t, int);
int hadahash_probe(const table_t *, const uint8_t *, int64_t, uint64_t *, int64_t, int64_t,
                   uint16_t *, int64_t *, uint64_t *, int);
void hadahash_scan_remaining(const table_t *, const uint8_t *, int64_t, uint64_t *, int64_t,
                             const uint16_t *, int64_t, int64_t, uint64_t *, int);
int64_t hadahash_near_pairs(const uint64_t *, int64_t, const uint8_t *, int64_t, const uint32_t *,
                            uint32_t, int64_t *, int64_t *, int64_t, int);

int level = -1;

/* ---- random data, digests and plain loops ------------------------------------------------------ */

static uint64_t state = 88172645463325252u;

uint64_t draw(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

int64_t below(int64_t limit) { return (int64_t)(draw() >> 11) % limit; }

/* Memory that starts `shift` bytes after a multiple of 64; never freed. */
void *memory(int64_t bytes, int64_t shift)
{
    char *raw = malloc((size_t)bytes + 256);
    if (!raw)
        exit(3);
    return raw + (64 - (uintptr_t)raw % 64) + shift;
}

void fill(void *bytes, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        ((uint8_t *)bytes)[i] = (uint8_t)(draw() >> 40);
}

void report(const char *name, int64_t a, int64_t b, const void *bytes, int64_t count)
{
    uint64_t digest = 1469598103934665603u;
    for (int64_t i = 0; i < count; i++)
        digest = (digest ^ ((const uint8_t *)bytes)[i]) * 1099511628211u;
    printf("%s %lld %lld %016llx\n", name, (long long)a, (long long)b, (unsigned long long)digest);
}

void require(int condition, const char *name, int64_t a, int64_t b)
{
    if (condition)
        return;
    printf("WRONG %s %lld %lld\n", name, (long long)a, (long long)b);
    exit(1);
}

int64_t count_bits(const uint8_t *a, const uint8_t *b, int64_t first, int64_t last)
{
    int64_t sum = 0;
    for (int64_t i = first; i < last; i++)
        for (int bit = 0; bit < 8; bit++)
            sum += (a[i] ^ b[i]) >> bit & 1;
    return sum;
}

static int compare_keys(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

/* Codes near a few random ones, so that there are ties. */
uint8_t *make_codes(int64_t count, int64_t width)
{
    uint8_t *codes = memory((count + 1) * width, width == 4 ? 4 * below(4) : 8 * below(8));
    uint8_t *few = memory(9 * width, 0);
    fill(few, 9 * width);
    for (int64_t i = 0; i < count; i++) {
        memcpy(codes + i * width, few + below(9) * width, (size_t)width);
        for (int64_t flips = below(4); flips > 0; flips--) {
            uint8_t bit = (uint8_t)(1 << below(8));
            codes[i * width + below(width)] ^= bit;
        }
    }
    return codes;
}

/* ---- histograms -------------------------------------------------------------------------------- */

static void count_case(int64_t words, int64_t label_words, int64_t size)
{
    int64_t bins = 64 * words + 1, sets = label_words ? 2 : 1, range[2] = {below(3), size};
    uint64_t *codes = (uint64_t *)make_codes(size, 8 * words), *query = codes + below(size) * words;
    uint64_t *labels = memory(8 * size * label_words + 8, 8), own[4] = {0};
    int64_t *counts = memory(8 * sets * bins, 0), *expected = memory(8 * sets * bins, 0);
    memset(counts, 0, (size_t)(8 * sets * bins));
    memset(expected, 0, (size_t)(8 * sets * bins));
    for (int64_t i = 0; i < size * label_words; i++)
        labels[i] = draw() & draw() & draw() & draw() & draw() & draw();
    for (int64_t w = 0; w < label_words; w++)
        own[w] = draw() & draw() & draw();
    for (int64_t i = range[0]; i < range[1]; i++) {
        uint64_t shared = 0;
        for (int64_t w = 0; w < label_words; w++)
            shared |= own[w] & labels[i * label_words + w];
        expected[(shared != 0) * bins +
                 count_bits((uint8_t *)query, (uint8_t *)(codes + i * words), 0, 8 * words)]++;
    }
    hadahash_count_distances(query, own, range, 1, codes, labels, size, words, label_words, bins,
                             counts, level);
    require(!memcmp(counts, expected, (size_t)(8 * sets * bins)), "count", words, size);
    report("count", words, label_words, counts, 8 * sets * bins);
}

/* ---- nearest neighbors ------------------------------------------------------------------------- */

static void check_keys(const char *name, const table_t *table, const uint8_t *query,
                       uint64_t *heap, int64_t k, uint64_t limit, int64_t first, int64_t last)
{
    uint64_t *keys = memory(8 * (MOST_ITEMS + k), 0);
    int64_t count = 0;
    for (int64_t i = first; i < last; i++) {
        uint64_t near = (uint64_t)count_bits(query, table->codes + i * table->width, 0, table->width);
        uint64_t key = near << 32 | ordinal_at(table, i);
        if (key < limit && (!table->allowed || (table->allowed[i / 64] >> i % 64 & 1)))
            keys[count++] = key;
    }
    for (int64_t i = 0; i < k; i++)
        keys[count + i] = limit;
    qsort(keys, (size_t)(count + k), 8, compare_keys);
    qsort(heap, (size_t)k, 8, compare_keys);
    require(!memcmp(keys, heap, (size_t)(8 * k)), name, table->width, table->size);
    report(name, table->width, table->size, heap, 8 * k);
}

static uint64_t *make_heap(int64_t k, uint64_t limit)
{
    uint64_t *heap = memory(8 * k, 0);
    for (int64_t i = 0; i < k; i++)
        heap[i] = limit;
    return heap;
}

static uint64_t *make_mask(int64_t size)
{
    uint64_t *mask = memory(8 * (size / 64 + 2), 0);
    for (int64_t i = 0; i < size / 64 + 2; i++)
        mask[i] = below(3) ? draw() : 0;
    return mask;
}

static void scan_case(int64_t width, int64_t size)
{
    int64_t k = 1 + below(40), first = below(size), last = first + below(size - first + 1);
    uint64_t limit = (uint64_t)(below(2) ? 8 * width + 1 : below(40)) << 32;
    table_t table = {.codes = make_codes(size, width), .size = size, .width = width};
    uint8_t *query = make_codes(1, width);
    uint64_t *heap = make_heap(k, limit);
    if (below(2))
        query = (uint8_t *)table.codes + below(size) * width;
    if (below(3) == 0)
        table.allowed = make_mask(size);
    hadahash_scan(&table, query, 1, heap, k, first, last, level);
    check_keys("scan", &table, query, heap, k, limit, first, last);
}

/* ---- routed tables ----------------------------------------------------------------------------- */

typedef struct {
    int64_t list, distance;
    uint8_t parts[4];
    uint32_t ordinal;
} place_t;

static int same_block(const place_t *a, const place_t *b, int fine)
{
    return a->list == b->list && a->distance == b->distance &&
           (!fine || !memcmp(a->parts, b->parts, 4));
}

static int compare_fine(const void *a, const void *b)
{
    const place_t *left = a, *right = b;
    int parts = memcmp(left->parts, right->parts, 4);
    return left->list != right->list           ? (left->list > right->list ? 1 : -1)
           : left->distance != right->distance ? (left->distance > right->distance ? 1 : -1)
           : parts                             ? parts
                                               : (left->ordinal > right->ordinal ? 1 : -1);
}

static int compare_coarse(const void *a, const void *b)
{
    place_t left = *(const place_t *)a, right = *(const place_t *)b;
    memset(left.parts, 0, 4);
    memset(right.parts, 0, 4);
    return compare_fine(&left, &right);
}

static place_t *place_codes(const uint8_t *codes, const uint8_t *centroids, int64_t size,
                            int64_t width, int fine)
{
    place_t *places = memory(size * (int64_t)sizeof *places, 0);
    for (int64_t i = 0; i < size; i++) {
        const uint8_t *code = codes + i * width;
        place_t best = {0, 1 << 30, {0}, (uint32_t)i};
        for (int64_t l = 0; l < LISTS; l++) {
            int64_t distance = count_bits(code, centroids + l * width, 0, width);
            if (distance < best.distance)
                best.list = l, best.distance = distance;
        }
        for (int64_t q = 0; q < 4; q++) {
            int64_t part = count_bits(code, centroids + best.list * width, q * width / 4,
                                      (q + 1) * width / 4);
            best.parts[q] = (uint8_t)(part < 255 ? part : 255);
        }
        places[i] = best;
    }
    qsort(places, (size_t)size, sizeof *places, fine ? compare_fine : compare_coarse);
    return places;
}

static table_t make_routed(int64_t size, int64_t width, int fine)
{
    uint8_t *codes = make_codes(size, width), *sorted = memory(size * width, 8);
    uint8_t *centroids = memory(LISTS * width, 8), *parts = memory(4 * size, 0);
    for (int64_t l = 0; l < LISTS; l++)
        memcpy(centroids + l * width, codes + below(size) * width, (size_t)width);
    place_t *places = place_codes(codes, centroids, size, width, fine);
    uint32_t *ordinals = memory(4 * size, 0), *block_ordinals = memory(4 * size, 0);
    uint32_t *shell_ordinals = memory(4 * size, 0);
    int64_t *list_shells = memory(8 * (LISTS + 1), 0), *shell_blocks = memory(8 * (size + 1), 0);
    int64_t *starts = memory(8 * (size + 1), 0), shells = 0, blocks = 0, list = 0;
    int32_t *distances = memory(4 * size, 0);
    for (int64_t i = 0; i < size; i++) {
        int new_shell = i == 0 || !same_block(places + i, places + i - 1, 0);
        memcpy(sorted + i * width, codes + places[i].ordinal * width, (size_t)width);
        ordinals[i] = places[i].ordinal;
        for (; list <= places[i].list; list++)
            list_shells[list] = shells;
        if (new_shell) {
            distances[shells] = (int32_t)places[i].distance;
            shell_ordinals[shells] = UINT32_MAX;
            shell_blocks[shells++] = blocks;
        }
        if (new_shell || !same_block(places + i, places + i - 1, fine)) {
            memcpy(parts + 4 * blocks, places[i].parts, 4);
            block_ordinals[blocks] = ordinals[i];
            starts[blocks++] = i;
        }
        if (ordinals[i] < shell_ordinals[shells - 1])
            shell_ordinals[shells - 1] = ordinals[i];
    }
    for (; list <= LISTS; list++)
        list_shells[list] = shells;
    shell_blocks[shells] = blocks;
    starts[blocks] = size;
    table_t table = {sorted,         ordinals,     NULL,   size,           width,
                     centroids,      list_shells,  distances, shell_ordinals, shell_blocks,
                     starts,         block_ordinals, fine ? parts : NULL, LISTS};
    return table;
}

static void routed_case(int64_t width, int64_t size, int fine)
{
    table_t table = make_routed(size, width, fine);
    const uint8_t *query = below(2) ? make_codes(1, width) : table.codes + below(size) * width;
    int64_t k = 1 + below(30), work[2] = {0, 0};
    uint64_t limit = (uint64_t)(8 * width + 1) << 32, bound = UINT64_MAX;
    uint64_t *heap = make_heap(k, limit);
    uint16_t apart[LISTS];
    if (below(3) == 0)
        table.allowed = make_mask(size);
    require(!hadahash_probe(&table, query, 1, heap, k, 1, apart, work, &bound, level), "memory",
            width, size);
    report("probe", work[0], work[1], &bound, 8);
    hadahash_scan_remaining(&table, query, 1, heap, k, apart, 0, LISTS, &bound, level);
    check_keys(fine ? "routed" : "shells", &table, query, heap, k, limit, 0, size);
}

/* ---- pairs of nearly equal codes --------------------------------------------------------------- */

static void pairs_case(int64_t width, int64_t size)
{
    uint8_t *codes = make_codes(size, width);
    uint64_t *keys = memory(8 * size, 8);
    uint32_t *components = memory(4 * size, 4), radius = (uint32_t)below(12);
    int64_t *links = memory(24 * size, 8), state[2] = {0, 0}, compared = 0, count = 0, found = 0;
    for (int64_t i = 0; i < size; i++) {
        components[i] = (uint32_t)(i ? components[i - 1] + (below(3) > 0) : 0);
        keys[i] = (draw() % 5) << 32 | (uint64_t)i;
    }
    qsort(keys, (size_t)size, 8, compare_keys);
    for (int64_t i = 0; i < size; i++)
        for (int64_t j = i + 1; j < size && keys[j] >> 32 == keys[i] >> 32; j++) {
            uint32_t a = (uint32_t)keys[i], b = (uint32_t)keys[j];
            if (components[a] == components[b])
                continue;
            compared++;
            count += count_bits(codes + a * width, codes + b * width, 0, width) <= radius;
        }
    while (state[0] < size) {
        int64_t part = hadahash_near_pairs(keys, size, codes, width, components, radius, state,
                                           links, size, level);
        for (int64_t i = 0; i < part; i++)
            require(count_bits(codes + links[3 * i] * width, codes + links[3 * i + 1] * width, 0,
                               width) == links[3 * i + 2], "distance", width, size);
        found += part;
    }
    require(found == count && state[1] == compared, "pairs", width, size);
    report("pairs", found, compared, links, 24);
}

int main(int count, char **arguments)
{
    static const int64_t widths[] = {4, 8, 16, 24, 32, 40, 64, 72, 104, 4096, 4104};
    level = count > 1 ? atoi(arguments[1]) : -1;
    for (int64_t words = 1; words <= 12; words++)
        for (int64_t labels = 0; labels < 4; labels++)
            count_case(words, labels, 8 + below(300));
    for (int64_t words = 511; words <= 513; words++)
        count_case(words, 0, 8 + below(60));
    for (int w = 0; w < 11; w++)
        for (int i = 0; i < (w < 9 ? 40 : 4); i++)
            scan_case(widths[w], 1 + below(i % 4 ? 150 : w < 9 ? MOST_ITEMS : 150));
    for (int w = 0; w < 7; w++)
        for (int i = 0; i < 12; i++)
            routed_case(widths[w], 1 + below(i % 4 ? 200 : MOST_ITEMS), i % 2);
    for (int w = 0; w < 7; w++)
        for (int i = 0; i < 16; i++)
            ranked_case(widths[w], i % 3 ? widths[below(7)] : 0, i % 2);
    for (int i = 0; i < 12; i++)
        resize_case();
    for (int w = 1; w < 7; w++)
        for (int i = 0; i < 4; i++)
            pairs_case(widths[w], 20 + below(150));
    return 0;
}
