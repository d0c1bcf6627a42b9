/* Hamming distances of eight codes at a time with the NEON instructions of aarch64.
 *
 * Every aarch64 CPU has them, so they are selected when the library is compiled. Codes need no more
 * alignment than their words.
 */
#ifndef HADAHASH_NEON_H
#define HADAHASH_NEON_H

#include "hamming.h"

#ifdef NEON
#include <arm_neon.h>

#define EIGHT 8
#define NEON_WIDTH 4096 /* bytes of a code, at most: a distance has 16 bits */

/* Bits that differ in each of 16 bytes. */
INLINE uint8x16_t differences(uint8x16_t query, const uint8_t *bytes)
{
    return vcntq_u8(veorq_u8(query, vld1q_u8(bytes)));
}

/* Bits that differ between a query and one code of 16 bytes or more, in 8 partial sums. The last
 * 8 bytes of an odd number of words are loaded alone. */
INLINE uint16x8_t partial_sums(const uint8_t *query, const uint8_t *code, int64_t width)
{
    uint16x8_t sums = vdupq_n_u16(0);
    int64_t at = 0;
    for (; at + 16 <= width; at += 16)
        sums = vpadalq_u8(sums, differences(vld1q_u8(query + at), code + at));
    if (at < width) {
        uint8x8_t bits = vcnt_u8(veor_u8(vld1_u8(query + at), vld1_u8(code + at)));
        sums = vpadalq_u8(sums, vcombine_u8(bits, vdup_n_u8(0)));
    }
    return sums;
}

INLINE uint16x8_t eight_short(uint8x16_t query, const uint8_t *codes, int64_t width)
{
    uint8x16_t sums = vpaddq_u8(differences(query, codes), differences(query, codes + 16));
    if (width == 8)
        sums = vpaddq_u8(sums, vpaddq_u8(differences(query, codes + 32),
                                         differences(query, codes + 48)));
    return vpaddlq_u8(sums);
}

/* Distances of a query to eight codes in a row; `width` is 4 or a multiple of 8. */
INLINE uint16x8_t eight_distances(const uint8_t *query, const uint8_t *codes, int64_t width)
{
    if (width == 4)
        return eight_short(vreinterpretq_u8_u32(vld1q_dup_u32((const uint32_t *)query)), codes, 4);
    if (width == 8)
        return eight_short(vreinterpretq_u8_u64(vld1q_dup_u64((const uint64_t *)query)), codes, 8);
    uint16x8_t pairs[EIGHT / 2];
    for (int64_t i = 0; i < EIGHT / 2; i++)
        pairs[i] = vpaddq_u16(partial_sums(query, codes + 2 * i * width, width),
                              partial_sums(query, codes + (2 * i + 1) * width, width));
    return vpaddq_u16(vpaddq_u16(pairs[0], pairs[1]), vpaddq_u16(pairs[2], pairs[3]));
}
#endif

#endif
