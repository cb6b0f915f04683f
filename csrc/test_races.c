/* Rows that change while a job runs: a status, and nothing read outside the table. */
#define _POSIX_C_SOURCE 200809L
#include "test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

static const int64_t FAR = 1000000000000;

/* Rows in the memory of the result: rotating the first sequence changes the second one's row, and
 * by then all rows have been found good. */
static void test_row_changed_by_result(void) {
    for (int64_t isa = WHORL_AUTO; isa <= WHORL_SCALAR; isa++) {
        double x[2][2] = {{0.0, 0.0}, {5.0, 6.0}};
        double table[2] = {1.0, 0.0};
        union {
            double out[2][2];
            int64_t rows[2][2];
        } shared = {.rows = {{0, 0}, {0, 0}}};
        memcpy(&x[0][1], &FAR, sizeof FAR);
        whorl_rotation job = {.dtype = WHORL_F64, .count = 1, .batch = 2, .width = 2, .pairs = 1};
        job.threads = 1;
        job.isa = isa;
        job.operands[0] = (whorl_operand){.x = x,
                                          .out = shared.out,
                                          .heads = 1,
                                          .length = 1,
                                          .x_strides = {2, 2, 2},
                                          .out_strides = {2, 2, 2},
                                          .table = table,
                                          .table_rows = 1,
                                          .rows = &shared.rows[0][0],
                                          .rows_strides = {1, 1}};
        check(whorl_rotate(&job) == WHORL_CHANGED, "changed row", "status");
        check(shared.rows[0][1] == FAR, "changed row", "the first sequence was rotated");
        check(shared.rows[1][0] == 0 && shared.rows[1][1] == 0, "changed row", "the second not");
    }
}

enum { BATCH = 512, WIDTH = 8 };

typedef struct {
    _Atomic int64_t *row;
    atomic_int stop;
} toggler;

static void *toggle(void *given) {
    toggler *t = given;
    while (!atomic_load_explicit(&t->stop, memory_order_relaxed)) {
        atomic_store_explicit(t->row, FAR, memory_order_relaxed);
        atomic_store_explicit(t->row, 0, memory_order_relaxed);
    }
    return NULL;
}

/* A decode step of many sequences, over and over, while another thread moves the last offset far
 * outside the table and back. */
static void hammer(double seconds, const double *steps, long seen[2]) {
    static float x[BATCH * WIDTH], out[BATCH * WIDTH], table[WIDTH];
    static int64_t rows[BATCH];
    const whorl_row_source source = {.steps = steps, .scale = 1.0};
    toggler t = {.row = (_Atomic int64_t *)&rows[BATCH - 1]};
    atomic_init(&t.stop, 0);
    whorl_rotation job = {.count = 1, .batch = BATCH, .width = WIDTH, .pairs = WIDTH / 2};
    job.threads = 1;
    job.operands[0] = (whorl_operand){.x = x,
                                      .out = out,
                                      .heads = 1,
                                      .length = 1,
                                      .x_strides = {WIDTH, WIDTH, WIDTH},
                                      .out_strides = {WIDTH, WIDTH, WIDTH},
                                      .table = table,
                                      .table_rows = 1,
                                      .rows = rows,
                                      .rows_strides = {1, 1},
                                      .source = &source};
    pthread_t thread;
    check(!pthread_create(&thread, NULL, toggle, &t), "hammer", "a thread");
    struct timespec begin, now;
    double passed;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    do {
        for (int n = 0; n < 100; n++) {
            const int64_t status = whorl_rotate(&job);
            seen[status == WHORL_OK]++;
            if (status != WHORL_OK && status != WHORL_BAD_ROW && status != WHORL_CHANGED)
                check(0, "hammer", "status");
        }
        clock_gettime(CLOCK_MONOTONIC, &now);
        passed = (double)(now.tv_sec - begin.tv_sec) + 1e-9 * (double)(now.tv_nsec - begin.tv_nsec);
        /* The other thread may get no time for a while on a busy machine. */
    } while (passed < seconds || (!steps && passed < 60 && !(seen[0] && seen[1])));
    atomic_store(&t.stop, 1);
    pthread_join(thread, NULL);
}

void test_races(double seconds) {
    test_row_changed_by_result();
    double inv_freq[WIDTH / 2] = {1.0, 0.1, 0.01, 0.001}, steps[WHORL_STEPS * 3 * WIDTH / 2];
    check(whorl_build_steps(inv_freq, NULL, WIDTH / 2, steps) == WHORL_OK, "hammer", "steps");
    long seen[2] = {0, 0};
    hammer(seconds, NULL, seen);
    check(seen[0] > 0 && seen[1] > 0, "hammer", "rows inside and outside the table");
    seen[0] = 0;
    hammer(seconds / 5, steps, seen);
    check(seen[0] == 0, "hammer", "rows outside the table are built");
}
