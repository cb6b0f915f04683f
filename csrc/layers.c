/* The two layers between matrices that a small Transformer spends time on: see whorl.h. */
#include "layers_rows.h"

#ifdef _OPENMP
#include <omp.h>
#endif
#include <math.h>
#include <string.h>

static void gated(const float *gate, const float *up, float *out) {
    for (int l = 0; l < LANES; l++)
        out[l] = gate[l] / (1.0f + expf(-gate[l])) * up[l];
}

static void gated_back(const float *g, const float *gate, const float *up, float *d_gate,
                       float *d_up) {
    for (int l = 0; l < LANES; l++) {
        const float s = 1.0f / (1.0f + expf(-gate[l])), a = gate[l] * s;
        d_up[l] = g[l] * a;
        d_gate[l] = g[l] * up[l] * (s + a * (1.0f - s));
    }
}

#define WHORL_ROW(name) whorl_##name##_scalar
#include "layers.h"

static const whorl_layer_rows SCALAR = {whorl_rms_norm_scalar, whorl_rms_norm_back_scalar,
                                        whorl_swiglu_scalar, whorl_swiglu_back_scalar};

static const whorl_layer_rows *rows_of(int64_t isa) {
    if (isa == WHORL_AUTO) isa = whorl_best_isa();
    if (isa == WHORL_SCALAR) return &SCALAR;
#if defined(WHORL_HAVE_AVX2)
    if (isa == WHORL_AVX2 && whorl_best_isa() == WHORL_AVX2) return &whorl_layer_rows_avx2;
#endif
    return NULL;
}

static int64_t validate(const whorl_layer *job) {
    if (job->rows < 0 || job->width < 1 || job->threads < 1) return WHORL_BAD_JOB;
    if (job->kind != WHORL_RMS_NORM && job->kind != WHORL_SWIGLU) return WHORL_BAD_JOB;
    if (job->kind == WHORL_SWIGLU && job->width % 2) return WHORL_BAD_JOB;
    if (job->rows > INT64_MAX / 4 / job->width) return WHORL_BAD_JOB;
    if (!job->rows) return WHORL_OK;
    if (!job->x || !job->out || (job->back && !job->gradient)) return WHORL_BAD_JOB;
    if (job->kind == WHORL_RMS_NORM) {
        if (!job->weight || !job->roots) return WHORL_BAD_JOB;
        if (job->back && !job->weight_gradient) return WHORL_BAD_JOB;
    }
    return WHORL_OK;
}

/* Rows [first, last); what is added up over rows goes to `sums`. */
static void do_rows(const whorl_layer *job, const whorl_layer_rows *rows, int64_t first,
                    int64_t last, float *sums) {
    const int64_t E = job->width, inner = E / 2;
    for (int64_t n = first; n < last; n++) {
        const float *x = job->x + n * E;
        if (job->kind == WHORL_SWIGLU && job->back)
            rows->swiglu_back(job->gradient + n * inner, x, job->out + n * E, inner);
        else if (job->kind == WHORL_SWIGLU)
            rows->swiglu(x, job->out + n * inner, inner);
        else if (job->back)
            rows->rms_norm_back(job->gradient + n * E, x, job->weight, job->roots[n],
                                job->out + n * E, sums, E);
        else
            job->roots[n] = rows->rms_norm(x, job->weight, job->out + n * E, E, (float)job->eps);
    }
}

/* Blocks of rows, so that sums come out the same whatever the number of threads: each block has
 * sums of its own, which are added up in order. */
int64_t whorl_run_layer(const whorl_layer *given) {
    if (!given) return WHORL_BAD_JOB;
    const whorl_layer copy = *given, *const job = &copy; /* what is checked is what is used */
    const int64_t status = validate(job);
    if (status != WHORL_OK) return status;
    const whorl_layer_rows *rows = rows_of(job->isa);
    if (!rows) return WHORL_NO_ISA;
    if (!job->rows) return WHORL_OK; /* there may be no memory either */
    const int64_t blocks = job->rows / WHORL_LAYER_BLOCK + (job->rows % WHORL_LAYER_BLOCK != 0);
    const int sums = job->kind == WHORL_RMS_NORM && job->back;
    if (sums) memset(job->weight_gradient, 0, (size_t)(blocks * job->width) * sizeof(float));
#ifdef _OPENMP
    const int64_t most = omp_get_max_threads(), threads = job->threads < most ? job->threads : most;
#pragma omp parallel for schedule(static) num_threads((int)threads) if (threads > 1)
#endif
    for (int64_t b = 0; b < blocks; b++) {
        const int64_t first = b * WHORL_LAYER_BLOCK, left = job->rows - first;
        const int64_t last = first + (left < WHORL_LAYER_BLOCK ? left : WHORL_LAYER_BLOCK);
        do_rows(job, rows, first, last, sums ? job->weight_gradient + b * job->width : NULL);
    }
    return WHORL_OK;
}
