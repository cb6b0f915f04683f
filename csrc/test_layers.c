/* Layers against long double, for every width around the lanes, and jobs that must be refused. */
#include "test.h"

#include <stdlib.h>

enum { ROWS = 300, WIDEST = 40 }; /* two blocks of rows */

static float number(uint64_t *state) {
    return (float)((double)(random_bits(state) >> 11) * 0x1p-53 * 8.0 - 4.0);
}

static int near(float found, long double wanted) {
    return fabsl((long double)found - wanted) <= 2e-6L * (1.0L + fabsl(wanted));
}

static void one_norm(whorl_layer job, const float *g, const char *name) {
    float y[WIDEST], r, dx[WIDEST], dw[WIDEST];
    job.roots = &r;
    job.out = y;
    check(whorl_run_layer(&job) == WHORL_OK, name, "norm runs");
    long double square = 0, dot = 0;
    for (int64_t i = 0; i < job.width; i++)
        square += (long double)job.x[i] * job.x[i];
    const long double root = 1.0L / sqrtl(square / job.width + job.eps);
    check(near(r, root), name, "root");
    for (int64_t i = 0; i < job.width; i++) {
        check(near(y[i], job.x[i] * root * job.weight[i]), name, "norm");
        dot += (long double)g[i] * job.weight[i] * job.x[i];
    }
    job.back = 1;
    job.gradient = g;
    job.out = dx;
    job.weight_gradient = dw;
    check(whorl_run_layer(&job) == WHORL_OK, name, "norm runs back");
    for (int64_t i = 0; i < job.width; i++) {
        const long double mean = dot * root * root / job.width;
        check(near(dx[i], root * (g[i] * job.weight[i] - job.x[i] * mean)), name, "gradient of x");
        check(near(dw[i], g[i] * job.x[i] * root), name, "gradient of the weight");
    }
}

static void one_swiglu(whorl_layer job, const float *g, const char *name) {
    float y[WIDEST], dx[2 * WIDEST];
    const int64_t inner = job.width / 2;
    job.out = y;
    check(whorl_run_layer(&job) == WHORL_OK, name, "swiglu runs");
    job.back = 1;
    job.gradient = g;
    job.out = dx;
    check(whorl_run_layer(&job) == WHORL_OK, name, "swiglu runs back");
    for (int64_t i = 0; i < inner; i++) {
        const long double gate = job.x[i], up = job.x[inner + i], s = 1.0L / (1.0L + expl(-gate));
        check(near(y[i], gate * s * up), name, "swiglu");
        check(near(dx[i], g[i] * up * s * (1.0L + gate * (1.0L - s))), name, "gradient of gate");
        check(near(dx[inner + i], g[i] * gate * s), name, "gradient of up");
    }
}

static void test_widths(int64_t isa, const char *name) {
    uint64_t state = 7;
    float x[2 * WIDEST], w[WIDEST], g[WIDEST];
    for (int64_t width = 1; width <= WIDEST; width++) {
        for (int64_t i = 0; i < 2 * WIDEST; i++)
            x[i] = number(&state);
        for (int64_t i = 0; i < WIDEST; i++)
            w[i] = number(&state), g[i] = number(&state);
        whorl_layer job = {.rows = 1, .width = width, .threads = 1, .isa = isa, .eps = 1e-5};
        job.x = x;
        job.weight = w;
        one_norm(job, g, name);
        job.kind = WHORL_SWIGLU;
        job.width = 2 * width;
        one_swiglu(job, g, name);
    }
}

/* Numbers that exp cannot hold, and NaN, which must stay one. */
static void test_extremes(int64_t isa, const char *name) {
    float x[16] = {-200.0f, 200.0f, NAN, -0.0f, 1e-30f, -88.5f, 88.5f, -INFINITY}, y[8];
    for (int i = 8; i < 16; i++)
        x[i] = 1.0f;
    whorl_layer job = {.kind = WHORL_SWIGLU, .rows = 1, .width = 16, .threads = 1, .isa = isa};
    job.x = x;
    job.out = y;
    check(whorl_run_layer(&job) == WHORL_OK, name, "extremes run");
    check(fabsf(y[0]) < 1e-30f && y[1] == 200.0f && isnan(y[2]) && y[3] == 0.0f, name, "extremes");
    check(near(y[4], 0.5e-30L) && fabsf(y[5]) < 1e-30f && y[6] == 88.5f, name, "extremes");
}

/* One thread and many give the same bits, and sums over blocks are those over rows. */
static void test_threads(void) {
    const int64_t width = 24;
    float *x = malloc(sizeof(float) * ROWS * 24), *g = malloc(sizeof(float) * ROWS * 24);
    float *dx = malloc(sizeof(float) * ROWS * 24), w[24], r[ROWS], one[2][24], many[2][24];
    uint64_t state = 9;
    for (int64_t i = 0; i < ROWS * width; i++)
        x[i] = number(&state), g[i] = number(&state);
    for (int64_t i = 0; i < width; i++)
        w[i] = number(&state);
    whorl_layer job = {.rows = ROWS, .width = width, .threads = 1, .eps = 1e-5};
    job.x = x, job.weight = w, job.roots = r, job.out = dx;
    check(whorl_run_layer(&job) == WHORL_OK, "threads", "norm");
    job.back = 1;
    job.gradient = g;
    job.weight_gradient = one[0];
    check(whorl_run_layer(&job) == WHORL_OK, "threads", "one");
    job.threads = 4;
    job.weight_gradient = many[0];
    check(whorl_run_layer(&job) == WHORL_OK, "threads", "many");
    check(!memcmp(one, many, sizeof one), "threads", "same bits");
    for (int64_t i = 0; i < width; i++) {
        long double sum = 0;
        for (int64_t n = 0; n < ROWS; n++)
            sum += (long double)g[n * width + i] * x[n * width + i] * r[n];
        check(fabsl(one[0][i] + one[1][i] - sum) < 1e-3L, "threads", "sum over rows");
    }
    free(x), free(g), free(dx);
}

static void test_refusals(void) {
    float x[4] = {0}, y[4];
    memset(y, PATTERN, sizeof y);
    const whorl_layer fine = {
        .kind = WHORL_SWIGLU, .rows = 1, .width = 4, .threads = 1, .x = x, .out = y};
    whorl_layer jobs[10];
    for (int n = 0; n < 10; n++)
        jobs[n] = fine;
    jobs[0].kind = 2, jobs[1].rows = -1, jobs[2].width = 3, jobs[3].threads = 0, jobs[4].x = NULL;
    jobs[5].out = NULL, jobs[6].back = 1, jobs[7].kind = WHORL_RMS_NORM, jobs[8].width = 0;
    jobs[9].rows = INT64_MAX;
    for (int n = 0; n < 10; n++)
        check(whorl_run_layer(&jobs[n]) == WHORL_BAD_JOB, "layers", "refuse a bad job");
    check(whorl_run_layer(NULL) == WHORL_BAD_JOB, "layers", "refuse no job");
    whorl_layer other = fine;
    other.isa = 99;
    check(whorl_run_layer(&other) == WHORL_NO_ISA, "layers", "refuse an unknown isa");
    check(all_pattern((const char *)y, sizeof y), "layers", "write nothing");
    other = fine;
    other.rows = 0, other.x = NULL;
    check(whorl_run_layer(&other) == WHORL_OK, "layers", "no rows");
}

void test_layers(void) {
    test_widths(WHORL_SCALAR, "scalar");
    test_extremes(WHORL_SCALAR, "scalar");
    if (whorl_best_isa() == WHORL_AVX2) {
        test_widths(WHORL_AVX2, "avx2");
        test_extremes(WHORL_AVX2, "avx2");
    }
    test_threads();
    test_refusals();
}
