/* Ranked search: queries, items and heaps, and the points of one item. See ranked.c.
 *
 * Doubles are added and multiplied in the order of ranked_tables.py, without contraction, so that
 * points are equal to the bit.
 */
#ifndef HADAHASH_RANKED_H
#define HADAHASH_RANKED_H

#include "search.h"

#include <string.h>

#define LANES 4          /* partial sums over classes, as in ranked_tables.py */
#define MANTISSAS 128    /* as in ranked_tables.py */
#define CACHE_BITS 9     /* codes remembered per query: 2^CACHE_BITS */
#define STEPS 4          /* numbers of classes after which bounds are compared */
#define POWER_STEPS 1024 /* entries of each table of `probability_below` */
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
        for (; c < steps->steps[i]; c += LANES) { /* steps are multiples of LANES */
            const uint8_t *word = steps->codewords + c * width;
            double e[LANES];
            for (int lane = 0; lane < LANES; lane++) {
                uint32_t apart = distance(word + lane * width, code, width);
                e[lane] = query->factors
                              ? steps->values[(c + lane) * (query->bits + 1) + apart]
                              : query->powers[apart];
            }
            if (query->factors) {
                product *= (e[0] * e[1]) * (e[2] * e[3]);
            } else {
                const double *p = steps->values + c;
                above += (p[0] * e[0] + p[1] * e[1]) + (p[2] * e[2] + p[3] * e[3]);
                below += (e[0] + e[1]) + (e[2] + e[3]);
            }
        }
        if (query->factors ? product * steps->rest[i] > 1 - least
                           : least > steps->next[i] &&
                                 above - least * below <
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

#endif
