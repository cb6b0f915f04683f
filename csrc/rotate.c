/* Validation, loop order and threads. The arithmetic is in rotate_scalar.c and rotate_avx2.c. */
#include "span.h"

#ifdef _OPENMP
#include <omp.h>
#endif

/* Positions handled together over all heads: their table rows then stay in the L1/L2 cache.
 * Measured on 4096 x 40 heads x 128 channels: 32 to 4096 are equal within noise, 8 is 15 % slower.
 */
#define TILE 128

/* A binding fills a job with one packed array of 45 int64_t, pointers among them. */
_Static_assert(sizeof(void *) == 8, "whorl needs a platform with 64-bit pointers");
_Static_assert(sizeof(whorl_rotation) == 45 * 8, "whorl_rotation must be 45 packed int64_t");

static const int64_t ITEM_BYTES[] = {4, 8, 2, 2};
static const int64_t TABLE_BYTES[] = {4, 8, 4, 4};

int64_t whorl_abi(void) { return WHORL_ABI; }

int64_t whorl_best_isa(void) {
#if defined(WHORL_HAVE_AVX2)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c")) return WHORL_AVX2;
#endif
    return WHORL_SCALAR;
}

int64_t whorl_max_threads(void) {
#ifdef _OPENMP
    return omp_get_max_threads();
#else
    return 1;
#endif
}

static int bad_rows(const whorl_operand *o, int64_t batch) {
    if (!o->rows) return o->first_row < 0 || o->length > o->table_rows - o->first_row;
    for (int64_t b = 0; b < batch; b++)
        for (int64_t t = 0; t < o->length; t++) {
            int64_t row = whorl_index(o->rows, b * o->rows_strides[0] + t * o->rows_strides[1]);
            /* Written so that no sum can overflow, whatever the caller's numbers are. */
            if (o->first_row < 0 || row < -o->first_row || row >= o->table_rows - o->first_row)
                return 1;
        }
    return 0;
}

static int64_t validate(const whorl_rotation *job) {
    if (job->dtype < WHORL_F32 || job->dtype > WHORL_F16) return WHORL_BAD_JOB;
    if (job->in_layout < WHORL_HALF || job->in_layout > WHORL_INTERLEAVED) return WHORL_BAD_JOB;
    if (job->out_layout < WHORL_HALF || job->out_layout > WHORL_INTERLEAVED) return WHORL_BAD_JOB;
    if (job->count < 1 || job->count > 2 || job->batch < 0 || job->width < 0) return WHORL_BAD_JOB;
    if (job->start < 0 || job->pairs < 0 || job->start > job->width) return WHORL_BAD_JOB;
    if (job->threads < 1 || job->threads > INT32_MAX) return WHORL_BAD_JOB;
    if (job->pairs > (job->width - job->start) / 2) return WHORL_BAD_JOB;
    for (int64_t n = 0; n < job->count; n++) {
        const whorl_operand *o = &job->operands[n];
        if (o->heads < 0 || o->length < 0 || o->table_rows < 0) return WHORL_BAD_JOB;
        if (job->batch == 0 || o->heads == 0 || o->length == 0) continue;
        if (!o->x || !o->out) return WHORL_BAD_JOB;
        if (o->x == o->out && job->in_layout != job->out_layout) return WHORL_BAD_JOB;
        if (bad_rows(o, job->batch)) return WHORL_BAD_ROW; /* first: an empty table may be NULL */
        if (!o->table && job->pairs) return WHORL_BAD_JOB;
    }
    return WHORL_OK;
}

/* One tile of positions of one batch row, all heads. A few heads at a time walk through the tile,
 * sharing its table rows; all of them where their vectors lie side by side, as in a transposed
 * [B, T, H, D]. So memory is walked forward in either case. */
static void rotate_tile(const whorl_rotation *job, const whorl_operand *o, whorl_span_fn span,
                        int64_t b, int64_t tile) {
    const int64_t item = ITEM_BYTES[job->dtype], entry = TABLE_BYTES[job->dtype];
    const int64_t t = tile * TILE, left = o->length - t, steps = left < TILE ? left : TILE;
    const int side_by_side = steps == 1 || o->x_strides[1] < o->x_strides[2];
    const int64_t most = side_by_side ? o->heads : WHORL_GROUP;
    whorl_span s = {
        .count = steps,
        /* The stride of a single step is never used and may be any number. */
        .x_step = steps > 1 ? o->x_strides[2] * item : 0,
        .out_step = steps > 1 ? o->out_strides[2] * item : 0,
        .x_head = o->heads > 1 ? o->x_strides[1] * item : 0,
        .out_head = o->heads > 1 ? o->out_strides[1] * item : 0,
        .table = (const char *)o->table + b * o->table_batch_stride * entry,
        .row_bytes = 2 * job->pairs * entry,
        .rows = o->rows ? o->rows + b * o->rows_strides[0] + t * o->rows_strides[1] : NULL,
        .rows_step = o->rows_strides[1],
        .first_row = o->first_row + (o->rows ? 0 : t),
        .pairs = job->pairs,
        .head_bytes = job->start * item,
        .band_bytes = 2 * job->pairs * item,
        .tail_bytes = (job->width - job->start - 2 * job->pairs) * item,
        .negate = job->transpose != 0,
    };
    const char *x = (const char *)o->x + (b * o->x_strides[0] + t * o->x_strides[2]) * item;
    char *out = (char *)o->out + (b * o->out_strides[0] + t * o->out_strides[2]) * item;
    for (int64_t h = 0; h < o->heads; h += most) {
        s.x = x + h * s.x_head;
        s.out = out + h * s.out_head;
        s.group = o->heads - h < most ? o->heads - h : most;
        span(&s);
    }
}

static whorl_span_fn choose(const whorl_rotation *job) {
    int64_t isa = job->isa == WHORL_AUTO ? whorl_best_isa() : job->isa;
    if (isa == WHORL_SCALAR) return whorl_scalar_span(job->dtype, job->in_layout, job->out_layout);
#if defined(WHORL_HAVE_AVX2)
    if (isa == WHORL_AVX2 && whorl_best_isa() == WHORL_AVX2)
        return whorl_avx2_span(job->dtype, job->in_layout, job->out_layout);
#endif
    return NULL;
}

static void rotate_operand(const whorl_rotation *job, const whorl_operand *o, whorl_span_fn span) {
    const int64_t tiles = o->length / TILE + (o->length % TILE != 0);
    const int64_t tasks = job->batch * tiles;
#ifdef _OPENMP
    /* libgomp ends the process when it cannot start as many threads as it is asked for. */
    const int64_t most = omp_get_max_threads(), threads = job->threads < most ? job->threads : most;
    /* Entering a parallel region costs half a microsecond even with one thread. */
    if (threads > 1) {
#pragma omp parallel for schedule(static) num_threads((int)threads)
        for (int64_t task = 0; task < tasks; task++)
            rotate_tile(job, o, span, task / tiles, task % tiles);
        return;
    }
#endif
    for (int64_t task = 0; task < tasks; task++)
        rotate_tile(job, o, span, task / tiles, task % tiles);
}

int64_t whorl_rotate(const whorl_rotation *job) {
    const int64_t status = validate(job);
    if (status != WHORL_OK) return status;
    const whorl_span_fn span = choose(job);
    if (!span) return WHORL_NO_ISA;
    for (int64_t n = 0; n < job->count; n++)
        if (job->operands[n].heads) rotate_operand(job, &job->operands[n], span);
    return WHORL_OK;
}
