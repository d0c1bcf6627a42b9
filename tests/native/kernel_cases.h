/* Shared by the cases: random data, digests and plain loops. */
#ifndef KERNEL_CASES_H
#define KERNEL_CASES_H

#include "ranked.h"

#include <stdio.h>
#include <stdlib.h>

extern int level; /* of hadahash_cpu_level */

/* The cases of the other file. */
void ranked_case(int64_t width, int64_t content_width, int multilabel);
void resize_case(void);

uint64_t draw(void);
int64_t below(int64_t limit);
void *memory(int64_t bytes, int64_t shift);
void fill(void *bytes, int64_t count);
void report(const char *name, int64_t a, int64_t b, const void *bytes, int64_t count);
void require(int condition, const char *name, int64_t a, int64_t b);
int64_t count_bits(const uint8_t *a, const uint8_t *b, int64_t first, int64_t last);
uint8_t *make_codes(int64_t count, int64_t width);

#endif
