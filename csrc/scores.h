/* Scores by distance for one REAL: plain loops, the specification.
 *
 * Included once for each REAL, with functions named by WHORL_SCORES(name).
 */

static void WHORL_SCORES(gather)(const whorl_score_tile *tile) {
    for (int64_t t = tile->first_query; t < tile->last_query; t++) {
        const REAL *by_query = tile->by_query, *by_key = tile->by_key;
        REAL *out = (REAL *)tile->out + t * tile->keys;
        for (int64_t s = tile->first_key; s < tile->last_key; s++) {
            const int64_t j = s - t + tile->queries - 1;
            const REAL a = by_query ? by_query[t * tile->query_buckets + tile->query_index[j]] : 0;
            const REAL b = by_key ? by_key[s * tile->key_buckets + tile->key_index[j]] : 0;
            out[s] = a + b;
        }
    }
}

static void WHORL_SCORES(scatter)(const whorl_score_tile *tile) {
    for (int64_t t = tile->first_query; t < tile->last_query; t++) {
        REAL *by_query = tile->by_query, *by_key = tile->by_key;
        const REAL *gradient = (const REAL *)tile->out + t * tile->keys;
        for (int64_t s = tile->first_key; s < tile->last_key; s++) {
            const int64_t j = s - t + tile->queries - 1;
            if (by_query) by_query[t * tile->query_buckets + tile->query_index[j]] += gradient[s];
            if (by_key) by_key[s * tile->key_buckets + tile->key_index[j]] += gradient[s];
        }
    }
}
