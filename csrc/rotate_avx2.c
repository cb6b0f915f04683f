/* Eight pairs (four in double) at a time with AVX2 and F16C; the same bits as pair.h.
 *
 * Multiplies and adds stay separate: fused ones would round differently from the scalar version
 * and from PyTorch's element-wise form, and the loop waits for memory anyway.
 */
#include "pair.h"

#include <immintrin.h>

typedef struct {
    __m256 a, b;
} pairs8;

/* (v0, v1) = a0 b0 a1 b1 ... a7 b7  ->  a0..a7, b0..b7 */
INLINE pairs8 split(__m256 v0, __m256 v1) {
    const __m256 a = _mm256_shuffle_ps(v0, v1, 0x88), b = _mm256_shuffle_ps(v0, v1, 0xdd);
    const __m256d pa = _mm256_permute4x64_pd(_mm256_castps_pd(a), 0xd8);
    const __m256d pb = _mm256_permute4x64_pd(_mm256_castps_pd(b), 0xd8);
    return (pairs8){_mm256_castpd_ps(pa), _mm256_castpd_ps(pb)};
}

INLINE void merge(pairs8 p, __m256 *v0, __m256 *v1) {
    const __m256 low = _mm256_unpacklo_ps(p.a, p.b), high = _mm256_unpackhi_ps(p.a, p.b);
    *v0 = _mm256_permute2f128_ps(low, high, 0x20);
    *v1 = _mm256_permute2f128_ps(low, high, 0x31);
}

/* Half-precision pairs are sorted while they are 16 bits wide: half as many shuffles. */
INLINE pairs8 split_f16(const char *x) {
    const __m256i order = _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15, 0,
                                           1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    const __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)x);
    const __m256i sorted = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(v, order), 0xd8);
    return (pairs8){_mm256_cvtph_ps(_mm256_castsi256_si128(sorted)),
                    _mm256_cvtph_ps(_mm256_extracti128_si256(sorted, 1))};
}

INLINE void merge_f16(char *out, pairs8 p) {
    const __m128i a = _mm256_cvtps_ph(p.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m128i b = _mm256_cvtps_ph(p.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm_storeu_si128((__m128i *)(void *)out, _mm_unpacklo_epi16(a, b));
    _mm_storeu_si128((__m128i *)(void *)(out + 16), _mm_unpackhi_epi16(a, b));
}

INLINE __m256 load8(const char *x, int64_t i, int dtype) {
    if (dtype == WHORL_F32) return _mm256_loadu_ps((const float *)(const void *)(x + 4 * i));
    const __m128i h = _mm_loadu_si128((const __m128i *)(const void *)(x + 2 * i));
    if (dtype == WHORL_F16) return _mm256_cvtph_ps(h);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

/* Adds half a bf16 ulp, ties to even: the upper 16 bits are then the result, except for NaN. */
INLINE __m256i round_bf16(__m256 v) {
    const __m256i u = _mm256_castps_si256(v);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    return _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd);
}

INLINE __m256i quiet_nan(__m256i rounded, __m256 v) {
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(rounded, _mm256_set1_epi32(0x7fc00000), nan);
}

INLINE void store_bf16(char *out, pairs8 p, int64_t i, int64_t pairs, int layout) {
    __m256i a = round_bf16(p.a), b = round_bf16(p.b);
    if (_mm256_movemask_ps(_mm256_cmp_ps(p.a, p.b, _CMP_UNORD_Q))) {
        a = quiet_nan(a, p.a);
        b = quiet_nan(b, p.b);
    }
    if (layout == WHORL_INTERLEAVED) {
        const __m256i upper = _mm256_set1_epi32((int)0xffff0000);
        const __m256i both = _mm256_or_si256(_mm256_srli_epi32(a, 16), _mm256_and_si256(b, upper));
        _mm256_storeu_si256((__m256i *)(void *)(out + 4 * i), both);
        return;
    }
    const __m256i packed = _mm256_packus_epi32(_mm256_srli_epi32(a, 16), _mm256_srli_epi32(b, 16));
    const __m256i ordered = _mm256_permute4x64_epi64(packed, 0xd8); /* a0..a7 b0..b7 */
    _mm_storeu_si128((__m128i *)(void *)(out + 2 * i), _mm256_castsi256_si128(ordered));
    _mm_storeu_si128((__m128i *)(void *)(out + 2 * (i + pairs)),
                     _mm256_extracti128_si256(ordered, 1));
}

INLINE void store8(char *out, int64_t i, __m256 v, int dtype) {
    if (dtype == WHORL_F32) {
        _mm256_storeu_ps((float *)(void *)(out + 4 * i), v);
        return;
    }
    _mm_storeu_si128((__m128i *)(void *)(out + 2 * i),
                     _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

INLINE pairs8 load_pairs(const char *x, int64_t i, int64_t pairs, int dtype, int layout) {
    if (layout == WHORL_HALF) return (pairs8){load8(x, i, dtype), load8(x, i + pairs, dtype)};
    if (dtype == WHORL_BF16) {
        const __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)(x + 4 * i));
        const __m256i b = _mm256_and_si256(v, _mm256_set1_epi32((int)0xffff0000));
        return (pairs8){_mm256_castsi256_ps(_mm256_slli_epi32(v, 16)), _mm256_castsi256_ps(b)};
    }
    if (dtype == WHORL_F16) return split_f16(x + 4 * i);
    return split(load8(x, 2 * i, dtype), load8(x, 2 * i + 8, dtype));
}

INLINE void store_pairs(char *out, pairs8 p, int64_t i, int64_t pairs, int dtype, int layout) {
    if (dtype == WHORL_BF16) {
        store_bf16(out, p, i, pairs, layout);
    } else if (layout == WHORL_HALF) {
        store8(out, i, p.a, dtype);
        store8(out, i + pairs, p.b, dtype);
    } else if (dtype == WHORL_F16) {
        merge_f16(out + 4 * i, p);
    } else {
        __m256 v0, v1;
        merge(p, &v0, &v1);
        store8(out, 2 * i, v0, dtype);
        store8(out, 2 * i + 8, v1, dtype);
    }
}

INLINE pairs8 turn(pairs8 p, __m256 c, __m256 w) {
    return (pairs8){_mm256_sub_ps(_mm256_mul_ps(p.a, c), _mm256_mul_ps(p.b, w)),
                    _mm256_add_ps(_mm256_mul_ps(p.b, c), _mm256_mul_ps(p.a, w))};
}

/* Pairs i .. i + 7 of `heads` vectors. */
INLINE void rotate8(const whorl_span *s, const char *x, char *out, const char *row, int64_t i,
                    int heads, int dtype, int in_layout, int out_layout) {
    const __m256 sign = s->negate ? _mm256_set1_ps(-0.0f) : _mm256_setzero_ps();
    const __m256 c = load8(row, i, WHORL_F32);
    const __m256 w = _mm256_xor_ps(load8(row, i + s->pairs, WHORL_F32), sign);
    for (int g = 0; g < heads; g++) {
        const pairs8 p = load_pairs(x + g * s->x_head, i, s->pairs, dtype, in_layout);
        store_pairs(out + g * s->out_head, turn(p, c, w), i, s->pairs, dtype, out_layout);
    }
}

/* Table entries i..i+3 and i+8..i+11: the order in which unpacking 16-bit lanes leaves channels. */
INLINE __m256 load_lanes(const char *row, int64_t i) {
    const float *at = (const float *)(const void *)(row + 4 * i);
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(at)), _mm_loadu_ps(at + 8), 1);
}

INLINE pairs8 as_pairs(__m256i a, __m256i b) {
    return (pairs8){_mm256_castsi256_ps(a), _mm256_castsi256_ps(b)};
}

INLINE void pack_bf16(char *out, __m256 low, __m256 high, int has_nan) {
    __m256i l = round_bf16(low), h = round_bf16(high);
    if (has_nan) {
        l = quiet_nan(l, low);
        h = quiet_nan(h, high);
    }
    const __m256i packed = _mm256_packus_epi32(_mm256_srli_epi32(l, 16), _mm256_srli_epi32(h, 16));
    _mm256_storeu_si256((__m256i *)(void *)out, packed);
}

/* Sixteen bf16 pairs in half layout: unpack and pack undo each other's lane order for free. */
INLINE void rotate16_bf16(const whorl_span *s, const char *x, char *out, const char *row, int64_t i,
                          int heads) {
    const __m256 sign = s->negate ? _mm256_set1_ps(-0.0f) : _mm256_setzero_ps();
    const __m256i zero = _mm256_setzero_si256();
    const int64_t second = i + s->pairs;
    const __m256 c0 = load_lanes(row, i), c1 = load_lanes(row, i + 4);
    const __m256 w0 = _mm256_xor_ps(load_lanes(row, second), sign);
    const __m256 w1 = _mm256_xor_ps(load_lanes(row, second + 4), sign);
    for (int g = 0; g < heads; g++) {
        const char *from = x + g * s->x_head;
        char *to = out + g * s->out_head;
        const __m256i a = _mm256_loadu_si256((const __m256i *)(const void *)(from + 2 * i));
        const __m256i b = _mm256_loadu_si256((const __m256i *)(const void *)(from + 2 * second));
        const pairs8 low =
            turn(as_pairs(_mm256_unpacklo_epi16(zero, a), _mm256_unpacklo_epi16(zero, b)), c0, w0);
        const pairs8 high =
            turn(as_pairs(_mm256_unpackhi_epi16(zero, a), _mm256_unpackhi_epi16(zero, b)), c1, w1);
        const __m256 nan = _mm256_or_ps(_mm256_cmp_ps(low.a, high.a, _CMP_UNORD_Q),
                                        _mm256_cmp_ps(low.b, high.b, _CMP_UNORD_Q));
        const int has_nan = _mm256_movemask_ps(nan);
        pack_bf16(to + 2 * i, low.a, high.a, has_nan);
        pack_bf16(to + 2 * second, low.b, high.b, has_nan);
    }
}

INLINE __m256d load4(const char *x, int64_t i) {
    return _mm256_loadu_pd((const double *)(const void *)(x + 8 * i));
}

INLINE void store4(char *out, int64_t i, __m256d v) {
    _mm256_storeu_pd((double *)(void *)(out + 8 * i), v);
}

INLINE void turn4(const char *x, char *out, __m256d c, __m256d w, int64_t i, int64_t pairs,
                  int in_layout, int out_layout) {
    __m256d a, b;
    if (in_layout == WHORL_HALF) {
        a = load4(x, i);
        b = load4(x, i + pairs);
    } else {
        const __m256d v0 = load4(x, 2 * i), v1 = load4(x, 2 * i + 4);
        a = _mm256_permute4x64_pd(_mm256_unpacklo_pd(v0, v1), 0xd8);
        b = _mm256_permute4x64_pd(_mm256_unpackhi_pd(v0, v1), 0xd8);
    }
    const __m256d ra = _mm256_sub_pd(_mm256_mul_pd(a, c), _mm256_mul_pd(b, w));
    const __m256d rb = _mm256_add_pd(_mm256_mul_pd(b, c), _mm256_mul_pd(a, w));
    if (out_layout == WHORL_HALF) {
        store4(out, i, ra);
        store4(out, i + pairs, rb);
    } else {
        const __m256d low = _mm256_unpacklo_pd(ra, rb), high = _mm256_unpackhi_pd(ra, rb);
        store4(out, 2 * i, _mm256_permute2f128_pd(low, high, 0x20));
        store4(out, 2 * i + 4, _mm256_permute2f128_pd(low, high, 0x31));
    }
}

/* Pairs i .. i + 3 of `heads` vectors, in double. */
INLINE void rotate4(const whorl_span *s, const char *x, char *out, const char *row, int64_t i,
                    int heads, int in_layout, int out_layout) {
    const __m256d sign = s->negate ? _mm256_set1_pd(-0.0) : _mm256_setzero_pd();
    const __m256d c = load4(row, i), w = _mm256_xor_pd(load4(row, i + s->pairs), sign);
    for (int g = 0; g < heads; g++)
        turn4(x + g * s->x_head, out + g * s->out_head, c, w, i, s->pairs, in_layout, out_layout);
}

/* `heads` vectors, a constant, that share one table row. */
INLINE void rotate_row(const whorl_span *s, const char *x, char *out, const char *row, int heads,
                       int dtype, int in_layout, int out_layout) {
    const int wide = dtype == WHORL_BF16 && in_layout == WHORL_HALF && out_layout == WHORL_HALF;
    int64_t i = 0;
    for (int g = 0; g < heads; g++)
        whorl_pass_through(s, x + g * s->x_head, out + g * s->out_head);
    x += s->head_bytes;
    out += s->head_bytes;
    for (; wide && i + 16 <= s->pairs; i += 16)
        rotate16_bf16(s, x, out, row, i, heads);
    for (; dtype == WHORL_F64 && i + 4 <= s->pairs; i += 4)
        rotate4(s, x, out, row, i, heads, in_layout, out_layout);
    for (; dtype != WHORL_F64 && i + 8 <= s->pairs; i += 8)
        rotate8(s, x, out, row, i, heads, dtype, in_layout, out_layout);
    for (; i < s->pairs; i++)
        for (int g = 0; g < heads; g++)
            whorl_rotate_pair(x + g * s->x_head, out + g * s->out_head, row, i, s, dtype, in_layout,
                              out_layout);
}

INLINE void span(const whorl_span *s, int dtype, int in_layout, int out_layout) {
    for (int64_t j = 0; j < s->count; j++) {
        const char *x = s->x + j * s->x_step, *row = whorl_span_row(s, j);
        char *out = s->out + j * s->out_step;
        int64_t g = 0;
        for (; g + 4 <= s->group; g += 4)
            rotate_row(s, x + g * s->x_head, out + g * s->out_head, row, 4, dtype, in_layout,
                       out_layout);
        for (; g < s->group; g++)
            rotate_row(s, x + g * s->x_head, out + g * s->out_head, row, 1, dtype, in_layout,
                       out_layout);
    }
}

SPANS(WHORL_F32)
SPANS(WHORL_F64)
SPANS(WHORL_BF16)
SPANS(WHORL_F16)

whorl_span_fn whorl_avx2_span(int64_t dtype, int64_t in_layout, int64_t out_layout) {
    static const whorl_span_fn spans[4][2][2] = {SPAN_NAMES(WHORL_F32), SPAN_NAMES(WHORL_F64),
                                                 SPAN_NAMES(WHORL_BF16), SPAN_NAMES(WHORL_F16)};
    return spans[dtype][in_layout][out_layout];
}
