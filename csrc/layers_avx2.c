/* The rows of layers.h once more, compiled for AVX2: eight lanes are one register. */
#include "layers_rows.h"

#include <immintrin.h>

static __m256 fixed(float value) { return _mm256_set1_ps(value); }

/* exp(x) to 2 ulp, by exp(n ln 2 + r) = 2^n exp(r), |r| <= ln(2) / 2, between -87 and 88; NaN stays
 * one, because a comparison with it yields the second operand. */
static __m256 exp8(__m256 x) {
    x = _mm256_min_ps(fixed(88.0f), _mm256_max_ps(fixed(-87.0f), x));
    const __m256 n = _mm256_round_ps(_mm256_mul_ps(x, fixed(1.44269504f)),
                                     _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_sub_ps(x, _mm256_mul_ps(n, fixed(0.693359375f))); /* ln 2 in two parts */
    r = _mm256_add_ps(r, _mm256_mul_ps(n, fixed(2.12194440e-4f)));
    static const float terms[] = {1 / 720.0f, 1 / 120.0f, 1 / 24.0f, 1 / 6.0f, 0.5f, 1.0f, 1.0f};
    __m256 p = fixed(1 / 5040.0f);
    for (int i = 0; i < 7; i++)
        p = _mm256_add_ps(_mm256_mul_ps(p, r), fixed(terms[i]));
    const __m256i power = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(power, 23)));
}

static __m256 sigmoid8(__m256 x) {
    const __m256 e = exp8(_mm256_sub_ps(_mm256_setzero_ps(), x));
    return _mm256_div_ps(fixed(1.0f), _mm256_add_ps(fixed(1.0f), e));
}

static void gated(const float *gate, const float *up, float *out) {
    const __m256 x = _mm256_loadu_ps(gate);
    const __m256 a = _mm256_mul_ps(x, sigmoid8(x));
    _mm256_storeu_ps(out, _mm256_mul_ps(a, _mm256_loadu_ps(up)));
}

static void gated_back(const float *g, const float *gate, const float *up, float *d_gate,
                       float *d_up) {
    const __m256 x = _mm256_loadu_ps(gate), y = _mm256_loadu_ps(g), s = sigmoid8(x);
    const __m256 a = _mm256_mul_ps(x, s);
    const __m256 slope =
        _mm256_add_ps(s, _mm256_mul_ps(a, _mm256_sub_ps(fixed(1.0f), s))); /* of x sigmoid(x) */
    const __m256 into_gate = _mm256_mul_ps(_mm256_mul_ps(y, _mm256_loadu_ps(up)), slope);
    _mm256_storeu_ps(d_up, _mm256_mul_ps(y, a));
    _mm256_storeu_ps(d_gate, into_gate);
}

#define WHORL_ROW(name) whorl_##name##_avx2
#include "layers.h"

const whorl_layer_rows whorl_layer_rows_avx2 = {whorl_rms_norm_avx2, whorl_rms_norm_back_avx2,
                                                whorl_swiglu_avx2, whorl_swiglu_back_avx2};
