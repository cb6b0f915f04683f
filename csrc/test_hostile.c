/* Jobs with numbers that must be refused, or survived: nothing written, nothing overflowed. */
#include "test.h"

#include <stdlib.h>

/* A job that would succeed, [1, 1, 3, 4] float, with a patterned output. */
typedef struct {
    float x[12], out[12], table[3 * 4];
    int64_t index[3];
    whorl_rotation job;
} small;

static void reset(small *s) {
    memset(s, 0, sizeof *s);
    memset(s->out, PATTERN, sizeof s->out);
    const whorl_operand o = {
        .x = s->x,
        .out = s->out,
        .heads = 1,
        .length = 3,
        .x_strides = {12, 12, 4},
        .out_strides = {12, 12, 4},
        .table = s->table,
        .table_rows = 3,
        .rows_strides = {0, 1},
    };
    s->job = (whorl_rotation){.count = 1, .batch = 1, .width = 4, .pairs = 2, .threads = 1};
    s->job.isa = WHORL_SCALAR;
    s->job.operands[0] = o;
}

static void refused(small *s, int64_t status, const char *what) {
    check(whorl_rotate(&s->job) == status, "refused", what);
    check(all_pattern((const char *)s->out, sizeof s->out), "refused but written", what);
    reset(s);
}

static void test_bad_jobs(void) {
    static const int64_t WRONG[] = {-1, INT64_MIN, INT64_MAX};
    small s;
    reset(&s);
    int64_t *const numbers[] = {&s.job.dtype,     &s.job.count,      &s.job.start,  &s.job.pairs,
                                &s.job.in_layout, &s.job.out_layout, &s.job.threads};
    for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++)
        for (size_t w = 0; w < 3; w++) {
            *numbers[n] = WRONG[w];
            refused(&s, WHORL_BAD_JOB, "a number out of range");
        }
    int64_t *const sizes[] = {&s.job.batch, &s.job.width, &s.job.operands[0].heads,
                              &s.job.operands[0].length, &s.job.operands[0].table_rows};
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++)
        for (size_t w = 0; w < 2; w++) {
            *sizes[n] = WRONG[w];
            refused(&s, WHORL_BAD_JOB, "a negative size");
        }
    s.job.dtype = WHORL_F16 + 1;
    refused(&s, WHORL_BAD_JOB, "dtype 4");
    s.job.in_layout = 2;
    refused(&s, WHORL_BAD_JOB, "layout 2");
    s.job.count = 0;
    refused(&s, WHORL_BAD_JOB, "no operand");
    s.job.count = 3;
    refused(&s, WHORL_BAD_JOB, "three operands");
    s.job.threads = 0;
    refused(&s, WHORL_BAD_JOB, "no thread");
    s.job.start = 1;
    refused(&s, WHORL_BAD_JOB, "channels past the width");
    s.job.start = 5;
    s.job.pairs = 0;
    refused(&s, WHORL_BAD_JOB, "no channels, past the width");
}

static void test_bad_pointers(void) {
    small s;
    reset(&s);
    s.job.operands[0].x = NULL;
    refused(&s, WHORL_BAD_JOB, "no x");
    s.job.operands[0].out = NULL;
    refused(&s, WHORL_BAD_JOB, "no out");
    s.job.operands[0].table = NULL;
    refused(&s, WHORL_BAD_JOB, "no table");
    s.job.operands[0].x = s.out;
    s.job.out_layout = WHORL_INTERLEAVED;
    refused(&s, WHORL_BAD_JOB, "in place from one layout to the other");
    static const int64_t MISSING[] = {WHORL_AVX2 + 1, 99, -1, INT64_MIN, INT64_MAX};
    for (size_t n = 0; n < 5; n++) {
        s.job.isa = MISSING[n];
        refused(&s, WHORL_NO_ISA, "an instruction set that is not there");
    }
    if (whorl_best_isa() == WHORL_AVX2) return;
    s.job.isa = WHORL_AVX2;
    refused(&s, WHORL_NO_ISA, "AVX2 on a CPU without it");
}

static void test_bad_rows(void) {
    static const int64_t FAR[] = {-1, 1, 3, INT64_MIN, INT64_MIN + 1, INT64_MAX - 1, INT64_MAX};
    small s;
    reset(&s);
    for (size_t n = 0; n < sizeof FAR / sizeof *FAR; n++) {
        s.job.operands[0].first_row = FAR[n];
        refused(&s, WHORL_BAD_ROW, "first_row outside the table");
        for (int where = 0; where < 3; where++)
            for (size_t f = 0; f < sizeof FAR / sizeof *FAR; f++) {
                s.job.operands[0].rows = s.index;
                s.job.operands[0].first_row = FAR[f];
                /* first_row 1 brings rows -1 and 1 back into the table, but not row 2. */
                s.index[where] = FAR[f] == 1 && n < 2 ? 2 : FAR[n];
                refused(&s, WHORL_BAD_ROW, "a row outside the table");
            }
    }
    s.job.operands[0].rows = s.index;
    s.job.operands[0].table_rows = INT64_MAX;
    s.index[1] = -1;
    refused(&s, WHORL_BAD_ROW, "row -1 of an endless table");
    s.job.operands[0].table_rows = 2;
    refused(&s, WHORL_BAD_ROW, "a table one row short");
    s.job.operands[0].table_rows = 0;
    s.job.operands[0].table = NULL;
    refused(&s, WHORL_BAD_ROW, "an empty table");
    s.job.operands[0].table_rows = INT64_MAX;
    s.job.operands[0].first_row = INT64_MAX - 2;
    refused(&s, WHORL_BAD_ROW, "rows that end past the last number");
}

/* Nothing to do is no error, whatever the other numbers and pointers are. */
static void test_empty(void) {
    small s;
    reset(&s);
    for (int what = 0; what < 3; what++)
        for (int64_t threads = 1; threads < 4; threads++) {
            whorl_operand *o = &s.job.operands[0];
            s.job.batch = what == 0 ? 0 : INT64_MAX;
            o->heads = what == 1 ? 0 : INT64_MAX;
            o->length = what == 2 ? 0 : INT64_MAX;
            o->x = o->table = o->out = NULL;
            o->first_row = INT64_MIN;
            s.job.threads = threads;
            refused(&s, WHORL_OK, "empty");
        }
    s.job.pairs = 0;
    s.job.operands[0].table = NULL;
    check(whorl_rotate(&s.job) == WHORL_OK, "no pairs", "status");
    check(memcmp(s.out, s.x, sizeof s.x) == 0, "no pairs", "all channels pass through");
    reset(&s);
    s.job.width = s.job.pairs = 0;
    refused(&s, WHORL_OK, "no channels");
}

/* The stride of an axis with one step is never multiplied out; many threads are cut down. */
static void test_extremes(void) {
    small s;
    reset(&s);
    for (int axis = 0; axis < 2; axis++)
        for (int negative = 0; negative < 2; negative++) {
            const int64_t stride = negative ? INT64_MIN : INT64_MAX;
            s.job.operands[0].x_strides[axis] = s.job.operands[0].out_strides[axis] = stride;
            check(whorl_rotate(&s.job) == WHORL_OK, "endless stride", "of a single step");
            reset(&s);
        }
    s.job.operands[0].length = 1;
    s.job.operands[0].x_strides[2] = s.job.operands[0].out_strides[2] = INT64_MAX;
    s.job.operands[0].rows = s.index;
    s.job.operands[0].rows_strides[0] = s.job.operands[0].rows_strides[1] = INT64_MAX;
    s.job.operands[0].table_batch_stride = INT64_MAX;
    check(whorl_rotate(&s.job) == WHORL_OK, "endless stride", "of a single position");
    reset(&s);
    s.job.threads = INT32_MAX;
    check(whorl_rotate(&s.job) == WHORL_OK, "threads", "as many as an int can hold");
    check(memcmp(s.out, s.x, sizeof s.x) == 0, "threads", "right result");
}

/* Advice about memory leaves its contents alone; whether it is taken is the system's affair. */
static void test_huge_pages(void) {
    const int64_t bytes = INT64_C(1) << 22;
    char *memory = malloc((size_t)bytes);
    memset(memory, PATTERN, (size_t)bytes);
    for (int64_t shift = 0; shift < 2; shift++)
        whorl_prefer_huge_pages(memory + shift, bytes - shift);
    check(all_pattern(memory, bytes), "huge pages", "contents untouched");
    for (int64_t less = -2; less < 3; less++)
        whorl_prefer_huge_pages(memory, less);
    whorl_prefer_huge_pages(NULL, 0);
    whorl_prefer_huge_pages(memory, INT64_MIN);
    check(all_pattern(memory, bytes), "huge pages", "of no bytes");
    free(memory);
}

void test_hostile(void) {
    test_bad_jobs();
    test_bad_pointers();
    test_bad_rows();
    test_empty();
    test_extremes();
    test_huge_pages();
}
