/* Weighted averages of neighboring rows, then of neighboring columns: the two passes of a resize.
 *
 * Weights are integers that add up to 2^14. Between the passes a pixel has 16 bits, so that only
 * the result is rounded to 8. All sums fit into 32 bits.
 */
#include "hamming.h"

#define CHANNELS 3

/* averages[i] = sum over t of weights[i][t] * pixels[first[i] + t], in units of 1/256. */
typedef void (*average_rows_t)(const uint8_t *pixels, int64_t stride, int64_t width,
                               const int32_t *first, const uint32_t *weights, int64_t taps,
                               int64_t rows, uint32_t *sums, uint16_t *averages);

INLINE void average_rows(const uint8_t *pixels, int64_t stride, int64_t width,
                         const int32_t *first, const uint32_t *weights, int64_t taps, int64_t rows,
                         uint32_t *sums, uint16_t *averages)
{
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t x = 0; x < width; x++)
            sums[x] = 32;
        for (int64_t t = 0; t < taps; t++) {
            const uint8_t *row = pixels + (first[i] + t) * stride;
            uint32_t weight = weights[i * taps + t];
            if (weight)
                for (int64_t x = 0; x < width; x++)
                    sums[x] += weight * row[x];
        }
        for (int64_t x = 0; x < width; x++)
            averages[i * width + x] = (uint16_t)(sums[x] >> 6);
    }
}

#define DEFINE_AVERAGE_ROWS(name, attributes)                                                     \
    attributes static void name(const uint8_t *pixels, int64_t stride, int64_t width,             \
                                const int32_t *first, const uint32_t *weights, int64_t taps,      \
                                int64_t rows, uint32_t *sums, uint16_t *averages)                 \
    {                                                                                             \
        average_rows(pixels, stride, width, first, weights, taps, rows, sums, averages);          \
    }

DEFINE_FOR_LEVELS(DEFINE_AVERAGE_ROWS, average_rows)

void hadahash_average_rows(const uint8_t *pixels, int64_t stride, int64_t width,
                           const int32_t *first, const uint32_t *weights, int64_t taps,
                           int64_t rows, uint32_t *sums, uint16_t *averages, int level)
{
    static const average_rows_t at[] = ALL_LEVELS(average_rows);
    at[usable_level(level)](pixels, stride, width, first, weights, taps, rows, sums, averages);
}

/* squares[i][j] = sum over t of weights[j][t] * pixels[i][first[j] + t], rounded to 8 bits. */
void hadahash_average_columns(const uint16_t *pixels, int64_t width, int64_t rows,
                              const int32_t *first, const uint32_t *weights, int64_t taps,
                              int64_t columns, uint8_t *squares)
{
    for (int64_t i = 0; i < rows; i++, pixels += width)
        for (int64_t j = 0; j < columns; j++, squares += CHANNELS) {
            const uint16_t *pixel = pixels + CHANNELS * first[j];
            uint32_t sums[CHANNELS] = {1u << 21, 1u << 21, 1u << 21};
            for (int64_t t = 0; t < taps; t++)
                for (int c = 0; c < CHANNELS; c++)
                    sums[c] += weights[j * taps + t] * pixel[CHANNELS * t + c];
            for (int c = 0; c < CHANNELS; c++)
                squares[c] = (uint8_t)(sums[c] >> 22);
        }
}
