/* Conversions of bfloat16 and float16, for all values, against one written with frexp and rint. */
#include "test.h"

#include <stdlib.h>

enum { LANES = 29, HALVES = 1 << 16 }; /* 16 + 8 + 5 pairs: every vector width and a rest */
enum { HEADS = 5 };                    /* a group of four and one more, all with the same input */

/* One rotation with pairs (a, b) in half layout; row t of `table` belongs to vector t. `out` is
 * that of the first head; the others must not differ from it. */
static void rotate_halves(int dtype, int64_t isa, int64_t length, const uint16_t *x, uint16_t *out,
                          const float *table) {
    const int64_t numbers = length * 2 * LANES;
    uint16_t *all = malloc((size_t)(HEADS * numbers) * 2);
    whorl_rotation job = {.dtype = dtype, .count = 1, .batch = 1, .width = 2 * LANES};
    job.pairs = LANES;
    job.threads = 1;
    job.isa = isa;
    job.operands[0] = (whorl_operand){
        .x = x,
        .out = all,
        .heads = HEADS,
        .length = length,
        .x_strides = {0, 0, 2 * LANES},
        .out_strides = {0, numbers, 2 * LANES},
        .table = table,
        .table_rows = length,
    };
    check(whorl_rotate(&job) == WHORL_OK, "halves", NAMES[dtype]);
    memcpy(out, all, (size_t)numbers * 2);
    int same = 1;
    for (int64_t i = numbers; i < HEADS * numbers; i++) {
        const uint16_t first = out[i % numbers];
        same &= all[i] == first || (is_nan(all[i], dtype) && is_nan(first, dtype));
    }
    check(same, "halves of all heads", NAMES[dtype]);
    free(all);
}

/* cos = 1, sin = 0 gives back every value, as first and as second channel of a pair. The partner is
 * the zero whose product with 0 changes no sign: +0 for a, -0 for b. */
static void test_all_halves(int dtype, int64_t isa) {
    const int64_t length = (HALVES + LANES - 1) / LANES, numbers = length * 2 * LANES;
    uint16_t *x = malloc((size_t)numbers * 2), *out = malloc((size_t)numbers * 2);
    float *table = malloc((size_t)numbers * sizeof *table);
    for (int64_t i = 0; i < numbers; i++)
        table[i] = i % (2 * LANES) < LANES ? 1.0f : 0.0f;
    for (int second = 0; second < 2; second++) {
        for (int64_t n = 0; n < length * LANES; n++) {
            const int64_t a = n / LANES * 2 * LANES + n % LANES, b = a + LANES;
            x[second ? b : a] = (uint16_t)n;
            x[second ? a : b] = second ? 0x8000 : 0;
        }
        rotate_halves(dtype, isa, length, x, out, table);
        int same = 1;
        for (int64_t n = 0; n < HALVES; n++) {
            const int64_t at = n / LANES * 2 * LANES + n % LANES + (second ? LANES : 0);
            same &= is_nan(x[at], dtype) ? is_nan(out[at], dtype) : x[at] == out[at];
        }
        check(same, "all values come back", NAMES[dtype]);
    }
    free(x);
    free(out);
    free(table);
}

/* Nearest value with the precision and range of dtype, ties to even: rint of the scaled number. */
static double nearest(double v, int dtype) {
    const int bias = (1 << (EXPONENT[dtype] - 1)) - 1;
    int e;
    if (v == 0 || isnan(v) || isinf(v)) return v;
    frexp(v, &e); /* v = m 2^e, 1/2 <= |m| < 1 */
    const int unit = (e - 1 < 1 - bias ? 1 - bias : e - 1) - FRACTION[dtype];
    const double rounded = ldexp(rint(ldexp(v, -unit)), unit);
    return fabs(rounded) >= ldexp(1, bias + 1) ? copysign(INFINITY, v) : rounded;
}

/* x = 1 and sin = 0 send a table entry through the rounding of the result. */
static void check_rounding(int dtype, int64_t isa, const float *values, int64_t count) {
    const int64_t length = (count + LANES - 1) / LANES, numbers = length * 2 * LANES;
    const uint16_t one = dtype == WHORL_BF16 ? 0x3f80 : 0x3c00;
    uint16_t *x = malloc((size_t)numbers * 2), *out = malloc((size_t)numbers * 2);
    float *table = calloc((size_t)numbers, sizeof *table);
    for (int64_t i = 0; i < numbers; i++)
        x[i] = i % (2 * LANES) < LANES ? one : 0;
    for (int64_t n = 0; n < count; n++)
        table[n / LANES * 2 * LANES + n % LANES] = values[n];
    rotate_halves(dtype, isa, length, x, out, table);
    int right = 1;
    for (int64_t n = 0; n < count; n++) {
        const double got = (double)decode(out[n / LANES * 2 * LANES + n % LANES], dtype);
        const double want = nearest(values[n], dtype);
        right &= isnan(want) ? isnan(got) : got == want && !signbit(got) == !signbit(want);
    }
    check(right, "rounds to nearest even", NAMES[dtype]);
    free(x);
    free(out);
    free(table);
}

/* Every value, the tie to its neighbour above, and the floats on both sides of the tie. The tie
 * above the largest value is where overflow begins. */
static void test_rounding(int dtype, int64_t isa) {
    const uint16_t infinity = dtype == WHORL_BF16 ? 0x7f80 : 0x7c00;
    float *values = malloc(sizeof *values * 8 * HALVES);
    int64_t count = 0;
    uint64_t state = 362436069;
    for (uint32_t h = 0; h < infinity; h++) {
        const double low = (double)decode(h, dtype);
        const double step = low - (double)decode(h ? h - 1 : h + 1, dtype);
        const double high = h + 1 < infinity ? (double)decode(h + 1, dtype) : low + step;
        const float tie = (float)((low + high) / 2);
        const float four[] = {(float)low, tie, nextafterf(tie, 0), nextafterf(tie, INFINITY)};
        for (int i = 0; i < 8; i++)
            values[count++] = i % 2 ? -four[i / 2] : four[i / 2];
    }
    check_rounding(dtype, isa, values, count);
    for (int64_t n = 0; n < 8 * HALVES; n++) {
        const uint32_t bits = (uint32_t)(random_bits(&state) >> 32);
        memcpy(&values[n], &bits, sizeof bits);
    }
    check_rounding(dtype, isa, values, 8 * HALVES);
    free(values);
}

/* One tie among numbers that are none, in each channel of each head: 1 times 1 + half a step, which
 * goes down to 1, or a NaN in the table, which must come out as one. */
static void test_lone_ties(int dtype, int64_t isa, int layout, int in_place) {
    const uint16_t one = dtype == WHORL_BF16 ? 0x3f80 : 0x3c00;
    const float tie = 1 + ldexpf(1, -FRACTION[dtype] - 1);
    uint32_t bits = 0x7fffffff;
    float lost;
    memcpy(&lost, &bits, sizeof lost);
    int right = 1;
    for (int at = 0; at < HEADS * 2 * LANES; at++)
        for (int nan = 0; nan < 2; nan++) {
            uint16_t x[HEADS * 2 * LANES], fresh[HEADS * 2 * LANES], *out = in_place ? x : fresh;
            float table[2 * LANES] = {0};
            const int channel = at % (2 * LANES);
            const int pair = layout == WHORL_HALF ? channel % LANES : channel / 2;
            const int other = layout == WHORL_HALF ? (channel + LANES) % (2 * LANES) : channel ^ 1;
            for (int i = 0; i < HEADS * 2 * LANES; i++)
                x[i] = (uint16_t)(one + 1);
            x[at] = one;
            x[at - channel + other] = 0;
            for (int i = 0; i < LANES; i++)
                table[i] = i != pair ? 1 : nan ? lost : tie;
            whorl_rotation job = {.dtype = dtype, .count = 1, .batch = 1, .width = 2 * LANES};
            job.pairs = LANES;
            job.in_layout = job.out_layout = layout;
            job.threads = 1;
            job.isa = isa;
            job.operands[0] = (whorl_operand){.x = x,
                                              .out = out,
                                              .heads = HEADS,
                                              .length = 1,
                                              .x_strides = {0, 2 * LANES, 0},
                                              .out_strides = {0, 2 * LANES, 0},
                                              .table = table,
                                              .table_rows = 1};
            right &= whorl_rotate(&job) == WHORL_OK;
            right &= nan ? is_nan(out[at], dtype) : out[at] == one;
        }
    check(right, "a tie or NaN alone", NAMES[dtype]);
}

void test_halves(void) {
    for (int dtype = WHORL_BF16; dtype <= WHORL_F16; dtype++)
        for (int best = 0; best < 2; best++) {
            const int64_t isa = best ? whorl_best_isa() : WHORL_SCALAR;
            test_all_halves(dtype, isa);
            test_rounding(dtype, isa);
            for (int n = 0; n < 4; n++)
                test_lone_ties(dtype, isa, n % 2 ? WHORL_HALF : WHORL_INTERLEAVED, n / 2);
        }
}
