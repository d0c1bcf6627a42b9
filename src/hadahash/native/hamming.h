/* Shared by all kernels: population counts, and one source compiled for several kinds of CPU. */
#ifndef HADAHASH_HAMMING_H
#define HADAHASH_HAMMING_H

#include <stdint.h>

#if defined(__GNUC__) || defined(__clang__)
#define INLINE static inline __attribute__((always_inline))
#define POPCOUNT(x) ((uint32_t)__builtin_popcountll(x))
#define POPCOUNT32(x) ((uint32_t)__builtin_popcount(x))
#define LOWEST_BIT(x) __builtin_ctzll(x) /* index of the lowest set bit; x must not be 0 */
#else
#define INLINE static __forceinline
INLINE uint32_t POPCOUNT(uint64_t x)
{
    x -= (x >> 1) & 0x5555555555555555u;
    x = (x & 0x3333333333333333u) + ((x >> 2) & 0x3333333333333333u);
    x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fu;
    return (uint32_t)((x * 0x0101010101010101u) >> 56);
}
#define POPCOUNT32(x) POPCOUNT(x)
#define LOWEST_BIT(x) POPCOUNT(((x) & (0 - (x))) - 1)
#endif

/* HADAHASH_PORTABLE leaves only plain C, as a reference for tests. */
#if (defined(__GNUC__) || defined(__clang__)) && defined(__x86_64__) && !defined(HADAHASH_PORTABLE)
#define CPU_DISPATCH 1
#define TARGET_POPCNT __attribute__((target("popcnt")))
#define TARGET_AVX2 __attribute__((target("popcnt,avx2")))
#define TARGET_AVX512                                                                             \
    __attribute__((target("popcnt,avx2,avx512f,avx512bw,avx512vl,avx512vpopcntdq")))
#endif

#if defined(__aarch64__) && defined(__ARM_NEON) && !defined(__AARCH64EB__) &&                      \
    !defined(HADAHASH_PORTABLE)
#define NEON 1 /* see neon.h */
#endif

/* DEFINE_FOR_LEVELS defines a function once per level of hadahash_cpu_level, by a macro of name and
 * attributes; ALL_LEVELS lists these functions. */
#ifdef CPU_DISPATCH
#define DEFINE_FOR_LEVELS(define, name)                                                           \
    define(name##_portable, )                                                                     \
    define(name##_popcnt, TARGET_POPCNT)                                                          \
    define(name##_avx2, TARGET_AVX2)                                                              \
    define(name##_avx512, TARGET_AVX512)
#define ALL_LEVELS(name) {name##_portable, name##_popcnt, name##_avx2, name##_avx512}
#else
#define DEFINE_FOR_LEVELS(define, name) define(name##_portable, )
#define ALL_LEVELS(name) {name##_portable}
#endif

/* Instruction sets of this CPU: 0 baseline, 1 POPCNT, 2 AVX2 as well, 3 AVX-512 with VPOPCNTDQ. The
 * baseline of aarch64 includes NEON. */
int hadahash_cpu_level(void);

/* Name of a level: "portable", "popcnt", "avx2", "avx512" or "neon"; NULL where there is none. */
const char *hadahash_level_name(int level);

/* The level to use: the given one, for tests, or the best one for -1. */
INLINE int usable_level(int level)
{
    int best = hadahash_cpu_level();
    return level < 0 || level > best ? best : level;
}

#endif
