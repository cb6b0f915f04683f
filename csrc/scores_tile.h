/* Internal: what the loop in scores.c hands to the instruction-set specific code. */
#ifndef WHORL_SCORES_TILE_H
#define WHORL_SCORES_TILE_H

#include "span.h"

/* Some queries and some keys of one matrix; names as in whorl_scores. */
typedef struct {
    int64_t queries, keys;
    void *by_query, *by_key, *out;
    int64_t query_buckets, key_buckets;
    const int32_t *query_index, *key_index;
    int64_t first_query, last_query; /* the one after the last */
    int64_t first_key, last_key;
} whorl_score_tile;

typedef void (*whorl_score_fn)(const whorl_score_tile *);

/* float32 with AVX2. The numbers of queries and keys in the tile are multiples of 8, each term has
 * at least 8 buckets, and from j to j + 1 a bucket stays or falls by one. */
void whorl_gather_avx2(const whorl_score_tile *tile);

/* The same for gradients, with at most so many buckets: queries of the tile with all keys for
 * by_query, then keys of the tile with all queries for by_key. */
enum { WHORL_MOST_BUCKETS = 1024 };
void whorl_scatter_avx2(const whorl_score_tile *tile);

#endif
