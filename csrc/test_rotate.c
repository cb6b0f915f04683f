/* Tests of the C ABI alone, for the sanitizers: no torch, no Python.
 *
 * The scalar code is compared with a loop from the definition in long double, every other code,
 * thread count and memory layout with the scalar code, bit for bit. Outputs lie in buffers that are
 * filled with a pattern, and whatever a rotation has no business with must still show it.
 */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */

#include "test.h"

#include <stdlib.h>
#include <sys/mman.h>

#define GUARD 64 /* bytes around every output */
#define SLACK 9  /* table rows beyond the length */
/* The vector code takes heads by fours: none, one or two such groups, and up to three more. */
#define MOST_HEADS 9

static long passed, failed;

void check(int ok, const char *what, const char *detail) {
    if (ok) {
        passed++;
        return;
    }
    failed++;
    printf("FAILED %s: %s\n", what, detail);
}

/* A number between 2^-6 and 2^3, or any bits at all. */
static uint64_t random_number(uint64_t *state, int dtype, int wild) {
    const int fraction = FRACTION[dtype], exponent = EXPONENT[dtype];
    uint64_t bits = random_bits(state) >> (64 - 8 * ITEM[dtype]);
    if (wild && random_bits(state) % 8 == 0) return bits;
    const uint64_t bias = (UINT64_C(1) << (exponent - 1)) - 1;
    const uint64_t e = bias - 6 + random_bits(state) % 9;
    const uint64_t keep = ~(((UINT64_C(1) << exponent) - 1) << fraction);
    return (bits & keep) | e << fraction;
}

/* ---- a case: what is rotated, and where it lies in memory ---- */

enum strides { PLAIN, SWAPPED, PADDED, BACKWARD };   /* SWAPPED: [B, T, H, D] */
enum lookup { BY_FIRST_ROW, SHARED_ROWS, OWN_ROWS }; /* rows NULL, [T], [B, T] */

typedef struct {
    int dtype, in_layout, out_layout, transpose;
    int64_t batch, heads, length, width, start, pairs;
    enum strides x_strides, out_strides;
    enum lookup lookup;
    int own_table; /* one table for each batch row */
    int wild;      /* NaN, infinities and subnormals among the inputs */
    int64_t shift; /* bytes by which every pointer is off its alignment */
} shape;

typedef struct {
    char *memory;  /* guard, shift, payload, guard */
    int64_t bytes; /* all of it */
    char *origin;  /* element [0, 0, 0, 0] */
    int64_t strides[3];
} buffer;

static buffer new_buffer(const shape *c, enum strides kind) {
    const int64_t w = c->width + (kind == PADDED ? 3 : 0), item = ITEM[c->dtype];
    const int64_t plane = c->heads * c->length * w + (kind == PADDED ? 5 : 0);
    buffer b = {.strides = {plane, c->length * w, w}};
    if (kind == SWAPPED) {
        b.strides[1] = w;
        b.strides[2] = c->heads * w;
    }
    b.bytes = c->batch * plane * item + 2 * GUARD + c->shift;
    b.memory = malloc((size_t)b.bytes);
    memset(b.memory, PATTERN, (size_t)b.bytes);
    b.origin = b.memory + GUARD + c->shift;
    if (kind == BACKWARD) {
        b.origin += (c->length - 1) * w * item;
        b.strides[2] = -w;
    }
    return b;
}

static char *element(const buffer *b, const shape *c, int64_t n, int64_t h, int64_t t) {
    const int64_t at = n * b->strides[0] + h * b->strides[1] + t * b->strides[2];
    return b->origin + at * ITEM[c->dtype];
}

static void fill(const buffer *b, const shape *c, uint64_t *state) {
    for (int64_t n = 0; n < c->batch; n++)
        for (int64_t h = 0; h < c->heads; h++)
            for (int64_t t = 0; t < c->length; t++)
                for (int64_t d = 0; d < c->width; d++) {
                    const uint64_t bits = random_number(state, c->dtype, c->wild);
                    memcpy(element(b, c, n, h, t) + d * ITEM[c->dtype], &bits,
                           (size_t)ITEM[c->dtype]);
                }
}

typedef struct {
    char *memory;
    char *entries; /* [B or 1, rows, 2, P] */
    int64_t count, batch_stride;
    char *index_memory;
    const int64_t *index; /* every second number, so that its stride counts */
    int64_t index_strides[2], first_row;
} rows;

static int64_t row_of(const rows *r, int64_t n, int64_t t) {
    if (!r->index) return r->first_row + t;
    const int64_t at = n * r->index_strides[0] + t * r->index_strides[1];
    return r->first_row + (int64_t)load((const char *)r->index + 8 * at, 8);
}

static rows new_rows(const shape *c, uint64_t *state) {
    const int64_t tables = c->own_table ? c->batch : 1, entry = ENTRY[c->dtype];
    const int dtype = c->dtype == WHORL_F64 ? WHORL_F64 : WHORL_F32;
    rows r = {.count = c->length + SLACK, .first_row = 4};
    const int64_t one = r.count * 2 * c->pairs;
    r.batch_stride = c->own_table ? one : 0;
    r.memory = malloc((size_t)(tables * one * entry + c->shift));
    r.entries = r.memory + c->shift;
    for (int64_t i = 0; i < tables * one; i++) {
        const uint64_t bits = random_number(state, dtype, 0);
        memcpy(r.entries + i * entry, &bits, (size_t)entry);
    }
    if (c->lookup == BY_FIRST_ROW) return r;
    const int64_t lists = c->lookup == OWN_ROWS ? c->batch : 1;
    r.index_memory = malloc((size_t)(lists * c->length * 16 + c->shift));
    r.index = (const int64_t *)(void *)(r.index_memory + c->shift);
    r.index_strides[0] = c->lookup == OWN_ROWS ? 2 * c->length : 0;
    r.index_strides[1] = 2;
    for (int64_t i = 0; i < lists * c->length; i++) {
        const int64_t row = (int64_t)(random_bits(state) % (uint64_t)r.count) - r.first_row;
        memcpy(r.index_memory + c->shift + 16 * i, &row, sizeof row);
    }
    return r;
}

static whorl_operand operand(const shape *c, const buffer *x, const buffer *out, const rows *r) {
    whorl_operand o = {
        .x = x->origin,
        .out = out->origin,
        .heads = c->heads,
        .length = c->length,
        .table = r->entries,
        .table_rows = r->count,
        .table_batch_stride = r->batch_stride,
        .rows = r->index,
        .rows_strides = {r->index_strides[0], r->index_strides[1]},
        .first_row = r->first_row,
    };
    memcpy(o.x_strides, x->strides, sizeof o.x_strides);
    memcpy(o.out_strides, out->strides, sizeof o.out_strides);
    return o;
}

static whorl_rotation job_of(const shape *c, whorl_operand o, int64_t isa, int64_t threads) {
    return (whorl_rotation){
        .dtype = c->dtype,
        .count = 1,
        .batch = c->batch,
        .width = c->width,
        .start = c->start,
        .pairs = c->pairs,
        .in_layout = c->in_layout,
        .out_layout = c->out_layout,
        .transpose = c->transpose,
        .threads = threads,
        .isa = isa,
        .operands = {o},
    };
}

static const char *describe(const shape *c) {
    static char text[200];
    snprintf(text, sizeof text,
             "%s layouts %d>%d transpose %d [%d,%d,%d,%d] start %d pairs %d strides %d>%d rows %d "
             "own table %d shift %d",
             NAMES[c->dtype], c->in_layout, c->out_layout, c->transpose, (int)c->batch,
             (int)c->heads, (int)c->length, (int)c->width, (int)c->start, (int)c->pairs,
             (int)c->x_strides, (int)c->out_strides, (int)c->lookup, c->own_table, (int)c->shift);
    return text;
}

/* ---- what must hold ---- */

/* Equal bits, or NaN in both. */
static int same_vectors(const buffer *a, const buffer *b, const shape *c) {
    const int64_t item = ITEM[c->dtype];
    for (int64_t n = 0; n < c->batch; n++)
        for (int64_t h = 0; h < c->heads; h++)
            for (int64_t t = 0; t < c->length; t++)
                for (int64_t d = 0; d < c->width; d++) {
                    const uint64_t u = load(element(a, c, n, h, t) + d * item, item);
                    const uint64_t v = load(element(b, c, n, h, t) + d * item, item);
                    if (u != v && !(is_nan(u, c->dtype) && is_nan(v, c->dtype))) return 0;
                }
    return 1;
}

/* Guards and the gaps between vectors still show the pattern. */
static int rest_untouched(const buffer *b, const shape *c) {
    char *copy = malloc((size_t)b->bytes);
    memcpy(copy, b->memory, (size_t)b->bytes);
    for (int64_t n = 0; n < c->batch; n++)
        for (int64_t h = 0; h < c->heads; h++)
            for (int64_t t = 0; t < c->length; t++)
                memset(copy + (element(b, c, n, h, t) - b->memory), PATTERN,
                       (size_t)(c->width * ITEM[c->dtype]));
    const int clean = all_pattern(copy, b->bytes);
    free(copy);
    return clean;
}

/* Two products and a sum, each rounded: 2 half-ulps of |a cos| + |b sin|. Half types add one
 * half-ulp of their own. */
static int near(long double got, long double want, long double size, int dtype) {
    const long double arithmetic = dtype == WHORL_F64 ? 0x1.1p-52L : 0x1.1p-23L;
    const long double rounding[] = {0, 0, 0x1p-8L, 0x1p-11L};
    return fabsl(got - want) <= size * (arithmetic + rounding[dtype]);
}

static int vector_follows_definition(const shape *c, const char *x, const char *out,
                                     const char *row) {
    const int64_t item = ITEM[c->dtype], entry = ENTRY[c->dtype], p = c->pairs;
    const int table = c->dtype == WHORL_F64 ? WHORL_F64 : WHORL_F32;
    for (int64_t d = 0; d < c->width; d++)
        if ((d < c->start || d >= c->start + 2 * p) &&
            memcmp(x + d * item, out + d * item, (size_t)item) != 0)
            return 0;
    for (int64_t i = 0; i < p; i++) {
        const int half_in = c->in_layout == WHORL_HALF, half_out = c->out_layout == WHORL_HALF;
        const int64_t xa = c->start + (half_in ? i : 2 * i);
        const int64_t oa = c->start + (half_out ? i : 2 * i);
        const int64_t xb = half_in ? xa + p : xa + 1, ob = half_out ? oa + p : oa + 1;
        const long double a = decode(load(x + xa * item, item), c->dtype);
        const long double b = decode(load(x + xb * item, item), c->dtype);
        const long double cosine = decode(load(row + i * entry, entry), table);
        const long double plus = decode(load(row + (p + i) * entry, entry), table);
        const long double sine = c->transpose ? -plus : plus;
        const long double ra = decode(load(out + oa * item, item), c->dtype);
        const long double rb = decode(load(out + ob * item, item), c->dtype);
        if (!near(ra, a * cosine - b * sine, fabsl(a * cosine) + fabsl(b * sine), c->dtype) ||
            !near(rb, a * sine + b * cosine, fabsl(a * sine) + fabsl(b * cosine), c->dtype))
            return 0;
    }
    return 1;
}

static int follows_definition(const shape *c, const buffer *x, const buffer *out, const rows *r) {
    for (int64_t n = 0; n < c->batch; n++)
        for (int64_t h = 0; h < c->heads; h++)
            for (int64_t t = 0; t < c->length; t++) {
                const int64_t at = n * r->batch_stride + row_of(r, n, t) * 2 * c->pairs;
                if (!vector_follows_definition(c, element(x, c, n, h, t), element(out, c, n, h, t),
                                               r->entries + at * ENTRY[c->dtype]))
                    return 0;
            }
    return 1;
}

/* ---- the sweep ---- */

static void compare(const shape *c, const buffer *x, const buffer *want, const rows *r, int64_t isa,
                    int64_t threads) {
    buffer out = new_buffer(c, c->out_strides);
    whorl_rotation job = job_of(c, operand(c, x, &out, r), isa, threads);
    check(whorl_rotate(&job) == WHORL_OK, "status", describe(c));
    check(same_vectors(&out, want, c), "same bits as scalar", describe(c));
    check(rest_untouched(&out, c), "writes its vectors only", describe(c));
    free(out.memory);
    if (c->in_layout != c->out_layout) return;
    buffer own = new_buffer(c, c->x_strides);
    memcpy(own.memory, x->memory, (size_t)x->bytes);
    job = job_of(c, operand(c, &own, &own, r), isa, threads);
    check(whorl_rotate(&job) == WHORL_OK, "status in place", describe(c));
    check(same_vectors(&own, want, c), "in place as out of place", describe(c));
    check(rest_untouched(&own, c), "in place writes its vectors only", describe(c));
    free(own.memory);
}

static void run_case(const shape *c, uint64_t *state) {
    buffer x = new_buffer(c, c->x_strides), want = new_buffer(c, c->out_strides);
    fill(&x, c, state);
    rows r = new_rows(c, state);
    whorl_rotation job = job_of(c, operand(c, &x, &want, &r), WHORL_SCALAR, 1);
    check(whorl_rotate(&job) == WHORL_OK, "scalar status", describe(c));
    check(rest_untouched(&want, c), "scalar writes its vectors only", describe(c));
    if (!c->wild) check(follows_definition(c, &x, &want, &r), "definition", describe(c));
    compare(c, &x, &want, &r, WHORL_SCALAR, whorl_max_threads());
    compare(c, &x, &want, &r, whorl_best_isa(), 1);
    compare(c, &x, &want, &r, WHORL_AUTO, whorl_max_threads() + 1);
    free(x.memory);
    free(want.memory);
    free(r.memory);
    free(r.index_memory);
}

/* dtypes, layouts, signs and numbers of pairs meet each other; the rest alternates. */
static void test_sweep(void) {
    static const int64_t LENGTHS[] = {1, 2, 3, 5, 7};
    uint64_t state = 0x9e3779b97f4a7c15;
    int64_t number = 0;
    for (int64_t pairs = 1; pairs <= 40; pairs++)
        for (int kind = 0; kind < 32; kind++, number++) {
            shape c = {.dtype = kind / 8, .in_layout = kind / 4 % 2, .out_layout = kind / 2 % 2};
            c.transpose = kind % 2;
            c.batch = 1 + random_bits(&state) % 2;
            c.heads = 1 + random_bits(&state) % MOST_HEADS;
            c.length = LENGTHS[random_bits(&state) % 5];
            c.pairs = pairs;
            c.start = random_bits(&state) % 2 ? random_bits(&state) % 4 : 0;
            c.width = c.start + 2 * pairs + (random_bits(&state) % 2 ? number % 5 : 0);
            c.x_strides = random_bits(&state) % 4;
            c.out_strides = random_bits(&state) % 4;
            c.lookup = random_bits(&state) % 3;
            c.own_table = random_bits(&state) % 2;
            c.wild = number % 3 == 0;
            c.shift = number % 5 == 0;
            run_case(&c, &state);
        }
}

/* Lengths on both sides of a tile of positions, with every number of heads and kind of stride. */
static void test_long(void) {
    static const int64_t LENGTHS[] = {127, 128, 129, 257};
    uint64_t state = 88172645463325252;
    for (int64_t heads = 1; heads <= MOST_HEADS; heads++)
        for (int kind = 0; kind < 4 * 4; kind++) {
            shape c = {.dtype = kind % 4, .batch = 2, .heads = heads, .pairs = 17, .start = 1};
            c.width = 37;
            c.length = LENGTHS[kind / 4];
            c.x_strides = (kind / 4 + heads) % 4; /* each meets each length and dtype */
            c.out_strides = random_bits(&state) % 4;
            c.lookup = random_bits(&state) % 3;
            c.own_table = random_bits(&state) % 2;
            c.in_layout = random_bits(&state) % 2;
            c.out_layout = random_bits(&state) % 2;
            run_case(&c, &state);
        }
}

/* Queries and keys in one call: their own heads, lengths and rows. */
static void test_two_operands(void) {
    uint64_t state = 2463534242;
    shape q = {.dtype = WHORL_BF16, .batch = 2, .heads = 9, .length = 5, .pairs = 25, .width = 50};
    shape k = q;
    k.heads = 5;
    k.length = 131;
    k.lookup = OWN_ROWS;
    buffer xs[2] = {new_buffer(&q, PLAIN), new_buffer(&k, SWAPPED)};
    buffer outs[2] = {new_buffer(&q, SWAPPED), new_buffer(&k, PADDED)};
    fill(&xs[0], &q, &state);
    fill(&xs[1], &k, &state);
    rows r[2] = {new_rows(&q, &state), new_rows(&k, &state)};
    whorl_rotation job = job_of(&q, operand(&q, &xs[0], &outs[0], &r[0]), WHORL_AUTO, 2);
    job.operands[1] = operand(&k, &xs[1], &outs[1], &r[1]);
    job.count = 2;
    job.operands[1].table_rows = 1;
    check(whorl_rotate(&job) == WHORL_BAD_ROW, "bad row", "of the second operand");
    check(all_pattern(outs[0].memory, outs[0].bytes), "bad row", "first operand not written");
    job.operands[1].table_rows = r[1].count;
    check(whorl_rotate(&job) == WHORL_OK, "two operands", "status");
    check(follows_definition(&q, &xs[0], &outs[0], &r[0]), "two operands", "queries");
    check(follows_definition(&k, &xs[1], &outs[1], &r[1]), "two operands", "keys");
    check(rest_untouched(&outs[0], &q) && rest_untouched(&outs[1], &k), "two operands", "guards");
    for (int n = 0; n < 2; n++) {
        free(xs[n].memory);
        free(outs[n].memory);
        free(r[n].memory);
        free(r[n].index_memory);
    }
}

/* Head vectors 16 GiB apart, in memory that is reserved but not there until touched. */
static void test_far_apart(void) {
    const int64_t stride = INT64_C(1) << 31, bytes = 5 * stride * 8;
    char *memory = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        printf("skipped: 80 GiB of address space are not to be had\n");
        return;
    }
    shape c = {.dtype = WHORL_F64, .batch = 1, .heads = 5, .length = 2, .width = 10, .pairs = 5};
    uint64_t state = 521288629;
    buffer far = {.origin = memory, .strides = {0, stride, 10}}, out = new_buffer(&c, PLAIN);
    fill(&far, &c, &state);
    rows r = new_rows(&c, &state);
    whorl_rotation job = job_of(&c, operand(&c, &far, &out, &r), WHORL_AUTO, 1);
    check(whorl_rotate(&job) == WHORL_OK, "far apart", "status");
    check(follows_definition(&c, &far, &out, &r), "far apart", "definition");
    job = job_of(&c, operand(&c, &far, &far, &r), WHORL_AUTO, 1);
    check(whorl_rotate(&job) == WHORL_OK, "far apart", "status in place");
    check(same_vectors(&far, &out, &c), "far apart", "in place");
    munmap(memory, (size_t)bytes);
    free(out.memory);
    free(r.memory);
}

/* The argument: seconds for which rows are changed under running jobs. */
int main(int count, char **arguments) {
    check(whorl_abi() == WHORL_ABI, "abi", "the header's number");
    check(whorl_max_threads() >= 1, "threads", "at least one");
    test_sweep();
    test_long();
    test_two_operands();
    test_halves();
    test_hostile();
    test_angles();
    test_scores();
    test_races(count > 1 ? atof(arguments[1]) : 0.2);
    test_far_apart();
    printf("%ld passed, %ld failed\n", passed, failed);
    return failed != 0;
}
