/* Scores by distance, against their definition. */
#include "test.h"

#include <stdlib.h>

enum { N = 2, MOST = 150 };

typedef struct {
    int64_t T, S, R, C;
    int even;  /* buckets as DeBERTa's, else any */
    int terms; /* 1: by query, 2: by key, 3: both */
} shape;

static double read_number(const char *memory, int64_t at, int64_t dtype) {
    return dtype == WHORL_F32 ? ((const float *)(const void *)memory)[at]
                              : ((const double *)(const void *)memory)[at];
}

static void write_number(char *memory, int64_t at, int64_t dtype, double value) {
    if (dtype == WHORL_F32)
        ((float *)(void *)memory)[at] = (float)value;
    else
        ((double *)(void *)memory)[at] = value;
}

/* Small whole numbers, whose sums are exact in any order. */
static void fill_numbers(char *memory, int64_t count, int64_t dtype, uint64_t *state) {
    for (int64_t i = 0; i < count; i++)
        write_number(memory, i, dtype, (double)(random_bits(state) % 1000) - 500);
}

static void fill_index(int32_t *index, int64_t length, int64_t buckets, int even, uint64_t *state) {
    int64_t now = buckets - 1;
    for (int64_t j = 0; j < length; j++) {
        index[j] = (int32_t)(even ? now : (int64_t)(random_bits(state) % (uint64_t)buckets));
        const int near = j > length / 3 && j < 2 * length / 3;
        if (now && (near || random_bits(state) % 12 == 0)) now--;
    }
}

typedef struct {
    char *by_query, *by_key, *out;
    int32_t query_index[2 * MOST], key_index[2 * MOST];
    int64_t sizes[3], stride; /* elements; a matrix of by_key may be part of a longer one */
} memory;

static memory new_memory(const shape *c, uint64_t *state) {
    memory m = {.stride = (c->S + 3) * c->C};
    m.sizes[0] = N * c->T * c->R;
    m.sizes[1] = N * m.stride;
    m.sizes[2] = N * c->T * c->S;
    m.by_query = malloc((size_t)m.sizes[0] * 8);
    m.by_key = malloc((size_t)m.sizes[1] * 8);
    m.out = malloc((size_t)m.sizes[2] * 8);
    fill_index(m.query_index, c->T + c->S - 1, c->R, c->even, state);
    fill_index(m.key_index, c->T + c->S - 1, c->C, c->even, state);
    return m;
}

static void free_memory(memory *m) {
    free(m->by_query);
    free(m->by_key);
    free(m->out);
}

static whorl_scores make_job(const shape *c, memory *m, int64_t dtype, int64_t isa,
                             int64_t threads) {
    whorl_scores job = {.dtype = dtype, .matrices = N, .queries = c->T, .keys = c->S};
    if (c->terms & 1) {
        job.by_query = m->by_query;
        job.query_buckets = c->R;
        job.query_index = m->query_index;
    }
    if (c->terms & 2) {
        job.by_key = m->by_key;
        job.key_buckets = c->C;
        job.key_index = m->key_index;
        job.key_stride = m->stride;
    }
    job.out = m->out;
    job.threads = threads;
    job.isa = isa;
    return job;
}

static void test_gather(const shape *c, memory *m, whorl_scores *job, uint64_t *state) {
    fill_numbers(m->by_query, m->sizes[0], job->dtype, state);
    fill_numbers(m->by_key, m->sizes[1], job->dtype, state);
    check(whorl_gather_scores(job) == WHORL_OK, "gather scores", "status");
    int right = 1;
    for (int64_t n = 0; n < N; n++)
        for (int64_t t = 0; t < c->T; t++)
            for (int64_t s = 0; s < c->S; s++) {
                const int64_t j = s - t + c->T - 1;
                double want = 0;
                if (c->terms & 1)
                    want += read_number(m->by_query, (n * c->T + t) * c->R + m->query_index[j],
                                        job->dtype);
                if (c->terms & 2)
                    want += read_number(m->by_key, n * m->stride + s * c->C + m->key_index[j],
                                        job->dtype);
                right &= read_number(m->out, (n * c->T + t) * c->S + s, job->dtype) == want;
            }
    check(right, "gather scores", "definition");
}

static void test_scatter(const shape *c, memory *m, whorl_scores *job, uint64_t *state) {
    double *by_query = calloc((size_t)m->sizes[0], 8), *by_key = calloc((size_t)m->sizes[1], 8);
    memset(m->by_query, 0, (size_t)m->sizes[0] * 8);
    memset(m->by_key, 0, (size_t)m->sizes[1] * 8);
    fill_numbers(m->out, m->sizes[2], job->dtype, state);
    check(whorl_scatter_scores(job) == WHORL_OK, "scatter scores", "status");
    for (int64_t n = 0; n < N; n++)
        for (int64_t t = 0; t < c->T; t++)
            for (int64_t s = 0; s < c->S; s++) {
                const int64_t j = s - t + c->T - 1;
                const double g = read_number(m->out, (n * c->T + t) * c->S + s, job->dtype);
                if (c->terms & 1) by_query[(n * c->T + t) * c->R + m->query_index[j]] += g;
                if (c->terms & 2) by_key[n * m->stride + s * c->C + m->key_index[j]] += g;
            }
    int right = 1;
    for (int64_t i = 0; i < m->sizes[0]; i++)
        right &= read_number(m->by_query, i, job->dtype) == by_query[i];
    for (int64_t i = 0; i < m->sizes[1]; i++)
        right &= read_number(m->by_key, i, job->dtype) == by_key[i];
    check(right, "scatter scores", "definition");
    free(by_query);
    free(by_key);
}

static void test_bad_jobs(void) {
    uint64_t state = 7;
    const shape c = {5, 9, 6, 7, 1, 3};
    memory m = new_memory(&c, &state);
    const whorl_scores good = make_job(&c, &m, WHORL_F32, WHORL_AUTO, 1);
    memset(m.out, PATTERN, (size_t)m.sizes[2] * 8);
    check(whorl_gather_scores(NULL) == WHORL_BAD_JOB, "scores", "no job");
    whorl_scores job = good;
    job.dtype = WHORL_BF16;
    check(whorl_gather_scores(&job) == WHORL_BAD_JOB, "scores", "dtype");
    job = good;
    job.threads = 0;
    check(whorl_gather_scores(&job) == WHORL_BAD_JOB, "scores", "threads");
    job = good;
    job.keys = -1;
    check(whorl_gather_scores(&job) == WHORL_BAD_JOB, "scores", "size");
    job = good;
    job.matrices = -1;
    check(whorl_gather_scores(&job) == WHORL_BAD_JOB, "scores", "matrices");
    job = good;
    job.key_stride = c.S * c.C - 1;
    check(whorl_scatter_scores(&job) == WHORL_BAD_JOB, "scores", "matrices that overlap");
    job = good;
    job.out = NULL;
    check(whorl_gather_scores(&job) == WHORL_BAD_JOB, "scores", "no memory");
    job = good;
    job.key_index = NULL;
    check(whorl_gather_scores(&job) == WHORL_BAD_JOB, "scores", "no index");
    job = good;
    job.isa = 77;
    check(whorl_gather_scores(&job) == WHORL_NO_ISA, "scores", "instruction set");
    job = good;
    job.keys = 0;
    check(whorl_gather_scores(&job) == WHORL_OK, "scores", "no keys");
    for (int which = 0; which < 2; which++) {
        int32_t *index = which ? m.key_index : m.query_index, was = index[12];
        for (int bad = 0; bad < 2; bad++) {
            index[12] = bad ? -1 : (int32_t)(which ? c.C : c.R);
            check(whorl_gather_scores(&good) == WHORL_BAD_ROW, "scores", "bucket not there");
            check(whorl_scatter_scores(&good) == WHORL_BAD_ROW, "scores", "bucket not there");
        }
        index[12] = was;
    }
    check(all_pattern(m.out, m.sizes[2] * 8), "scores", "nothing written");
    check(whorl_gather_scores(&good) == WHORL_OK, "scores", "a good job");
    free_memory(&m);
}

void test_scores(void) {
    const int64_t lengths[][2] = {{1, 1},   {1, 40},  {40, 1},   {7, 8},
                                  {40, 40}, {13, 33}, {19, 150}, {150, 19}};
    uint64_t state = 88172645463325252;
    for (unsigned n = 0; n < sizeof lengths / sizeof *lengths; n++)
        for (int even = 0; even < 2; even++)
            for (int terms = 1; terms < 4; terms++) {
                const shape c = {lengths[n][0], lengths[n][1], 21, 17, even, terms};
                memory m = new_memory(&c, &state);
                for (int64_t dtype = WHORL_F32; dtype <= WHORL_F64; dtype++)
                    for (int64_t isa = WHORL_SCALAR; isa <= whorl_best_isa(); isa++)
                        for (int64_t threads = 1; threads < 4; threads += 2) {
                            whorl_scores job = make_job(&c, &m, dtype, isa, threads);
                            test_gather(&c, &m, &job, &state);
                            test_scatter(&c, &m, &job, &state);
                        }
                free_memory(&m);
            }
    test_bad_jobs();
}
