/* One pair, written as plainly as its definition: the specification of every faster version.
 *
 * Products and sums are rounded one by one (-ffp-contract=off), so all versions agree bit for bit,
 * but for the sign and the payload of a NaN.
 * Half types are widened to float, rotated, and rounded once, to nearest even.
 */
#ifndef WHORL_PAIR_H
#define WHORL_PAIR_H

#include "span.h"

INLINE float from_bits(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

INLINE uint32_t to_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

INLINE float bf16_to_float(uint16_t h) { return from_bits((uint32_t)h << 16); }

INLINE uint16_t float_to_bf16(float f) {
    const uint32_t u = to_bits(f);
    if (f != f) return 0x7fc0;
    return (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

INLINE float f16_to_float(uint16_t h) {
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    const uint32_t exponent = (h >> 10) & 0x1f, fraction = h & 0x3ff;
    if (exponent == 0x1f) return from_bits(sign | 0x7f800000 | (fraction << 13));
    if (exponent) return from_bits(sign | ((exponent + 112) << 23) | (fraction << 13));
    return from_bits(sign | to_bits((float)fraction * 0x1p-24f)); /* zero and subnormals, exact */
}

INLINE uint16_t float_to_f16(float f) {
    const uint32_t u = to_bits(f);
    const uint16_t sign = (uint16_t)((u >> 16) & 0x8000);
    uint32_t m = u & 0x7fffffff;
    if (m > 0x7f800000) return sign | 0x7e00;
    if (m >= 0x47800000) return sign | 0x7c00; /* 65536 and above */
    if (m < 0x38800000) {
        /* Below the smallest normal: adding 0.5 leaves the rounded subnormal in the low bits. */
        const float shifted = from_bits(m) + 0.5f;
        return sign | (uint16_t)(to_bits(shifted) - 0x3f000000);
    }
    m += 0xfff + ((m >> 13) & 1); /* a carry into the exponent is right, up to infinity */
    return sign | (uint16_t)((m >> 13) - (112 << 10));
}

/* memcpy, not a cast: a caller's pointer need not be aligned to its type. */
INLINE double load_double(const char *x, int64_t i) {
    double d;
    memcpy(&d, x + 8 * i, sizeof d);
    return d;
}

INLINE float load_float(const char *x, int64_t i, int dtype) {
    float f;
    uint16_t h;
    if (dtype == WHORL_F32) {
        memcpy(&f, x + 4 * i, sizeof f);
        return f;
    }
    memcpy(&h, x + 2 * i, sizeof h);
    return dtype == WHORL_BF16 ? bf16_to_float(h) : f16_to_float(h);
}

INLINE void store_double(char *out, int64_t i, double d) { memcpy(out + 8 * i, &d, sizeof d); }

INLINE void store_float(char *out, int64_t i, float f, int dtype) {
    if (dtype == WHORL_F32) {
        memcpy(out + 4 * i, &f, sizeof f);
        return;
    }
    const uint16_t h = dtype == WHORL_BF16 ? float_to_bf16(f) : float_to_f16(f);
    memcpy(out + 2 * i, &h, sizeof h);
}

INLINE int64_t first(int64_t i, int layout) { return layout == WHORL_HALF ? i : 2 * i; }

INLINE int64_t second(int64_t i, int64_t pairs, int layout) {
    return layout == WHORL_HALF ? i + pairs : 2 * i + 1;
}

INLINE void whorl_rotate_pair(const char *x, char *out, const char *row, int64_t i,
                              const whorl_span *s, int dtype, int in_layout, int out_layout) {
    const int64_t n = s->pairs;
    const int64_t ia = first(i, in_layout), ib = second(i, n, in_layout);
    const int64_t oa = first(i, out_layout), ob = second(i, n, out_layout);
    if (dtype == WHORL_F64) {
        const double cosine = load_double(row, i), sine = load_double(row, n + i);
        const double sn = s->negate ? -sine : sine;
        const double a = load_double(x, ia), b = load_double(x, ib);
        store_double(out, oa, a * cosine - b * sn);
        store_double(out, ob, b * cosine + a * sn);
    } else {
        const float cosine = load_float(row, i, WHORL_F32);
        const float sine = load_float(row, n + i, WHORL_F32);
        const float sn = s->negate ? -sine : sine;
        const float a = load_float(x, ia, dtype), b = load_float(x, ib, dtype);
        store_float(out, oa, a * cosine - b * sn, dtype);
        store_float(out, ob, b * cosine + a * sn, dtype);
    }
}

#endif
