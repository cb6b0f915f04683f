/* Eight pairs (four in double) at a time with AVX2 and F16C; the same bits as pair.h, but
 * for the sign and the payload of a NaN.
 *
 * Multiplies and adds stay separate: fused ones would round differently from the scalar version
 * and from PyTorch's element-wise form.
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

INLINE __m256 load8(const char *x, int64_t i, int dtype) {
    if (dtype == WHORL_F32) return _mm256_loadu_ps((const float *)(const void *)(x + 4 * i));
    const __m128i h = _mm_loadu_si128((const __m128i *)(const void *)(x + 2 * i));
    if (dtype == WHORL_F16) return _mm256_cvtph_ps(h);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

/* To bf16, to nearest even, in the upper 16 bits; a NaN must become a quiet one. */
INLINE __m256i round_bf16(__m256 v) {
    const __m256i u = _mm256_castps_si256(v);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    const __m256i up = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd);
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(up, _mm256_set1_epi32(0x7fc00000), nan);
}

INLINE __m256i load_bits(const char *x) {
    return _mm256_loadu_si256((const __m256i *)(const void *)x);
}

INLINE void store_bits(char *out, __m256i v) { _mm256_storeu_si256((__m256i *)(void *)out, v); }

/* Sixteen bf16 as the eight in even and the eight in odd places: a shift and a mask. */
INLINE pairs8 even_odd(__m256i v) {
    const __m256i odd = _mm256_and_si256(v, _mm256_set1_epi32((int)0xffff0000));
    return (pairs8){_mm256_castsi256_ps(_mm256_slli_epi32(v, 16)), _mm256_castsi256_ps(odd)};
}

/* The upper halves of the lanes, each even one before its odd one. */
INLINE __m256i weave_bf16(__m256i even, __m256i odd) {
    return _mm256_blend_epi16(_mm256_srli_epi32(even, 16), odd, 0xaa);
}

INLINE void store_even_odd(char *out, __m256 even, __m256 odd) {
    store_bits(out, weave_bf16(round_bf16(even), round_bf16(odd)));
}

/* Rounding sixteen to bf16 with as few instructions as can be: ties go away from zero, which is
 * wrong for half of them, and a NaN of a table may be lost. So `doubts` collects the least of what
 * was left below the upper halves, which is 0 after a tie, and begins with 0 at such a NaN. Who
 * finds a doubt does it again with round_bf16. Of random numbers one in 65,536 is a tie. A NaN of
 * the input has nothing in its lower half and one that arises here is 0xffc00000: both stay. */
INLINE __m256i round_fast(__m256 even, __m256 odd, __m256i *doubts) {
    const __m256i half = _mm256_set1_epi32(0x8000);
    const __m256i e = _mm256_add_epi32(_mm256_castps_si256(even), half);
    const __m256i o = _mm256_add_epi32(_mm256_castps_si256(odd), half);
    *doubts = _mm256_min_epu16(*doubts, _mm256_min_epu16(e, o));
    return weave_bf16(e, o);
}

/* No doubts yet, but where one of these has a NaN. */
INLINE __m256i doubt_tables(__m256 c, __m256 w) {
    return _mm256_castps_si256(_mm256_cmp_ps(c, w, _CMP_ORD_Q));
}

INLINE int is_doubtful(__m256i doubts) {
    const __m256i zero = _mm256_cmpeq_epi16(doubts, _mm256_setzero_si256());
    return __builtin_expect(_mm256_movemask_epi8(zero) & 0x33333333, 0); /* the lower halves */
}

INLINE void store_bf16(char *out, pairs8 p, int64_t i, int64_t pairs, int layout) {
    if (layout == WHORL_INTERLEAVED) {
        store_even_odd(out + 4 * i, p.a, p.b);
        return;
    }
    const __m256i a = round_bf16(p.a), b = round_bf16(p.b);
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
    if (dtype == WHORL_BF16) return even_odd(load_bits(x + 4 * i));
    return split(load8(x, 2 * i, dtype), load8(x, 2 * i + 8, dtype));
}

INLINE void store_pairs(char *out, pairs8 p, int64_t i, int64_t pairs, int dtype, int layout) {
    if (dtype == WHORL_BF16) {
        store_bf16(out, p, i, pairs, layout);
    } else if (layout == WHORL_HALF) {
        store8(out, i, p.a, dtype);
        store8(out, i + pairs, p.b, dtype);
    } else {
        __m256 v0, v1;
        merge(p, &v0, &v1);
        store8(out, 2 * i, v0, dtype);
        store8(out, 2 * i + 8, v1, dtype);
    }
}

INLINE pairs8 rotate_pairs8(pairs8 p, __m256 c, __m256 w) {
    return (pairs8){_mm256_sub_ps(_mm256_mul_ps(p.a, c), _mm256_mul_ps(p.b, w)),
                    _mm256_add_ps(_mm256_mul_ps(p.b, c), _mm256_mul_ps(p.a, w))};
}

/* Pairs i .. i + 7 of `heads` vectors. All loads come before all stores, here and below: 8 %
 * faster, presumably because heads lie a multiple of 4 KiB apart and such a load waits for such a
 * store. */
INLINE void rotate8(const whorl_span *s, const char *x, char *out, const char *row, int64_t i,
                    int heads, int dtype, int in_layout, int out_layout) {
    const __m256 sign = s->negate ? _mm256_set1_ps(-0.0f) : _mm256_setzero_ps();
    const __m256 c = load8(row, i, WHORL_F32);
    const __m256 w = _mm256_xor_ps(load8(row, i + s->pairs, WHORL_F32), sign);
    pairs8 p[WHORL_GROUP];
    for (int g = 0; g < heads; g++)
        p[g] = load_pairs(x + g * s->x_head, i, s->pairs, dtype, in_layout);
    for (int g = 0; g < heads; g++)
        store_pairs(out + g * s->out_head, rotate_pairs8(p[g], c, w), i, s->pairs, dtype,
                    out_layout);
}

/* Eight channels a0 b0 a1 b1 ... with cos twice each and sin as -sin, sin: v c + swap(v) w. */
INLINE void rotate_woven(__m256 v, char *out, int64_t at, __m256 c, __m256 w, int dtype) {
    const __m256 swapped = _mm256_permute_ps(v, 0xb1);
    store8(out, at, _mm256_add_ps(_mm256_mul_ps(v, c), _mm256_mul_ps(swapped, w)), dtype);
}

/* Four floats, each twice. */
INLINE __m256 load_twice(const char *x, int64_t i) {
    const __m256i twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
    const __m256 both = _mm256_broadcast_ps((const __m128 *)(const void *)(x + 4 * i));
    return _mm256_permutevar_ps(both, twice);
}

/* Pairs i .. i + 7 of `heads` interleaved vectors: the tables are woven once for all of them. */
INLINE void rotate8_woven(const whorl_span *s, const char *x, char *out, const char *row, int64_t i,
                          int heads, int dtype) {
    const __m256 minus = _mm256_setr_ps(-0.0f, 0.0f, -0.0f, 0.0f, -0.0f, 0.0f, -0.0f, 0.0f);
    const __m256 plus = _mm256_setr_ps(0.0f, -0.0f, 0.0f, -0.0f, 0.0f, -0.0f, 0.0f, -0.0f);
    const __m256 sign = s->negate ? plus : minus;
    const char *sine = row + 4 * s->pairs;
    const __m256 c0 = load_twice(row, i), c1 = load_twice(row, i + 4);
    const __m256 w0 = _mm256_xor_ps(load_twice(sine, i), sign);
    const __m256 w1 = _mm256_xor_ps(load_twice(sine, i + 4), sign);
    pairs8 p[WHORL_GROUP];
    for (int g = 0; g < heads; g++)
        p[g] = (pairs8){load8(x + g * s->x_head, 2 * i, dtype),
                        load8(x + g * s->x_head, 2 * i + 8, dtype)};
    for (int g = 0; g < heads; g++) {
        rotate_woven(p[g].a, out + g * s->out_head, 2 * i, c0, w0, dtype);
        rotate_woven(p[g].b, out + g * s->out_head, 2 * i + 8, c1, w1, dtype);
    }
}

/* Sixteen floats as the eight in even and the eight in odd places. */
INLINE pairs8 load_split(const char *x, int64_t i) {
    const float *f = (const float *)(const void *)(x + 4 * i);
    const __m256 low = _mm256_castps128_ps256(_mm_loadu_ps(f));
    const __m256 high = _mm256_castps128_ps256(_mm_loadu_ps(f + 4));
    const __m256 v0 = _mm256_insertf128_ps(low, _mm_loadu_ps(f + 8), 1);
    const __m256 v1 = _mm256_insertf128_ps(high, _mm_loadu_ps(f + 12), 1);
    return (pairs8){_mm256_shuffle_ps(v0, v1, 0x88), _mm256_shuffle_ps(v0, v1, 0xdd)};
}

typedef struct {
    pairs8 even, odd;
} pairs16;

INLINE pairs16 rotate_even_odd(__m256i va, __m256i vb, pairs8 c, pairs8 w) {
    const pairs8 a = even_odd(va), b = even_odd(vb);
    return (pairs16){rotate_pairs8((pairs8){a.a, b.a}, c.a, w.a),
                     rotate_pairs8((pairs8){a.b, b.b}, c.b, w.b)};
}

/* Pairs i .. i + 15 of `heads` bf16 vectors in half layout; tables are sorted once for all. */
INLINE void rotate16_bf16(const whorl_span *s, const char *x, char *out, const char *row, int64_t i,
                          int heads) {
    const __m256 sign = s->negate ? _mm256_set1_ps(-0.0f) : _mm256_setzero_ps();
    const int64_t second = i + s->pairs;
    const pairs8 c = load_split(row, i), sine = load_split(row, second);
    const pairs8 w = {_mm256_xor_ps(sine.a, sign), _mm256_xor_ps(sine.b, sign)};
    __m256i va[WHORL_GROUP], vb[WHORL_GROUP];
    for (int g = 0; g < heads; g++) {
        va[g] = load_bits(x + g * s->x_head + 2 * i);
        vb[g] = load_bits(x + g * s->x_head + 2 * second);
    }
    __m256i doubts = _mm256_and_si256(doubt_tables(c.a, w.a), doubt_tables(c.b, w.b));
    for (int g = 0; g < heads; g++) {
        const pairs16 p = rotate_even_odd(va[g], vb[g], c, w);
        char *to = out + g * s->out_head;
        store_bits(to + 2 * i, round_fast(p.even.a, p.odd.a, &doubts));
        store_bits(to + 2 * second, round_fast(p.even.b, p.odd.b, &doubts));
    }
    if (!is_doubtful(doubts)) return;
    for (int g = 0; g < heads; g++) {
        const pairs16 p = rotate_even_odd(va[g], vb[g], c, w);
        char *to = out + g * s->out_head;
        store_even_odd(to + 2 * i, p.even.a, p.odd.a);
        store_even_odd(to + 2 * second, p.even.b, p.odd.b);
    }
}

/* Pairs i .. i + 7 of `heads` interleaved bf16 vectors. */
INLINE void rotate8_bf16(const whorl_span *s, const char *x, char *out, const char *row, int64_t i,
                         int heads) {
    const __m256 sign = s->negate ? _mm256_set1_ps(-0.0f) : _mm256_setzero_ps();
    const __m256 c = load8(row, i, WHORL_F32);
    const __m256 w = _mm256_xor_ps(load8(row, i + s->pairs, WHORL_F32), sign);
    __m256i v[WHORL_GROUP], doubts = doubt_tables(c, w);
    for (int g = 0; g < heads; g++)
        v[g] = load_bits(x + g * s->x_head + 4 * i);
    for (int g = 0; g < heads; g++) {
        const pairs8 p = rotate_pairs8(even_odd(v[g]), c, w);
        store_bits(out + g * s->out_head + 4 * i, round_fast(p.a, p.b, &doubts));
    }
    if (!is_doubtful(doubts)) return;
    for (int g = 0; g < heads; g++) {
        const pairs8 p = rotate_pairs8(even_odd(v[g]), c, w);
        store_even_odd(out + g * s->out_head + 4 * i, p.a, p.b);
    }
}

INLINE __m256d load4(const char *x, int64_t i) {
    return _mm256_loadu_pd((const double *)(const void *)(x + 8 * i));
}

INLINE void store4(char *out, int64_t i, __m256d v) {
    _mm256_storeu_pd((double *)(void *)(out + 8 * i), v);
}

INLINE void rotate_pairs4(const char *x, char *out, __m256d c, __m256d w, int64_t i, int64_t pairs,
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
        rotate_pairs4(x + g * s->x_head, out + g * s->out_head, c, w, i, s->pairs, in_layout,
                      out_layout);
}

/* The rotated channels of `heads` vectors, a constant, that share one table row. */
INLINE void rotate_row(const whorl_span *s, const char *x, char *out, const char *row, int heads,
                       int dtype, int in_layout, int out_layout) {
    const int wide = dtype == WHORL_BF16 && in_layout == WHORL_HALF && out_layout == WHORL_HALF;
    const int woven = (dtype == WHORL_F32 || dtype == WHORL_F16) &&
                      in_layout == WHORL_INTERLEAVED && out_layout == WHORL_INTERLEAVED;
    const int bf16 =
        dtype == WHORL_BF16 && in_layout == WHORL_INTERLEAVED && out_layout == WHORL_INTERLEAVED;
    int64_t i = 0;
    for (; wide && i + 16 <= s->pairs; i += 16)
        rotate16_bf16(s, x, out, row, i, heads);
    for (; bf16 && i + 8 <= s->pairs; i += 8)
        rotate8_bf16(s, x, out, row, i, heads);
    for (; woven && i + 8 <= s->pairs; i += 8)
        rotate8_woven(s, x, out, row, i, heads, dtype);
    for (; dtype == WHORL_F64 && i + 4 <= s->pairs; i += 4)
        rotate4(s, x, out, row, i, heads, in_layout, out_layout);
    for (; dtype != WHORL_F64 && i + 8 <= s->pairs; i += 8)
        rotate8(s, x, out, row, i, heads, dtype, in_layout, out_layout);
    for (; i < s->pairs; i++)
        for (int g = 0; g < heads; g++)
            whorl_rotate_pair(x + g * s->x_head, out + g * s->out_head, row, i, s, dtype, in_layout,
                              out_layout);
}

/* The channels that do not rotate, of the vectors at position j. Not inlined: mostly there is
 * nothing, and the registers are wanted for what is. */
static __attribute__((noinline)) void pass_through(const whorl_span *s, int64_t j) {
    const char *x = s->x + j * s->x_step;
    char *out = s->out + j * s->out_step;
    for (int64_t g = 0; g < s->group; g++)
        whorl_pass_through(s, x + g * s->x_head, out + g * s->out_head);
}

INLINE void span(const whorl_span *given, int dtype, int in_layout, int out_layout) {
    /* A copy that no store can reach: the compiler may then keep its members in registers. */
    const whorl_span copy = *given, *const s = &copy;
    const int partly = (s->head_bytes || s->tail_bytes) && s->x != s->out;
    for (int64_t j = 0; j < s->count; j++) {
        const char *x = s->x + s->head_bytes + j * s->x_step, *row = s->rows[j];
        char *out = s->out + s->head_bytes + j * s->out_step;
        if (partly) pass_through(given, j);
        if (s->group == WHORL_GROUP) { /* mostly; apart, it keeps its pointers in registers */
            rotate_row(s, x, out, row, WHORL_GROUP, dtype, in_layout, out_layout);
            continue;
        }
        int64_t g = 0;
        for (; g + WHORL_GROUP <= s->group; g += WHORL_GROUP)
            rotate_row(s, x + g * s->x_head, out + g * s->out_head, row, WHORL_GROUP, dtype,
                       in_layout, out_layout);
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
