/* Ranked search and the resizing of pixels; see kernel_cases.c. */
#include "kernel_cases.h"

void hadahash_ranked(const table_t *, const uint8_t *, int64_t, const ranked_t *, int64_t,
                     hit_t *, int64_t, remembered_t *, const int64_t *, int64_t, int);
void hadahash_points(const table_t *, const uint8_t *, int64_t, const ranked_t *, remembered_t *,
                     int64_t, int64_t, int64_t *);
void hadahash_average_rows(const uint8_t *, int64_t, int64_t, const int32_t *, const uint32_t *,
                           int64_t, int64_t, uint32_t *, uint16_t *, int);
void hadahash_average_columns(const uint16_t *, int64_t, int64_t, const int32_t *,
                              const uint32_t *, int64_t, int64_t, uint8_t *);


/* ---- ranked search ----------------------------------------------------------------------------- */

#define CLASSES 7

static double fraction(void) { return (double)(draw() >> 11) / 9007199254740992.0; }

static double *doubles(int64_t count, double low, double high)
{
    double *values = memory(8 * count, 8);
    for (int64_t i = 0; i < count; i++)
        values[i] = low + (high - low) * fraction();
    return values;
}

/* Random planes, and losses by byte that are never below what the planes add up to. */
static int64_t *make_losses(planes_t *planes, int64_t width, int64_t unit)
{
    int64_t *losses = memory(8 * 256 * width, 0), *shifts = memory(8 * 16, 0);
    uint8_t *masks = memory(16 * width, 8);
    planes->count = below(7);
    fill(masks, planes->count * width);
    for (int64_t p = 0; p < planes->count; p++)
        shifts[p] = below(4);
    for (int64_t i = 0; i < width; i++) {
        for (int64_t value = 0; value < 256; value++) {
            int64_t *entry = losses + 256 * i + value;
            *entry = value ? below(unit) : 0;
            for (int64_t p = 0; p < planes->count; p++)
                *entry += unit * (int64_t)(POPCOUNT((uint64_t)(value & masks[p * width + i]))
                                           << shifts[p]);
        }
    }
    planes->masks = masks;
    planes->shifts = shifts;
    return losses;
}

/* A query whose bounds are valid but coarse: no item may be missing. */
static ranked_t make_query(int64_t width, int64_t content_width, int multilabel)
{
    int64_t bits = 8 * width, unit = 1 + below(1000), *caps = memory(8 * (bits + 1), 0);
    ranked_t query = {.radius = bits, .classes = CLASSES, .bits = bits, .balls = -1, .unit = unit};
    double *powers = memory(8 * (bits + 1), 8);
    query.code = make_codes(1, width); /* statements, as initializers have no order */
    query.codewords = make_codes(CLASSES, width);
    query.top = make_codes(1, width);
    query.start = below(1000000);
    query.most = (int64_t)1 << 42;
    for (int64_t i = 0; i <= bits; i++) {
        caps[i] = query.most;
        powers[i] = 1.0 / (1.0 + (double)(i * i));
    }
    query.caps = caps;
    if (multilabel)
        query.factors = doubles(CLASSES * (bits + 1), 0.2, 1);
    else
        query.probabilities = doubles(CLASSES, 0, 1);
    query.powers = powers;
    query.steps.powers = doubles(2 * POWER_STEPS, 0, 0);
    if (below(2))
        query.logarithms = doubles(2 * MANTISSAS + 1, 0.5, 1);
    if (below(2))
        query.radius = below(bits);
    if (below(3))
        query.losses = make_losses(&query.planes, width, unit);
    if (content_width) {
        query.content = make_codes(1, content_width);
        query.content_losses = make_losses(&query.content_planes, content_width, unit);
    }
    return query;
}

static int compare_hits(const void *a, const void *b)
{
    return worse(*(const hit_t *)a, *(const hit_t *)b) ? 1 : -1;
}

void ranked_case(int64_t width, int64_t content_width, int multilabel)
{
    int64_t size = 1 + below(500);
    ranked_t query = make_query(width, content_width, multilabel);
    table_t table = {.codes = make_codes(size, width), .size = size, .width = width};
    const uint8_t *content = content_width ? make_codes(size, content_width) : NULL;
    int64_t k = 1 + below(30), range[2] = {0, size}, *points = memory(8 * size, 0), count = 0;
    int64_t caches = (int64_t)sizeof(remembered_t) << CACHE_BITS;
    remembered_t *cache = memory(caches, 0);
    hit_t *hits = memory((size + k) * (int64_t)sizeof *hits, 0), none = {INT64_MIN / 2, size, -1};
    hit_t *heap = memory(k * (int64_t)sizeof *heap, 0);
    memset(cache, 0, (size_t)caches);
    hadahash_points(&table, content, content_width, &query, cache, 0, size, points);
    report("points", width, content_width, points, 8 * size);
    for (int64_t i = 0; i < size; i++)
        if (count_bits(query.code, table.codes + i * width, 0, width) <= query.radius)
            hits[count++] = (hit_t){points[i], i, i};
    for (int64_t i = 0; i < k; i++)
        heap[i] = hits[count + i] = none;
    memset(cache, 0, (size_t)caches);
    hadahash_ranked(&table, content, content_width, &query, 1, heap, k, cache, range, 1, level);
    qsort(hits, (size_t)(count + k), sizeof *hits, compare_hits);
    qsort(heap, (size_t)k, sizeof *heap, compare_hits);
    require(!memcmp(hits, heap, (size_t)k * sizeof *heap), "ranked", width, size);
    report("ranked", width, content_width, heap, k * (int64_t)sizeof *heap);
}

/* ---- pixels ------------------------------------------------------------------------------------ */

static uint32_t *make_weights(int32_t *first, int64_t count, int64_t taps, int64_t length)
{
    uint32_t *weights = memory(4 * count * taps, 4);
    for (int64_t i = 0; i < count; i++) {
        uint32_t left = 1 << 14;
        first[i] = (int32_t)below(length - taps + 1);
        for (int64_t t = 0; t < taps; t++) {
            uint32_t weight = t + 1 < taps ? (uint32_t)below(left + 1) : left;
            weights[i * taps + t] = weight;
            left -= weight;
        }
    }
    return weights;
}

void resize_case(void)
{
    int64_t height = 20 + below(60), columns = 20 + below(60), width = 3 * columns;
    int64_t side = 1 + below(20), taps = 1 + below(9);
    uint8_t *pixels = memory(height * width, below(16)), *square = memory(3 * side * side, 1);
    uint32_t *sums = memory(4 * width, 4);
    uint16_t *averages = memory(2 * side * width, 2);
    int32_t *first = memory(4 * side, 4);
    fill(pixels, height * width);
    uint32_t *weights = make_weights(first, side, taps, height);
    hadahash_average_rows(pixels, width, width, first, weights, taps, side, sums, averages, level);
    report("rows", height, columns, averages, 2 * side * width);
    weights = make_weights(first, side, taps, columns);
    hadahash_average_columns(averages, width, side, first, weights, taps, side, square);
    report("columns", height, columns, square, 3 * side * side);
}
