/* Scores by distance: validation, loop order and threads. The arithmetic is in scores.h. */
#include "scores_tile.h"

#ifdef _OPENMP
#include <omp.h>
#endif

/* A binding fills a job with one packed array of 14 numbers, pointers among them. */
_Static_assert(sizeof(whorl_scores) == 14 * 8, "whorl_scores must be 14 packed numbers");

static const int64_t ITEM_BYTES[] = {4, 8};

/* Keys that all queries meet before the next ones: the terms of so few keys stay in the L1 cache. A
 * multiple of LANES, the keys and queries that AVX2 takes together. */
enum { TILE = 64, LANES = 8 };

#define REAL float
#define WHORL_SCORES(name) float_##name
#include "scores.h"
#undef REAL
#undef WHORL_SCORES
#define REAL double
#define WHORL_SCORES(name) double_##name
#include "scores.h"

typedef struct {
    const whorl_scores *job;
    whorl_score_fn plain;
    whorl_score_fn fast; /* or NULL */
    int scatter;
} plan;

static int has_bad_buckets(const int32_t *index, int64_t length, int64_t buckets) {
    for (int64_t j = 0; j < length; j++)
        if (index[j] < 0 || index[j] >= buckets) return 1;
    return 0;
}

static int64_t validate(const whorl_scores *job) {
    if (job->dtype < WHORL_F32 || job->dtype > WHORL_F64) return WHORL_BAD_JOB;
    if (job->matrices < 0 || job->queries < 0 || job->keys < 0) return WHORL_BAD_JOB;
    if (job->query_buckets < 0 || job->key_buckets < 0) return WHORL_BAD_JOB;
    if (job->threads < 1 || job->threads > INT32_MAX) return WHORL_BAD_JOB;
    if (!job->matrices || !job->queries || !job->keys) return WHORL_OK;
    if (job->queries > INT64_MAX - job->keys || !job->out) return WHORL_BAD_JOB;
    /* Matrices apart from each other, as threads write to several at a time. */
    if (job->by_key && job->matrices > 1 && job->key_stride / job->keys < job->key_buckets)
        return WHORL_BAD_JOB;
    if (!job->by_query != !job->query_index || !job->by_key != !job->key_index)
        return WHORL_BAD_JOB;
    const int64_t length = job->queries + job->keys - 1;
    if (job->by_query && has_bad_buckets(job->query_index, length, job->query_buckets))
        return WHORL_BAD_ROW;
    if (job->by_key && has_bad_buckets(job->key_index, length, job->key_buckets))
        return WHORL_BAD_ROW;
    return WHORL_OK;
}

/* Whether AVX2 can read a term: an index that stays or falls by one, and no bucket too few. */
static int is_even(const int32_t *index, int64_t length, int64_t buckets) {
    for (int64_t j = 1; index && j < length; j++)
        if (index[j] > index[j - 1] || index[j] < index[j - 1] - 1) return 0;
    return !index || buckets >= LANES;
}

/* All queries with a tile of keys: as many as the fast function takes, then the rest. */
static void run_tile(const plan *p, whorl_score_tile tile, int64_t s) {
    const int64_t end = tile.keys - s < TILE ? tile.keys : s + TILE;
    const int64_t most_queries = p->fast ? tile.queries / LANES * LANES : 0;
    const int64_t most_keys = p->fast ? s + (end - s) / LANES * LANES : s;
    tile.first_query = 0;
    tile.last_query = most_queries;
    tile.first_key = s;
    tile.last_key = most_keys;
    if (p->fast) p->fast(&tile);
    tile.first_key = most_keys;
    tile.last_key = end;
    p->plain(&tile);
    tile.first_query = most_queries;
    tile.last_query = tile.queries;
    tile.first_key = s;
    p->plain(&tile);
}

/* All gradients: those of as many tokens as the fast function takes, then the rest. */
static void scatter_fast(const plan *p, whorl_score_tile tile) {
    whorl_score_tile rest = tile;
    tile.last_query = tile.queries / LANES * LANES;
    tile.last_key = tile.keys / LANES * LANES;
    p->fast(&tile);
    rest.first_query = tile.last_query;
    rest.last_query = tile.queries;
    rest.last_key = tile.keys;
    rest.by_key = NULL;
    p->plain(&rest);
    rest.first_query = 0;
    rest.first_key = tile.last_key;
    rest.by_query = NULL;
    rest.by_key = tile.by_key;
    p->plain(&rest);
}

/* A matrix is the work of one thread, because its queries add to the same sums by key, and its keys
 * to the same sums by query. */
static void run_matrices(const plan *p, int64_t n, int64_t end) {
    const whorl_scores *job = p->job;
    const int64_t item = ITEM_BYTES[job->dtype], by_query = job->queries * job->query_buckets;
    for (; n < end; n++) {
        const whorl_score_tile tile = {
            .queries = job->queries,
            .keys = job->keys,
            .by_query = job->by_query ? (char *)job->by_query + n * by_query * item : NULL,
            .by_key = job->by_key ? (char *)job->by_key + n * job->key_stride * item : NULL,
            .out = (char *)job->out + n * job->queries * job->keys * item,
            .query_buckets = job->query_buckets,
            .key_buckets = job->key_buckets,
            .query_index = job->query_index,
            .key_index = job->key_index,
        };
        if (p->scatter && p->fast) {
            scatter_fast(p, tile);
            continue;
        }
        for (int64_t s = 0; s < job->keys; s += TILE)
            run_tile(p, tile, s);
    }
}

static void run(const plan *p) {
    const whorl_scores *job = p->job;
#ifdef _OPENMP
    const int64_t most = omp_get_max_threads();
    const int64_t threads = job->threads < most ? job->threads : most;
    if (threads > 1) {
#pragma omp parallel num_threads((int)threads)
        {
            const int64_t n = omp_get_thread_num(), all = omp_get_num_threads();
            const int64_t share = job->matrices / all, more = job->matrices % all;
            const int64_t begin = n * share + (n < more ? n : more);
            run_matrices(p, begin, begin + share + (n < more));
        }
        return;
    }
#endif
    run_matrices(p, 0, job->matrices);
}

static int64_t run_job(const whorl_scores *given, int scatter) {
    if (!given) return WHORL_BAD_JOB;
    const whorl_scores job = *given; /* what is checked is what is used */
    const int64_t status = validate(&job);
    if (status != WHORL_OK || !job.matrices || !job.queries || !job.keys) return status;
    const int64_t isa = job.isa == WHORL_AUTO ? whorl_best_isa() : job.isa;
    if (isa != WHORL_SCALAR && (isa != WHORL_AVX2 || whorl_best_isa() != WHORL_AVX2))
        return WHORL_NO_ISA;
    plan p = {.job = &job, .scatter = scatter};
    if (job.dtype == WHORL_F32)
        p.plain = scatter ? float_scatter : float_gather;
    else
        p.plain = scatter ? double_scatter : double_gather;
#if defined(WHORL_HAVE_AVX2)
    const int64_t length = job.queries + job.keys - 1;
    const int few =
        job.query_buckets <= WHORL_MOST_BUCKETS && job.key_buckets <= WHORL_MOST_BUCKETS;
    if (isa == WHORL_AVX2 && job.dtype == WHORL_F32 && (few || !scatter) &&
        is_even(job.query_index, length, job.query_buckets) &&
        is_even(job.key_index, length, job.key_buckets))
        p.fast = scatter ? whorl_scatter_avx2 : whorl_gather_avx2;
#endif
    run(&p);
    return WHORL_OK;
}

int64_t whorl_gather_scores(const whorl_scores *job) { return run_job(job, 0); }

int64_t whorl_scatter_scores(const whorl_scores *job) { return run_job(job, 1); }
