/* Scores by distance in float32, eight queries and eight keys at a time; the same bits as scores.h.
 *
 * Gathering: eight neighbouring entries of an index name buckets that are at most seven apart: one
 * load and one permutation then give eight terms. Those of a key are of eight queries, and must be
 * transposed.
 *
 * Scattering: eight tokens whose pairs have the same distance add to the same bucket, each to its
 * own sum. So the sums of eight tokens stand side by side while their pairs are added up. */
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

/* Sums of eight tokens, [buckets][8], read from their rows of terms or written back to them. */
INLINE void move_sums(float *sums, float *rows, int64_t stride, int64_t low, int64_t end, int to) {
    int64_t b = low;
    for (; b + LANES <= end; b += LANES) {
        __m256 x[LANES];
        for (int i = 0; i < LANES; i++)
            x[i] = _mm256_loadu_ps(to ? sums + (b + i) * LANES : rows + i * stride + b);
        transpose(x);
        for (int i = 0; i < LANES; i++)
            _mm256_storeu_ps(to ? rows + i * stride + b : sums + (b + i) * LANES, x[i]);
    }
    for (; b < end; b++)
        for (int i = 0; i < LANES; i++) {
            float *one = rows + i * stride + b, *other = sums + b * LANES + i;
            if (to)
                *one = *other;
            else
                *other = *one;
        }
}

INLINE void add_sums(float *sums, int64_t bucket, __m256 x) {
    float *place = sums + bucket * LANES;
    _mm256_storeu_ps(place, _mm256_add_ps(_mm256_loadu_ps(place), x));
}

/* Gradients of eight queries from t on, with all keys. Lane i is query t + i, which meets key
 * c + i in column c, at the same distance for all lanes. */
static void scatter_queries(const whorl_score_tile *tile, int64_t t, float *sums) {
    const int64_t keys = tile->keys, buckets = tile->query_buckets;
    const float *gradient = (const float *)tile->out + t * keys;
    float *rows = (float *)tile->by_query + t * buckets;
    const int32_t *index = tile->query_index + tile->queries - 1 - t; /* of column c: index[c] */
    const int64_t wide = keys - (LANES - 1); /* columns in which every lane has a key */
    for (int i = 1; i < LANES; i++)          /* lanes that begin before column 0 */
        for (int64_t s = 0; s < i && s < keys; s++)
            rows[i * buckets + index[s - i]] += gradient[i * keys + s];
    if (wide > 0) {
        const int64_t low = index[wide - 1], end = index[0] + 1;
        move_sums(sums, rows, buckets, low, end, 0);
        int64_t c = 0;
        for (; c + LANES <= wide; c += LANES) {
            __m256 x[LANES];
            for (int i = 0; i < LANES; i++)
                x[i] = _mm256_loadu_ps(gradient + i * keys + c + i);
            transpose(x);
            for (int i = 0; i < LANES; i++)
                add_sums(sums, index[c + i], x[i]);
        }
        for (; c < wide; c++) {
            float x[LANES];
            for (int i = 0; i < LANES; i++)
                x[i] = gradient[i * keys + c + i];
            add_sums(sums, index[c], _mm256_loadu_ps(x));
        }
        move_sums(sums, rows, buckets, low, end, 1);
    }
    for (int i = 0; i < LANES; i++) /* lanes that go on after the last wide column */
        for (int64_t s = wide > 0 ? wide + i : i; s < keys; s++)
            rows[i * buckets + index[s - i]] += gradient[i * keys + s];
}

/* Lane i of row i. */
INLINE __m256 take_diagonal(const float *gradient, int64_t keys) {
    __m256 x[LANES];
    for (int i = 0; i < LANES; i++)
        x[i] = _mm256_loadu_ps(gradient + i * keys);
    const __m256 a = _mm256_blend_ps(x[0], x[1], 0x02), b = _mm256_blend_ps(x[2], x[3], 0x08);
    const __m256 c = _mm256_blend_ps(x[4], x[5], 0x20), d = _mm256_blend_ps(x[6], x[7], 0x80);
    return _mm256_blend_ps(_mm256_blend_ps(a, b, 0x0c), _mm256_blend_ps(c, d, 0xc0), 0xf0);
}

/* Gradients of eight keys from s on, with all queries. Lane i is key s + i, which meets query
 * r + i in row r, at the same distance for all lanes. */
static void scatter_keys(const whorl_score_tile *tile, int64_t s, float *sums) {
    const int64_t keys = tile->keys, queries = tile->queries, buckets = tile->key_buckets;
    const float *gradient = (const float *)tile->out + s;
    float *rows = (float *)tile->by_key + s * buckets;
    const int32_t *index = tile->key_index + s + queries - 1; /* of row r: index[-r] */
    const int64_t wide = queries - (LANES - 1);
    for (int i = 1; i < LANES; i++)
        for (int64_t t = 0; t < i && t < queries; t++)
            rows[i * buckets + index[i - t]] += gradient[t * keys + i];
    if (wide > 0) {
        const int64_t low = index[0], end = index[1 - wide] + 1;
        move_sums(sums, rows, buckets, low, end, 0);
        for (int64_t r = 0; r < wide; r++)
            add_sums(sums, index[-r], take_diagonal(gradient + r * keys, keys));
        move_sums(sums, rows, buckets, low, end, 1);
    }
    for (int i = 0; i < LANES; i++)
        for (int64_t t = wide > 0 ? wide + i : i; t < queries; t++)
            rows[i * buckets + index[i - t]] += gradient[t * keys + i];
}

void whorl_scatter_avx2(const whorl_score_tile *tile) {
    float sums[WHORL_MOST_BUCKETS * LANES];
    for (int64_t t = tile->first_query; tile->by_query && t < tile->last_query; t += LANES)
        scatter_queries(tile, t, sums);
    for (int64_t s = tile->first_key; tile->by_key && s < tile->last_key; s += LANES)
        scatter_keys(tile, s, sums);
}
