/* Validation, loop order and threads. The arithmetic is in rotate_scalar.c and rotate_avx2.c. */
#include "angles_rows.h"

#ifdef _OPENMP
#include <omp.h>
#endif

/* Positions handled together over all heads: their table rows then stay in the L1/L2 cache.
 * Measured on 4096 x 40 heads x 128 channels: 32 to 4096 are equal within noise, 8 is 15 % slower.
 */
#define TILE 128

/* Floats of the rows that are built for one tile: 128 positions of 64 pairs. */
#define MOST_BUILT (2 * WHORL_MOST_PAIRS)

/* A binding fills a job with one packed array of 49 numbers, pointers among them. */
_Static_assert(sizeof(void *) == 8, "whorl needs a platform with 64-bit pointers");
_Static_assert(sizeof(whorl_rotation) == 49 * 8, "whorl_rotation must be 49 packed numbers");

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

/* A caller's pointer need not be aligned to its type. */
#if defined(__GNUC__)
typedef int64_t unaligned_int64 __attribute__((aligned(1), may_alias));
#endif

/* Reads a row exactly once: what is checked is then what is used, whoever writes to it meanwhile.
 */
INLINE int64_t read_row(const whorl_operand *o, int64_t axis, int64_t b, int64_t t) {
    const int64_t *strides = o->rows_strides;
    const char *at =
        (const char *)o->rows + 8 * (b * strides[0] + t * strides[1] + axis * strides[2]);
#if defined(__GNUC__)
    return *(const volatile unaligned_int64 *)(const void *)at;
#else
    uint64_t bits = 0;
    for (int n = 0; n < 8; n++)
        bits |= (uint64_t)((const volatile unsigned char *)at)[n] << 8 * n;
    return (int64_t)bits;
#endif
}

/* Whether first_row + row is in the table, written so that no sum can overflow. */
INLINE int is_known(const whorl_operand *o, int64_t row) {
    return o->first_row >= 0 && row >= -o->first_row && row < o->table_rows - o->first_row;
}

/* Rows that are named for each position: one on every axis. */
INLINE int64_t count_axes(const whorl_operand *o) {
    return o->rows && o->source->axes ? o->source->axis_count : 1;
}

static int has_bad_rows(const whorl_operand *o, int64_t batch) {
    if (o->source->steps) return !o->rows && o->first_row > INT64_MAX - o->length;
    if (!o->rows) return o->first_row < 0 || o->length > o->table_rows - o->first_row;
    for (int64_t axis = 0; axis < count_axes(o); axis++)
        for (int64_t b = 0; b < batch; b++)
            for (int64_t t = 0; t < o->length; t++)
                if (!is_known(o, read_row(o, axis, b, t))) return 1;
    return 0;
}

static int has_bad_source(const whorl_rotation *job, const whorl_operand *o) {
    const whorl_row_source *source = o->source;
    if (!source->steps && !source->axes) return 0;
    if (job->dtype == WHORL_F64 || job->pairs > WHORL_MOST_PAIRS || o->table_batch_stride) return 1;
    if (source->steps && o->rows && o->first_row) return 1;
    if (!source->axes) return 0;
    for (int64_t i = 0; i < job->pairs; i++)
        if (source->axes[i] < 0 || source->axes[i] >= source->axis_count) return 1;
    return source->axis_count < 1;
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
        if (has_bad_source(job, o)) return WHORL_BAD_JOB;
        if (has_bad_rows(o, job->batch))
            return WHORL_BAD_ROW; /* first: an empty table may be NULL */
        if (!o->table && job->pairs && (o->table_rows || !o->source->steps)) return WHORL_BAD_JOB;
    }
    return WHORL_OK;
}

/* cos and sin of the positions of one tile: in the table, or built here. `mixed`: rows whose pairs
 * come from those of several axes. */
typedef struct {
    int64_t batch_row, first; /* of which tile; -1 before there is one */
    const char *at[TILE];
    float built[MOST_BUILT], mixed[MOST_BUILT];
} tile_rows;

/* Operands that share their rows, and how they are rotated. */
typedef struct {
    const whorl_rotation *job;
    const whorl_operand *operands;
    int64_t count;
    int64_t tile; /* positions handled together */
    int64_t tiles;
    int alike; /* 1: all batch rows share their rows of cos and sin too, made in `tile_rows` */
    whorl_span_fn span;
    const whorl_angle_rows *angles;
} work;

/* Finds some rows, or builds them. */
static int64_t find_each(const work *w, int64_t b, const int64_t *found, int64_t count,
                         tile_rows *to) {
    const whorl_operand *o = w->operands;
    const whorl_row_source *source = o->source;
    const int64_t pairs = w->job->pairs, entry = TABLE_BYTES[w->job->dtype];
    int64_t positions[TILE], missing = 0;
    float *rows[TILE];
    for (int64_t j = 0; j < count; j++) {
        const int64_t row = found[j];
        if (is_known(o, row)) {
            const int64_t at = b * o->table_batch_stride + (o->first_row + row) * 2 * pairs;
            to->at[j] = (const char *)o->table + at * entry;
            continue;
        }
        if (!source->steps) return WHORL_CHANGED;
        rows[missing] = to->built + missing * 2 * pairs;
        positions[missing] = o->first_row + row;
        to->at[j] = (const char *)rows[missing++];
    }
    if (!missing) return WHORL_OK;
    const whorl_row_builder from = {
        source->steps + 3 * pairs, source->steps, source->growth, pairs, source->scale, w->angles};
    whorl_fill_rows(&from, positions, rows, missing);
    return WHORL_OK;
}

/* Copies the pairs of one axis from the rows that were found for it. */
static void copy_axis(const work *w, int64_t axis, int64_t count, tile_rows *to) {
    const int64_t *axes = w->operands->source->axes, pairs = w->job->pairs;
    for (int64_t i = 0, end; i < pairs; i = end) {
        end = i + 1;
        if (axes[i] != axis) continue;
        while (end < pairs && axes[end] == axis)
            end++;
        const size_t bytes = (size_t)(end - i) * sizeof(float);
        for (int64_t j = 0; j < count; j++) {
            const float *from = (const float *)(const void *)to->at[j];
            memcpy(to->mixed + 2 * j * pairs + i, from + i, bytes);
            memcpy(to->mixed + (2 * j + 1) * pairs + i, from + pairs + i, bytes);
        }
    }
}

/* Finds the rows of positions first .. first + count - 1, each number of the caller read once. */
static int64_t find_rows(const work *w, int64_t b, int64_t first, int64_t count, tile_rows *to) {
    const whorl_operand *o = w->operands;
    const int64_t axes = count_axes(o);
    int64_t found[2][TILE];
    for (int64_t axis = 0; axis < axes; axis++) {
        int64_t *now = found[axis % 2];
        for (int64_t j = 0; j < count; j++)
            now[j] = o->rows ? read_row(o, axis, b, first + j) : first + j;
        /* Tokens of text are in the same place on every axis. */
        if (!axis || memcmp(now, found[1 - axis % 2], (size_t)count * sizeof *now)) {
            const int64_t status = find_each(w, b, now, count, to);
            if (status != WHORL_OK) return status;
        }
        if (axes > 1) copy_axis(w, axis, count, to);
    }
    for (int64_t j = 0; axes > 1 && j < count; j++)
        to->at[j] = (const char *)(to->mixed + 2 * j * w->job->pairs);
    return WHORL_OK;
}

/* One tile of positions of one batch row, all heads. A few heads at a time walk through the tile,
 * sharing its table rows; all of them where their vectors lie side by side, as in a transposed
 * [B, T, H, D]. So memory is walked forward in either case. */
static void rotate_tile(const work *w, const whorl_operand *o, int64_t b, int64_t t, int64_t steps,
                        const tile_rows *rows) {
    const whorl_rotation *job = w->job;
    const int64_t item = ITEM_BYTES[job->dtype];
    const int side_by_side = steps == 1 || o->x_strides[1] < o->x_strides[2];
    const int64_t most = side_by_side ? o->heads : WHORL_GROUP;
    whorl_span s = {
        .count = steps,
        /* The stride of a single step is never used and may be any number. */
        .x_step = steps > 1 ? o->x_strides[2] * item : 0,
        .out_step = steps > 1 ? o->out_strides[2] * item : 0,
        .x_head = o->heads > 1 ? o->x_strides[1] * item : 0,
        .out_head = o->heads > 1 ? o->out_strides[1] * item : 0,
        .rows = rows->at,
        .pairs = job->pairs,
        .head_bytes = job->start * item,
        .rotated_bytes = 2 * job->pairs * item,
        .tail_bytes = (job->width - job->start - 2 * job->pairs) * item,
        .negate = job->transpose != 0,
    };
    const char *x = (const char *)o->x + (b * o->x_strides[0] + t * o->x_strides[2]) * item;
    char *out = (char *)o->out + (b * o->out_strides[0] + t * o->out_strides[2]) * item;
    for (int64_t h = 0; h < o->heads; h += most) {
        s.x = x + h * s.x_head;
        s.out = out + h * s.out_head;
        s.group = o->heads - h < most ? o->heads - h : most;
        w->span(&s);
    }
}

static int64_t run_tasks(const work *w, int64_t task, int64_t end) {
    tile_rows rows;
    rows.first = rows.batch_row = -1;
    for (; task < end; task++) {
        const int64_t batch = w->job->batch;
        const int64_t b = w->alike ? task % batch : task / w->tiles;
        const int64_t t = (w->alike ? task / batch : task % w->tiles) * w->tile;
        const int64_t left = w->operands->length - t, steps = left < w->tile ? left : w->tile;
        if (rows.first != t || (rows.batch_row != b && !w->alike)) {
            const int64_t status = find_rows(w, b, t, steps, &rows);
            if (status != WHORL_OK) return status;
            rows.first = t;
            rows.batch_row = b;
        }
        for (int64_t n = 0; n < w->count; n++)
            rotate_tile(w, &w->operands[n], b, t, steps, &rows);
    }
    return WHORL_OK;
}

static whorl_span_fn choose_span(const whorl_rotation *job) {
    int64_t isa = job->isa == WHORL_AUTO ? whorl_best_isa() : job->isa;
    if (isa == WHORL_SCALAR) return whorl_scalar_span(job->dtype, job->in_layout, job->out_layout);
#if defined(WHORL_HAVE_AVX2)
    if (isa == WHORL_AVX2 && whorl_best_isa() == WHORL_AVX2)
        return whorl_avx2_span(job->dtype, job->in_layout, job->out_layout);
#endif
    return NULL;
}

static int64_t run(const whorl_rotation *job, const whorl_operand *operands, int64_t count,
                   whorl_span_fn span) {
    const whorl_operand *o = operands;
    const int made = o->source->steps || count_axes(o) > 1;
    const int alike = made && (!o->rows || !o->rows_strides[0]);
    work w = {job, operands, count, TILE, 0, alike, span, NULL};
    if (o->source->steps) w.angles = whorl_choose_angle_rows(job->isa);
    if (made && 2 * job->pairs * TILE > MOST_BUILT) w.tile = MOST_BUILT / (2 * job->pairs);
    w.tiles = o->length / w.tile + (o->length % w.tile != 0);
    const int64_t tasks = job->batch * w.tiles;
#ifdef _OPENMP
    /* libgomp ends the process when it cannot start as many threads as it is asked for. */
    const int64_t most = omp_get_max_threads(), threads = job->threads < most ? job->threads : most;
    /* Entering a parallel region costs half a microsecond even with one thread. */
    if (threads > 1) {
        int64_t status = WHORL_OK;
#pragma omp parallel num_threads((int)threads)
        {
            const int64_t n = omp_get_thread_num(), all = omp_get_num_threads();
            const int64_t share = tasks / all, more = tasks % all; /* the first few do one more */
            const int64_t begin = n * share + (n < more ? n : more);
            const int64_t mine = run_tasks(&w, begin, begin + share + (n < more));
#pragma omp critical
            if (mine != WHORL_OK) status = mine;
        }
        return status;
    }
#endif
    return run_tasks(&w, 0, tasks);
}

/* The first and the last address of a tensor, and what lies between. */
static void find_extent(const whorl_rotation *job, const whorl_operand *o, const void *memory,
                        const int64_t *strides, uintptr_t *low, uintptr_t *high) {
    const int64_t sizes[] = {job->batch, o->heads, o->length};
    const uintptr_t item = (uintptr_t)ITEM_BYTES[job->dtype];
    *low = (uintptr_t)memory;
    *high = *low + (uintptr_t)job->width * item;
    for (int n = 0; n < 3; n++) {
        const uintptr_t step = (uintptr_t)(sizes[n] - 1) * (uintptr_t)strides[n] * item;
        if (sizes[n] > 1) *(strides[n] < 0 ? low : high) += step;
    }
}

/* Whether both operands may be rotated tile by tile, so that rows are built once for both. */
static int can_share_rows(const whorl_rotation *job) {
    const whorl_operand *q = &job->operands[0], *k = &job->operands[1];
    if (job->count != 2 || memcmp(q->source, k->source, sizeof *q->source)) return 0;
    if (!q->source->steps && count_axes(q) == 1) return 0;
    if (q->length != k->length || q->table != k->table || q->table_rows != k->table_rows) return 0;
    if (q->rows != k->rows || q->first_row != k->first_row || !q->heads || !k->heads) return 0;
    if (q->rows && memcmp(q->rows_strides, k->rows_strides, sizeof q->rows_strides)) return 0;
    uintptr_t read, read_end, written, written_end;
    find_extent(job, q, q->x, q->x_strides, &read, &read_end);
    find_extent(job, k, k->out, k->out_strides, &written, &written_end);
    return read_end <= written || written_end <= read; /* else keys may end up where queries are */
}

int64_t whorl_rotate(const whorl_rotation *given) {
    if (!given) return WHORL_BAD_JOB;
    whorl_rotation copy = *given; /* what is checked is what is used */
    const whorl_rotation *const job = &copy;
    whorl_row_source source[2] = {{0}, {0}};
    for (int64_t n = 0; n < 2; n++) {
        if (n < job->count && job->operands[n].source) source[n] = *job->operands[n].source;
        copy.operands[n].source = &source[n];
    }
    int64_t status = validate(job);
    if (status != WHORL_OK) return status;
    const whorl_span_fn span = choose_span(job);
    if (!span) return WHORL_NO_ISA;
    if (can_share_rows(job)) return run(job, job->operands, 2, span);
    for (int64_t n = 0; n < job->count && status == WHORL_OK; n++)
        if (job->operands[n].heads && job->operands[n].length)
            status = run(job, &job->operands[n], 1, span);
    return status;
}
