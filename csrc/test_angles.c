/* Rows of cos and sin: near the truth, and the same bits whichever way they come about. */
#include "test.h"

#include <float.h>
#include <stdlib.h>

enum { PAIRS = 75 }; /* more than one block, and no multiple of a vector */

static double inv_freq[2 * PAIRS], growth[PAIRS];
static const double ONE = 1.0, SCALES[] = {1.25, 0.5};

static void set_frequencies(void) {
    for (int64_t i = 0; i < PAIRS; i++) {
        inv_freq[i] = pow(10000.0, -(double)i / PAIRS);
        inv_freq[PAIRS + i] = pow(500.0, -(double)i / PAIRS);
        growth[i] = log2(((double)i / PAIRS + 0.4) / 1.4) / 512;
    }
}

static whorl_table consecutive(int64_t first, int64_t length, float *out) {
    return (whorl_table){.kind = WHORL_CONSECUTIVE,
                         .first = first,
                         .batch = 1,
                         .length = length,
                         .pairs = PAIRS,
                         .inv_freq = inv_freq,
                         .scales = &ONE,
                         .out = out,
                         .isa = WHORL_SCALAR};
}

/* The float next to the truth, or one whose error is not much above half a unit in its last place;
 * the truth is cos and sin of the rounded angle. */
static int near_truth(const float *row, double position, const double *frequencies, double scale) {
    for (int64_t i = 0; i < PAIRS; i++) {
        const long double angle = (long double)(position * frequencies[i]);
        const long double truth[] = {cosl(angle) * scale, sinl(angle) * scale};
        for (int part = 0; part < 2; part++) {
            const long double error = fabsl(truth[part] - (long double)row[part * PAIRS + i]);
            if (!(error <= fabsl(truth[part]) * 0x1.000001p-24L + 1e-15L)) return 0;
        }
    }
    return 1;
}

static const int64_t STARTS[] = {0,
                                 -70,
                                 4095,
                                 131071,
                                 (1 << 24) - 64,
                                 -(1 << 24),
                                 (INT64_C(1) << 31) - 3,
                                 INT64_C(1) << 40,
                                 INT64_MIN,
                                 INT64_MAX - 200};

/* As near, times 2^(position growth), whose power is rounded up to three times. */
static int near_grown(const float *row, double position) {
    for (int64_t i = 0; i < PAIRS; i++) {
        const long double angle = (long double)(position * inv_freq[i]);
        const long double factor = exp2l((long double)position * growth[i]);
        const long double truth[] = {cosl(angle) * factor, sinl(angle) * factor};
        for (int part = 0; part < 2; part++) {
            const float got = row[part * PAIRS + i];
            const long double error = fabsl(truth[part] - (long double)got);
            if (fabsl(truth[part]) > FLT_MAX && isinf(got)) continue;
            if (!(error <= fabsl(truth[part]) * 0x1p-24L + 1e-12L * factor + FLT_TRUE_MIN / 2.0L))
                return 0;
        }
    }
    return 1;
}

/* Factors that grow with the position: the same bits whichever way, on either side of 0. */
static void test_growth(void) {
    static float first[150][2 * PAIRS], second[150][2 * PAIRS];
    static double steps[WHORL_STEPS * 3 * PAIRS];
    for (int sign = 0; sign < 2; sign++) {
        for (int64_t i = 0; i < PAIRS; i++)
            growth[i] = -growth[i];
        check(whorl_build_steps(inv_freq, growth, PAIRS, steps) == WHORL_OK, "growth", "steps");
        for (size_t n = 0; n < sizeof STARTS / sizeof *STARTS; n++) {
            whorl_table job = consecutive(STARTS[n], 150, &first[0][0]);
            job.growth = growth;
            check(whorl_build_table(&job) == WHORL_OK, "growth", "status");
            for (int64_t t = 0; t < 150; t++)
                check(near_grown(first[t], (double)(STARTS[n] + t)), "growth", "truth");
            job.out = &second[0][0];
            job.isa = WHORL_AUTO;
            job.steps = steps;
            check(whorl_build_table(&job) == WHORL_OK, "growth", "status of another way");
            check(!memcmp(first, second, sizeof first), "growth", "instruction set and steps");
        }
    }
}

static void test_truth_and_bits(void) {
    static float first[150][2 * PAIRS], second[150][2 * PAIRS];
    double *steps = malloc(sizeof(double) * WHORL_STEPS * 3 * PAIRS);
    check(whorl_build_steps(inv_freq, NULL, PAIRS, steps) == WHORL_OK, "steps", "status");
    for (size_t n = 0; n < sizeof STARTS / sizeof *STARTS; n++) {
        whorl_table job = consecutive(STARTS[n], 150, &first[0][0]);
        check(whorl_build_table(&job) == WHORL_OK, "table", "status");
        for (int64_t t = 0; t < 150; t++)
            check(near_truth(first[t], (double)(STARTS[n] + t), inv_freq, 1.0), "table", "truth");
        job.out = &second[0][0];
        job.isa = WHORL_AUTO;
        job.steps = steps;
        check(whorl_build_table(&job) == WHORL_OK, "table", "status of another way");
        check(!memcmp(first, second, sizeof first), "table", "instruction set and steps");
        memset(second, PATTERN, sizeof second);
        job = consecutive(STARTS[n] + 77, 1, &second[0][0]);
        check(whorl_build_table(&job) == WHORL_OK, "table", "status of one row");
        check(!memcmp(first[77], second[0], sizeof first[0]), "table", "one row alone");
        check(all_pattern((const char *)second[1], sizeof second[1]), "table", "nothing behind it");
    }
    free(steps);
}

/* Positions of their own, frequencies and scales for each sequence; fractions that are whole. */
static void test_by_sequence(void) {
    static const int64_t whole[2][3] = {{5, 4096, -9}, {INT64_C(1) << 33, 0, 70000}};
    static const double mixed[2][3] = {{5, 4096, -9}, {0x1p33, 0, 70000}};
    static const double between[2][3] = {{0.5, -4096.25, 1e300}, {0x1p33 + 0.5, 1e-9, 31.75}};
    static float one[2][3][2 * PAIRS], other[2][3][2 * PAIRS];
    whorl_table job = consecutive(0, 3, &one[0][0][0]);
    job.kind = WHORL_WHOLE;
    job.positions = whole;
    job.positions_strides[0] = 3;
    job.positions_strides[1] = 1;
    job.batch = 2;
    job.inv_freq_stride = PAIRS;
    job.scales = SCALES;
    job.scales_stride = 1;
    check(whorl_build_table(&job) == WHORL_OK, "by sequence", "status");
    for (int n = 0; n < 6; n++)
        check(near_truth(one[n / 3][n % 3], mixed[n / 3][n % 3], inv_freq + n / 3 * PAIRS,
                         SCALES[n / 3]),
              "by sequence", "truth");
    job.kind = WHORL_FRACTIONS;
    job.positions = mixed;
    job.out = &other[0][0][0];
    job.isa = WHORL_AUTO;
    check(whorl_build_table(&job) == WHORL_OK, "fractions", "status");
    check(!memcmp(one, other, sizeof one), "fractions", "that are whole");
    job.positions = between;
    check(whorl_build_table(&job) == WHORL_OK, "fractions", "status between");
    for (int n = 0; n < 6; n++)
        check(near_truth(other[n / 3][n % 3], between[n / 3][n % 3], inv_freq + n / 3 * PAIRS,
                         SCALES[n / 3]),
              "fractions", "truth");
}

static void test_refusals(void) {
    float out[2 * PAIRS];
    memset(out, PATTERN, sizeof out);
    const whorl_table good = consecutive(3, 1, out);
    whorl_table bad[9];
    for (int n = 0; n < 9; n++)
        bad[n] = good;
    bad[0].kind = 3;
    bad[1].kind = -1;
    bad[2].kind = WHORL_WHOLE; /* and no positions */
    bad[3].batch = -1;
    bad[4].length = -1;
    bad[5].pairs = -1;
    bad[6].inv_freq = NULL;
    bad[7].scales = NULL;
    bad[8].out = NULL;
    for (int n = 0; n < 9; n++)
        check(whorl_build_table(&bad[n]) == WHORL_BAD_JOB, "table", "a bad number");
    whorl_table far = consecutive(INT64_MAX, 1, out), empty = {.batch = 1, .pairs = 4};
    check(whorl_build_table(&far) == WHORL_BAD_ROW, "table", "positions past the last number");
    check(whorl_build_table(&empty) == WHORL_OK, "table", "no positions");
    empty = good;
    empty.isa = 99;
    check(whorl_build_table(&empty) == WHORL_NO_ISA, "table", "an unknown instruction set");
    check(whorl_build_steps(NULL, NULL, 1, NULL) == WHORL_BAD_JOB, "steps", "no memory");
    check(whorl_build_steps(inv_freq, NULL, -1, inv_freq) == WHORL_BAD_JOB, "steps", "pairs");
    check(all_pattern((const char *)out, sizeof out), "table", "refused but written");
}

/* Rotations past the table: what a table that holds all rows gives. */
enum {
    BATCH = 2,
    QUERY_HEADS = 6,
    KEY_HEADS = 3,
    LENGTH = 300,
    WIDTH = 2 * PAIRS + 3,
    KNOWN = 140
};
enum { QUERIES = BATCH * QUERY_HEADS * LENGTH * WIDTH, KEYS = BATCH * KEY_HEADS * LENGTH * WIDTH };

static whorl_operand tensor(const float *x, float *out, int64_t heads) {
    const int64_t strides[] = {heads * LENGTH * WIDTH, LENGTH * WIDTH, WIDTH};
    whorl_operand o = {.x = x, .out = out, .heads = heads, .length = LENGTH};
    memcpy(o.x_strides, strides, sizeof strides);
    memcpy(o.out_strides, strides, sizeof strides);
    return o;
}

static void check_past(const char *how, whorl_rotation job, const whorl_operand *full,
                       const whorl_operand *part) {
    float *right = job.operands[0].out, *keys = job.operands[1].out;
    float *got = malloc(sizeof(float) * (QUERIES + KEYS));
    for (int64_t threads = 1; threads < 4; threads += 2)
        for (int64_t isa = WHORL_AUTO; isa <= WHORL_SCALAR; isa++) {
            job.threads = threads;
            job.isa = isa;
            for (int n = 0; n < 2; n++) {
                whorl_operand *o = &job.operands[n];
                o->table = full->table;
                o->table_rows = full->table_rows;
                o->source = full->source;
                o->out = n ? keys : right;
            }
            check(whorl_rotate(&job) == WHORL_OK, how, "status in the table");
            memset(got, PATTERN, sizeof(float) * (QUERIES + KEYS));
            for (int n = 0; n < 2; n++) {
                whorl_operand *o = &job.operands[n];
                o->table = part->table;
                o->table_rows = part->table_rows;
                o->source = part->source;
                o->out = n ? got + QUERIES : got;
            }
            check(whorl_rotate(&job) == WHORL_OK, how, "status past the table");
            check(!memcmp(got, right, sizeof(float) * QUERIES), how, "queries");
            check(!memcmp(got + QUERIES, keys, sizeof(float) * KEYS), how, "keys");
        }
    free(got);
}

static void test_past_the_table(void) {
    uint64_t state = 88172645463325252u;
    float *x = malloc(sizeof(float) * 2 * (QUERIES + KEYS)), *out = x + QUERIES + KEYS;
    for (int64_t i = 0; i < QUERIES + KEYS; i++)
        x[i] = (float)(random_bits(&state) % 2001) / 1000.0f - 1.0f;
    double *steps = malloc(sizeof(double) * WHORL_STEPS * 3 * PAIRS);
    float *table = malloc(sizeof(float) * 2 * PAIRS * (LENGTH + 40));
    whorl_build_steps(inv_freq, NULL, PAIRS, steps);
    whorl_table rows = consecutive(0, LENGTH + 40, table);
    rows.scales = SCALES;
    check(whorl_build_table(&rows) == WHORL_OK, "past the table", "table");
    whorl_rotation job = {.count = 2, .batch = BATCH, .width = WIDTH, .pairs = PAIRS, .start = 1};
    job.operands[0] = tensor(x, out, QUERY_HEADS);
    job.operands[1] = tensor(x + QUERIES, out + QUERIES, KEY_HEADS);
    const whorl_operand full = {.table = table, .table_rows = LENGTH + 40};
    const whorl_row_source source = {.steps = steps, .scale = SCALES[0]};
    whorl_operand part = {.table = table, .table_rows = KNOWN, .source = &source};
    check_past("part in the table", job, &full, &part);
    job.operands[0].first_row = job.operands[1].first_row = 33;
    check_past("an offset", job, &full, &part);
    part.table_rows = 0;
    part.table = NULL;
    check_past("no table", job, &full, &part);
    int64_t index[BATCH][LENGTH];
    for (int64_t i = 0; i < BATCH * LENGTH; i++)
        index[i / LENGTH][i % LENGTH] = (int64_t)(random_bits(&state) % (LENGTH + 40));
    part = (whorl_operand){.table = table, .table_rows = KNOWN, .source = &source};
    for (int n = 0; n < 2; n++) {
        job.operands[n].first_row = 0;
        job.operands[n].rows = &index[0][0];
        job.operands[n].rows_strides[0] = LENGTH;
        job.operands[n].rows_strides[1] = 1;
    }
    check_past("rows by index", job, &full, &part);
    job.operands[1].rows = NULL;
    check_past("keys elsewhere", job, &full, &part);
    const whorl_row_source grown = {.steps = steps, .growth = growth, .scale = SCALES[0]};
    whorl_build_steps(inv_freq, growth, PAIRS, steps);
    rows.growth = growth;
    check(whorl_build_table(&rows) == WHORL_OK, "past the table", "growth");
    part.source = &grown;
    check_past("growth", job, &full, &part);
    free(steps);
    free(table);
    free(x);
}

/* Pairs that rotate by several axes: what a table with every row made for it gives. */
static void test_axes(void) {
    enum { AXES = 3, FAR = 90 };
    static int64_t index[AXES][BATCH][LENGTH], axes[PAIRS];
    static float all[FAR][2 * PAIRS], mixed[BATCH][LENGTH][2 * PAIRS];
    static float x[QUERIES + KEYS], right[QUERIES + KEYS], got[QUERIES + KEYS];
    static double steps[WHORL_STEPS * 3 * PAIRS];
    uint64_t state = 521288629;
    for (int64_t i = 0; i < QUERIES + KEYS; i++)
        x[i] = (float)(random_bits(&state) % 2001) / 1000.0f - 1.0f;
    whorl_build_steps(inv_freq, NULL, PAIRS, steps);
    whorl_table rows = consecutive(0, FAR, &all[0][0]);
    check(whorl_build_table(&rows) == WHORL_OK, "axes", "table");
    for (int way = 0; way < 16; way++) {
        const int chunked = way & 1, past = way & 2, text = way & 4, shared = way & 8;
        for (int64_t i = 0; i < PAIRS; i++)
            axes[i] = chunked ? i * AXES / PAIRS : i % AXES;
        for (int64_t n = 0; n < AXES * BATCH * LENGTH; n++) {
            const int64_t a = n / (BATCH * LENGTH), b = n / LENGTH % BATCH, t = n % LENGTH;
            index[a][b][t] = text && a ? index[0][b][t] : (int64_t)(random_bits(&state) % FAR);
        }
        for (int64_t n = 0; n < BATCH * LENGTH * PAIRS; n++) {
            const int64_t b = n / PAIRS / LENGTH, t = n / PAIRS % LENGTH, i = n % PAIRS;
            const float *row = all[index[axes[i]][shared ? 0 : b][t]];
            mixed[b][t][i] = row[i];
            mixed[b][t][PAIRS + i] = row[PAIRS + i];
        }
        const whorl_row_source source = {past ? steps : NULL, NULL, axes, AXES, 1.0};
        whorl_rotation job = {.count = 2, .batch = BATCH, .width = WIDTH, .pairs = PAIRS};
        job.threads = way % 3 + 1;
        job.isa = way % 2 ? WHORL_AUTO : WHORL_SCALAR;
        for (int given = 0; given < 2; given++) {
            float *out = given ? got : right;
            job.operands[0] = tensor(x, out, QUERY_HEADS);
            job.operands[1] = tensor(x + QUERIES, out + QUERIES, KEY_HEADS);
            for (int n = 0; n < 2; n++) {
                whorl_operand *o = &job.operands[n];
                o->table = given ? &all[0][0] : &mixed[0][0][0];
                o->table_rows = given ? (past ? FAR / 2 : FAR) : LENGTH;
                o->table_batch_stride = given ? 0 : LENGTH * 2 * PAIRS;
                if (!given) continue;
                o->rows = &index[0][0][0];
                o->rows_strides[0] = shared ? 0 : LENGTH;
                o->rows_strides[1] = 1;
                o->rows_strides[2] = BATCH * LENGTH;
                o->source = &source;
            }
            check(whorl_rotate(&job) == WHORL_OK, "axes", "status");
        }
        check(!memcmp(got, right, sizeof got), "axes", "bits");
    }
}

/* Keys that are written where the queries were: not before these are read. */
static void test_keys_over_queries(void) {
    enum { SIZE = BATCH * LENGTH * WIDTH };
    uint64_t state = 362436069;
    float *x = malloc(sizeof(float) * 2 * SIZE), *right = malloc(sizeof(float) * 3 * SIZE);
    for (int64_t i = 0; i < 2 * SIZE; i++)
        x[i] = (float)(random_bits(&state) % 2001) / 1000.0f - 1.0f;
    double *steps = malloc(sizeof(double) * WHORL_STEPS * 3 * PAIRS);
    whorl_build_steps(inv_freq, NULL, PAIRS, steps);
    whorl_rotation job = {.count = 2, .batch = BATCH, .width = WIDTH, .pairs = PAIRS, .threads = 1};
    job.operands[0] = tensor(x, right, 1);
    job.operands[1] = tensor(x + SIZE, right + SIZE, 1);
    const whorl_row_source source = {.steps = steps, .scale = SCALES[0]};
    job.operands[0].source = job.operands[1].source = &source;
    check(whorl_rotate(&job) == WHORL_OK, "keys over queries", "status apart");
    job.operands[0].out = right + 2 * SIZE;
    job.operands[1].out = x;
    check(whorl_rotate(&job) == WHORL_OK, "keys over queries", "status");
    check(!memcmp(right, right + 2 * SIZE, sizeof(float) * SIZE), "keys over queries", "queries");
    check(!memcmp(x, right + SIZE, sizeof(float) * SIZE), "keys over queries", "keys");
    free(steps);
    free(x);
    free(right);
}

/* Steps that must be refused. */
static void test_bad_steps(void) {
    float x[4] = {0}, out[4];
    double steps[WHORL_STEPS * 3 * 2] = {0};
    const whorl_row_source source = {.steps = steps, .scale = 1.0};
    int64_t index = 0;
    memset(out, PATTERN, sizeof out);
    whorl_rotation job = {.count = 1, .batch = 1, .width = 4, .pairs = 2, .threads = 1};
    job.operands[0] =
        (whorl_operand){.x = x, .out = out, .heads = 1, .length = 1, .source = &source};
    whorl_rotation bad[5] = {job, job, job, job, job};
    bad[0].dtype = WHORL_F64;
    bad[1].operands[0].table_batch_stride = 4;
    bad[2].operands[0].rows = &index;
    bad[2].operands[0].first_row = 1;
    bad[3].operands[0].table_rows = 1; /* and no table */
    bad[4].pairs = WHORL_MOST_PAIRS + 1;
    bad[4].width = 2 * bad[4].pairs;
    for (int n = 0; n < 5; n++)
        check(whorl_rotate(&bad[n]) == WHORL_BAD_JOB, "steps", "of a job that cannot have them");
    job.operands[0].first_row = INT64_MAX;
    check(whorl_rotate(&job) == WHORL_BAD_ROW, "steps", "positions past the last number");
    check(all_pattern((const char *)out, sizeof out), "steps", "refused but written");
}

/* Axes that must be refused, and rows that one of them has and the table has not. */
static void test_bad_axes(void) {
    float x[4] = {0}, out[4], table[4] = {0};
    int64_t index[] = {0, 1}, good[] = {0, 1}, high[] = {0, 2}, low[] = {-1, 0};
    memset(out, PATTERN, sizeof out);
    const whorl_row_source source[] = {
        {.axes = high, .axis_count = 2}, {.axes = low, .axis_count = 2}, {.axes = good}};
    whorl_rotation job = {.count = 1, .batch = 1, .width = 4, .pairs = 2, .threads = 1};
    job.operands[0] = (whorl_operand){.x = x, .out = out, .heads = 1, .length = 1};
    job.operands[0].table = table;
    job.operands[0].table_rows = 1;
    job.operands[0].rows = index;
    job.operands[0].rows_strides[2] = 1;
    for (int n = 0; n < 3; n++) {
        job.operands[0].source = &source[n];
        check(whorl_rotate(&job) == WHORL_BAD_JOB, "axes", "that are not there");
    }
    const whorl_row_source right = {.axes = good, .axis_count = 2};
    job.operands[0].source = &right;
    check(whorl_rotate(&job) == WHORL_BAD_ROW, "axes", "a row outside the table");
    job.dtype = WHORL_F64;
    check(whorl_rotate(&job) == WHORL_BAD_JOB, "axes", "of doubles");
    check(all_pattern((const char *)out, sizeof out), "axes", "refused but written");
}

void test_angles(void) {
    set_frequencies();
    test_truth_and_bits();
    test_growth();
    test_axes();
    test_bad_axes();
    test_by_sequence();
    test_refusals();
    test_past_the_table();
    test_keys_over_queries();
    test_bad_steps();
}
