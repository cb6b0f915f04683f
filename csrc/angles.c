/* Rows of cos and sin from their definition, as a table holds them: the same bits for a position
 * wherever and whenever its row is built.
 *
 * A position is a multiple of WHORL_STEPS and a rest. cos and sin of the first serve as many
 * positions, those of the rests are built once (whorl_build_steps), and each row is a sum of two
 * angles: a fourth of the time of a polynomial for each. A factor that grows with the position is
 * a product in the same way, so it is multiplied into both.
 */
#define WHORL_ANGLES(name) whorl_angles_scalar_##name
#include "angles.h"

#include <math.h>

#if defined(__x86_64__) && defined(__GLIBC__)
/* The older name of the same function, which sets errno too: with the one of glibc 2.29, a wheel
 * would not load on systems with glibc 2.17 to 2.28. */
__asm__(".symver exp2, exp2@GLIBC_2.2.5");
#endif

/* Pairs handled together: what is known about them stays on the stack. */
#define BLOCK 64

/* Positions whose rows are written one after the other. */
#define AT_ONCE 128

/* Below it a position is split in two; the rows of others are built from their angles alone. */
#define LARGEST_POSITION (UINT64_C(1) << 31)

/* log2 of the largest factor: a float cannot hold it, and a double the product of two. */
#define LARGEST_POWER 500.0

const whorl_angle_rows *whorl_choose_angle_rows(int64_t isa) {
    if (isa == WHORL_AUTO) isa = whorl_best_isa();
    if (isa == WHORL_SCALAR) return &whorl_angles_scalar_rows;
#if defined(WHORL_HAVE_AVX2)
    if (isa == WHORL_AVX2 && whorl_best_isa() == WHORL_AVX2) return &whorl_angles_avx2_rows;
#endif
    return NULL;
}

/* Pairs first .. first + count - 1 of one sequence, and what is known of the last coarse step. */
typedef struct {
    const whorl_row_builder *from;
    int64_t first, count;
    double largest; /* inv_freq */
    uint64_t coarse_step;
    double coarse[3][BLOCK], fine[3][BLOCK];
} block;

static double factor_at(double position, double growth) {
    const double power = position * growth;
    return exp2(power > LARGEST_POWER ? LARGEST_POWER : power);
}

/* Multiplies cos and sin by the factor that they have at `position`. */
static void apply_growth(const double *growth, double position, int64_t count, whorl_angles *at) {
    if (!growth) return;
    for (int64_t i = 0; i < count; i++) {
        const double factor = factor_at(position, growth[i]);
        at->cosine[i] *= factor;
        at->sine[i] *= factor;
    }
}

static void compute(const block *b, double position, whorl_angles *to) {
    const whorl_row_builder *s = b->from;
    s->rows->direct(position, s->inv_freq + b->first, b->count, to);
    apply_growth(s->growth ? s->growth + b->first : NULL, position, b->count, to);
}

/* Angles too large for the polynomials: the library's cos and sin reduce any of them. */
static void fill_by_library(const block *b, double position, double smallest, float *row) {
    const whorl_row_builder *s = b->from;
    for (int64_t i = b->first; i < b->first + b->count; i++) {
        const double angle = position * s->inv_freq[i];
        if (fabs(angle) <= smallest) continue;
        const double scale = s->growth ? factor_at(position, s->growth[i]) * s->scale : s->scale;
        row[i] = (float)(cos(angle) * scale);
        row[s->pairs + i] = (float)(sin(angle) * scale);
    }
}

/* A position between two others, or one of its own. */
static void fill_fraction(block *b, double position, float *row) {
    const whorl_row_builder *s = b->from;
    whorl_angles at = {b->fine[0], b->fine[1], b->fine[2]};
    compute(b, position, &at);
    for (int64_t i = 0; i < b->count; i++) {
        row[b->first + i] = (float)(at.cosine[i] * s->scale);
        row[s->pairs + b->first + i] = (float)(at.sine[i] * s->scale);
    }
    if (!(fabs(position) * b->largest <= WHORL_LARGEST_ANGLE))
        fill_by_library(b, position, WHORL_LARGEST_ANGLE, row);
}

static void fill_row(block *b, int64_t position, float *row) {
    const whorl_row_builder *s = b->from;
    const double *inv_freq = s->inv_freq + b->first;
    const uint64_t size = position < 0 ? 0 - (uint64_t)position : (uint64_t)position;
    if (size >= LARGEST_POSITION) {
        fill_by_library(b, (double)position, -1.0, row);
        return;
    }
    if (s->growth && position < 0) { /* the steps are of the factors on the other side of 0 */
        fill_fraction(b, (double)position, row);
        return;
    }
    whorl_sum sum = {.position = (double)size,
                     .coarse = {b->coarse[0], b->coarse[1], b->coarse[2]},
                     .fine = {b->fine[0], b->fine[1], b->fine[2]},
                     .scale = s->scale,
                     .sine_scale = position < 0 ? -s->scale : s->scale};
    const uint64_t step = size / WHORL_STEPS, rest = size % WHORL_STEPS;
    if (step != b->coarse_step) {
        whorl_angles to = {b->coarse[0], b->coarse[1], b->coarse[2]};
        compute(b, (double)(step * WHORL_STEPS), &to);
        b->coarse_step = step;
    }
    if (s->steps) {
        const double *at = s->steps + (int64_t)rest * 3 * s->pairs + b->first;
        sum.fine = (whorl_known_angles){at, at + s->pairs, at + 2 * s->pairs};
    } else {
        whorl_angles to = {b->fine[0], b->fine[1], b->fine[2]};
        compute(b, (double)rest, &to);
    }
    s->rows->add(&sum, inv_freq, b->count, row + b->first, row + s->pairs + b->first);
    if (!(sum.position * b->largest <= WHORL_LARGEST_ANGLE))
        fill_by_library(b, (double)position, WHORL_LARGEST_ANGLE, row);
}

static block block_of(const whorl_row_builder *from, int64_t first) {
    const int64_t left = from->pairs - first;
    block b = {.from = from, .first = first, .count = left < BLOCK ? left : BLOCK};
    b.coarse_step = UINT64_MAX;
    for (int64_t i = first; i < first + b.count; i++)
        if (!(fabs(from->inv_freq[i]) <= b.largest)) b.largest = fabs(from->inv_freq[i]);
    return b;
}

void whorl_fill_rows(const whorl_row_builder *from, const int64_t *positions, float *const *rows,
                     int64_t count) {
    for (int64_t first = 0; first < from->pairs; first += BLOCK) {
        block b = block_of(from, first);
        for (int64_t n = 0; n < count; n++)
            fill_row(&b, positions[n], rows[n]);
    }
}

static void fill_fractions(const whorl_row_builder *from, const double *positions,
                           float *const *rows, int64_t count) {
    for (int64_t first = 0; first < from->pairs; first += BLOCK) {
        block b = block_of(from, first);
        for (int64_t n = 0; n < count; n++) {
            const double p = positions[n];
            if (p == floor(p) && fabs(p) < (double)LARGEST_POSITION)
                fill_row(&b, (int64_t)p, rows[n]);
            else
                fill_fraction(&b, p, rows[n]);
        }
    }
}

int64_t whorl_build_steps(const double *inv_freq, const double *growth, int64_t pairs,
                          double *steps) {
    if (pairs < 0 || (pairs && (!inv_freq || !steps))) return WHORL_BAD_JOB;
    const whorl_angle_rows *rows = whorl_choose_angle_rows(WHORL_AUTO);
    for (int64_t n = 0; n < WHORL_STEPS; n++) {
        double *at = steps + n * 3 * pairs;
        whorl_angles to = {at, at + pairs, at + 2 * pairs};
        rows->direct((double)n, inv_freq, pairs, &to);
        apply_growth(growth, (double)n, pairs, &to);
    }
    return WHORL_OK;
}

static int64_t validate(const whorl_table *job) {
    if (job->kind < WHORL_CONSECUTIVE || job->kind > WHORL_FRACTIONS) return WHORL_BAD_JOB;
    if (job->batch < 0 || job->length < 0 || job->pairs < 0) return WHORL_BAD_JOB;
    if (!job->batch || !job->length || !job->pairs) return WHORL_OK;
    if (job->kind != WHORL_CONSECUTIVE && !job->positions) return WHORL_BAD_JOB;
    if (!job->inv_freq || !job->scales || !job->out) return WHORL_BAD_JOB;
    if (job->kind == WHORL_CONSECUTIVE && job->first > INT64_MAX - job->length)
        return WHORL_BAD_ROW;
    return WHORL_OK;
}

_Static_assert(sizeof(whorl_table) == 16 * 8, "whorl_table must be 16 packed numbers");

/* Positions t .. t + count - 1 of sequence b. */
static void build_some(const whorl_table *job, const whorl_row_builder *from, int64_t b, int64_t t,
                       int64_t count) {
    float *rows[AT_ONCE];
    int64_t whole[AT_ONCE];
    double fractions[AT_ONCE];
    for (int64_t n = 0; n < count; n++) {
        const int64_t i = b * job->positions_strides[0] + (t + n) * job->positions_strides[1];
        rows[n] = job->out + (b * job->length + t + n) * 2 * job->pairs;
        if (job->kind == WHORL_CONSECUTIVE)
            whole[n] = job->first + t + n;
        else if (job->kind == WHORL_WHOLE)
            whole[n] = ((const int64_t *)job->positions)[i];
        else
            fractions[n] = ((const double *)job->positions)[i];
    }
    if (job->kind == WHORL_FRACTIONS)
        fill_fractions(from, fractions, rows, count);
    else
        whorl_fill_rows(from, whole, rows, count);
}

int64_t whorl_build_table(const whorl_table *given) {
    if (!given) return WHORL_BAD_JOB;
    const whorl_table job = *given;
    const int64_t status = validate(&job);
    if (status != WHORL_OK) return status;
    const whorl_angle_rows *rows = whorl_choose_angle_rows(job.isa);
    if (!rows) return WHORL_NO_ISA;
    if (!job.length || !job.pairs) return WHORL_OK; /* there may be no memory either */
    for (int64_t b = 0; b < job.batch; b++) {
        const whorl_row_builder from = {
            job.inv_freq + b * job.inv_freq_stride, job.steps, job.growth, job.pairs,
            job.scales[b * job.scales_stride],      rows};
        for (int64_t t = 0; t < job.length; t += AT_ONCE)
            build_some(&job, &from, b, t, job.length - t < AT_ONCE ? job.length - t : AT_ONCE);
    }
    return WHORL_OK;
}
