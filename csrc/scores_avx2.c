/* Scores by distance in float32, eight queries and eight keys at a time; the same bits as scores.h.
 *
 * Eight neighbouring entries of an index name buckets that are at most seven apart: one load and
 * one permutation then give eight terms. Those of a key are of eight queries, and must be
 * transposed. */
#include "scores_tile.h"

#include <immintrin.h>

enum { LANES = 8 };

/* row[index[0]] .. row[index[7]], which fall by 0 or 1. */
INLINE __m256 read_terms(const float *row, const int32_t *index, int64_t buckets) {
    const int64_t last = index[LANES - 1], most = buckets - LANES;
    const int32_t base = (int32_t)(last < most ? last : most); /* no load past the row */
    const __m256i all = _mm256_loadu_si256((const __m256i *)(const void *)index);
    const __m256i lanes = _mm256_sub_epi32(all, _mm256_set1_epi32(base));
    return _mm256_permutevar8x32_ps(_mm256_loadu_ps(row + base), lanes);
}

INLINE void transpose(__m256 *x) {
    __m256 pairs[LANES], fours[LANES];
    for (int i = 0; i < LANES; i += 2) {
        pairs[i] = _mm256_unpacklo_ps(x[i], x[i + 1]);
        pairs[i + 1] = _mm256_unpackhi_ps(x[i], x[i + 1]);
    }
    for (int i = 0; i < LANES; i += 4) {
        fours[i] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0x44);
        fours[i + 1] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0xee);
        fours[i + 2] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0x44);
        fours[i + 3] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0xee);
    }
    for (int i = 0; i < LANES / 2; i++) {
        x[i] = _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x20);
        x[i + 4] = _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x31);
    }
}

void whorl_gather_avx2(const whorl_score_tile *tile) {
    const float *by_query = tile->by_query, *by_key = tile->by_key;
    float *out = tile->out;
    for (int64_t t = tile->first_query; t < tile->last_query; t += LANES)
        for (int64_t s = tile->first_key; s < tile->last_key; s += LANES) {
            /* Query t + 7 - i and key s + i begin at the same entry of an index. */
            const int64_t j = s - (t + LANES - 1) + tile->queries - 1, buckets = tile->key_buckets;
            __m256 sum[LANES];
            for (int i = 0; i < LANES; i++)
                sum[i] = by_key ? read_terms(by_key + (s + i) * buckets, tile->key_index + j + i,
                                             buckets)
                                : _mm256_setzero_ps();
            if (by_key) transpose(sum);
            for (int i = 0; i < LANES; i++) {
                const int64_t query = t + LANES - 1 - i;
                if (by_query) {
                    const float *row = by_query + query * tile->query_buckets;
                    const int32_t *index = tile->query_index + j + i;
                    sum[i] = _mm256_add_ps(read_terms(row, index, tile->query_buckets), sum[i]);
                }
                _mm256_storeu_ps(out + query * tile->keys + s, sum[i]);
            }
        }
}
