/* Internal: what is computed about the angles of one position, and the functions of one
 * instruction set that do it. */
#ifndef WHORL_ANGLES_ROWS_H
#define WHORL_ANGLES_ROWS_H

#include "span.h"

#define WHORL_LARGEST_ANGLE 0x1p24

/* One number for each pair. */
typedef struct {
    double *angle, *cosine, *sine;
} whorl_angles;

typedef struct {
    const double *angle, *cosine, *sine;
} whorl_known_angles;

typedef struct {
    double position;
    whorl_known_angles coarse, fine; /* of two positions that add up to it */
    double scale, sine_scale;
} whorl_sum;

typedef struct {
    void (*direct)(double position, const double *inv_freq, int64_t count, whorl_angles *to);
    void (*add)(const whorl_sum *sum, const double *inv_freq, int64_t count, float *cosines,
                float *sines);
} whorl_angle_rows;

extern const whorl_angle_rows whorl_angles_scalar_rows, whorl_angles_avx2_rows;

/* NULL when the instruction set is not there. */
const whorl_angle_rows *whorl_choose_angle_rows(int64_t isa);

/* What table rows are made from; the angles of one sequence. */
typedef struct {
    const double *inv_freq; /* [P] */
    const double *steps;    /* what whorl_build_steps wrote, or NULL */
    const double *growth;   /* log2 of a factor per position, [P], or NULL */
    int64_t pairs;
    double scale;
    const whorl_angle_rows *rows;
} whorl_row_builder;

/* Writes cos and sin of positions[n] to rows[n], for n < count. */
void whorl_fill_rows(const whorl_row_builder *from, const int64_t *positions, float *const *rows,
                     int64_t count);

#endif
