/* What the parts of the C test share. */
#ifndef WHORL_TEST_H
#define WHORL_TEST_H

#include "whorl.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define PATTERN 0xa5 /* fills outputs before a rotation */

void check(int ok, const char *what, const char *detail);
void test_halves(void);
void test_hostile(void);
void test_angles(void);
void test_scores(void);
void test_races(double seconds);

/* How each dtype stores numbers, written apart from the library's conversions. */
static const int64_t ITEM[] = {4, 8, 2, 2};
static const int64_t ENTRY[] = {4, 8, 4, 4};
static const int FRACTION[] = {23, 52, 7, 10}; /* stored bits of the significand */
static const int EXPONENT[] = {8, 11, 8, 5};
static const char *const NAMES[] = {"float32", "float64", "bfloat16", "float16"};

static inline uint64_t random_bits(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static inline uint64_t load(const char *at, int64_t bytes) {
    uint64_t bits = 0;
    memcpy(&bits, at, (size_t)bytes); /* little-endian, as every target of the library */
    return bits;
}

static inline long double decode(uint64_t bits, int dtype) {
    const int fraction = FRACTION[dtype], exponent = EXPONENT[dtype];
    const int bias = (1 << (exponent - 1)) - 1, most = (1 << exponent) - 1;
    const long double sign = bits >> (fraction + exponent) & 1 ? -1.0L : 1.0L;
    const int e = (int)(bits >> fraction & (uint64_t)most);
    const uint64_t f = bits & ((UINT64_C(1) << fraction) - 1);
    if (e == most) return f ? (long double)NAN : sign * (long double)INFINITY;
    if (e == 0) return sign * ldexpl((long double)f, 1 - bias - fraction);
    return sign * ldexpl((long double)(f + (UINT64_C(1) << fraction)), e - bias - fraction);
}

static inline int is_nan(uint64_t bits, int dtype) { return isnan(decode(bits, dtype)); }

static inline int all_pattern(const char *memory, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i++)
        if ((unsigned char)memory[i] != PATTERN) return 0;
    return 1;
}

#endif
