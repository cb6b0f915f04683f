/* The whole C ABI of whorl: one rotation of channel pairs, in any dtype, layout and stride; tables
 * of cos and sin for it; and scores of pairs of tokens by the bucket of their distance.
 *
 * Plain C11, no torch or Python headers: the caller passes pointers, sizes and strides.
 * Every number is an int64_t so that a binding can fill a job with one packed array.
 * Axes: B batch, H heads, T positions, D head width, P rotated pairs (2 P <= D).
 *
 *     out[b, h, t, a_i] = x[b, h, t, a_i] * cos - x[b, h, t, b_i] * sin
 *     out[b, h, t, b_i] = x[b, h, t, b_i] * cos + x[b, h, t, a_i] * sin
 *
 * with (cos, sin) = table[b, row(b, t), :, i] and (a_i, b_i) the i-th pair of the layout.
 */
#ifndef WHORL_H
#define WHORL_H

#include <stdint.h>

#if defined(_WIN32)
#define WHORL_API __declspec(dllexport)
#elif defined(__GNUC__)
#define WHORL_API __attribute__((visibility("default")))
#else
#define WHORL_API
#endif

/* Raised whenever a struct or an enum below changes; a binding refuses another number. */
#define WHORL_ABI 5

enum whorl_status {
    WHORL_OK = 0,
    WHORL_BAD_JOB = 1, /* a size, stride or enum is out of range: nothing was written */
    WHORL_BAD_ROW = 2, /* a row lies outside the table: nothing was written */
    WHORL_NO_ISA = 3,  /* the instruction set asked for is not there: nothing was written */
    WHORL_CHANGED = 4  /* a row left the table while the job ran: part of `out` was written */
};

enum whorl_dtype { WHORL_F32 = 0, WHORL_F64 = 1, WHORL_BF16 = 2, WHORL_F16 = 3 };

/* WHORL_HALF pairs channel i with i + P, WHORL_INTERLEAVED pairs 2i with 2i + 1. */
enum whorl_layout { WHORL_HALF = 0, WHORL_INTERLEAVED = 1 };

enum whorl_isa { WHORL_AUTO = 0, WHORL_SCALAR = 1, WHORL_AVX2 = 2 };

/* What rows of cos and sin are built from, and what a pair takes from a row. Not with F64, nor with
 * more than WHORL_MOST_PAIRS, nor with a table for each batch row. */
typedef struct {
    /* NULL, or what rows outside the table, 0 .. table_rows - 1, are built from: see
     * whorl_build_steps. */
    const double *steps;
    const double *growth; /* [P], that the steps were built with, or NULL */
    const int64_t *axes;  /* [P]: pair i is in the row that rows[axes[i]] names; or NULL */
    int64_t axis_count;   /* of rows, where there are axes */
    double scale;         /* of the rows that are built */
} whorl_row_source;

enum { WHORL_MOST_PAIRS = 8192 };

/* One tensor [B, H, T, D] to rotate. Strides count elements; the last dimension is contiguous.
 * `out` is `x` itself (same strides, in_layout == out_layout) or does not overlap it. */
typedef struct {
    const void *x;
    void *out;
    int64_t heads;
    int64_t length;
    int64_t x_strides[3];   /* B, H, T */
    int64_t out_strides[3]; /* B, H, T */
    const void *table; /* [B or 1, table_rows, 2, P]: cos then sin; double for F64, else float */
    int64_t table_rows;
    int64_t table_batch_stride; /* elements; 0 when all batch rows share the table */
    const int64_t *rows;        /* row(b, t) = first_row + rows[b, t], or first_row + t when NULL */
    int64_t rows_strides[3];    /* B, T, axis */
    int64_t first_row;          /* not negative, unless there are steps */
    const whorl_row_source *source; /* NULL: all rows are in the table, whole */
} whorl_operand;

typedef struct {
    int64_t dtype;
    int64_t count; /* operands in use: 1 or 2 (queries and keys in one call) */
    int64_t batch;
    int64_t width; /* D */
    int64_t start; /* first rotated channel; channels outside [start, start + 2 P) pass through */
    int64_t pairs; /* P */
    int64_t in_layout;
    int64_t out_layout;
    int64_t
        transpose;   /* 1 negates sin: the inverse of an unscaled rotation, and its backward pass */
    int64_t threads; /* at least 1; more than whorl_max_threads() counts as that many */
    int64_t isa;
    whorl_operand operands[2];
} whorl_rotation;

WHORL_API int64_t whorl_abi(void);

/* The instruction set that WHORL_AUTO stands for on this CPU. */
WHORL_API int64_t whorl_best_isa(void);

/* The most threads a call can use: 1 when the library was built without OpenMP. */
WHORL_API int64_t whorl_max_threads(void);

/* Advises the system to back fresh memory with huge pages, where it can; contents are untouched. */
WHORL_API int64_t whorl_prefer_huge_pages(void *memory, int64_t bytes);

/* Rotates, or returns a status. Another thread may write to `rows` meanwhile: each of them is read
 * anew where it is used, once, and nothing outside the table is read. */
WHORL_API int64_t whorl_rotate(const whorl_rotation *job);

/* Rows of a table, float32: out[b, t, 0, i] = scale cos(p inv_freq[i]), out[b, t, 1, i] with sin.
 *
 * The angle is formed in double and rounded once; an unscaled entry is within 6e-8 of the truth up
 * to position 2^24. With growth, cos and sin of pair i are multiplied by 2^(p growth[i]). A row
 * depends on its position, inv_freq, growth and scale alone: not on the other rows, the instruction
 * set, or whether there are steps. whorl_rotate builds the same bits. */
enum whorl_positions { WHORL_CONSECUTIVE = 0, WHORL_WHOLE = 1, WHORL_FRACTIONS = 2 };

typedef struct {
    int64_t kind;
    const void *positions;        /* int64_t if WHOLE, double if FRACTIONS, else p = first + t */
    int64_t positions_strides[2]; /* B, T */
    int64_t first;
    int64_t batch;
    int64_t length;
    int64_t pairs;
    const double *inv_freq; /* [B or 1, P] */
    int64_t inv_freq_stride;
    const double *scales; /* [B or 1] */
    int64_t scales_stride;
    const double *steps;  /* of inv_freq, where all rows share it, or NULL: slower */
    const double *growth; /* [P], or NULL */
    float *out;           /* [B, T, 2, P] */
    int64_t isa;
} whorl_table;

WHORL_API int64_t whorl_build_table(const whorl_table *job);

/* Writes angle, cos and sin of the first WHORL_STEPS positions, [WHORL_STEPS, 3, P]; growth may be
 * NULL. */
enum { WHORL_STEPS = 32 };
WHORL_API int64_t whorl_build_steps(const double *inv_freq, const double *growth, int64_t pairs,
                                    double *steps);

/* Scores of N matrices by the bucket of a distance, which is what DeBERTa adds to q k^T:
 *
 *     out[n, t, s] = by_query[n, t, query_index[j]] + by_key[n, s, key_index[j]]
 *
 * with j = s - t + T - 1, so that keys of one query are side by side and distances fall with j. No
 * other thread may write to an index meanwhile. */
typedef struct {
    int64_t dtype; /* WHORL_F32 or WHORL_F64 */
    int64_t matrices;
    int64_t queries; /* T */
    int64_t keys;    /* S */
    void *by_query;  /* [N, T, query_buckets]; NULL with its index if there is no such term */
    int64_t query_buckets;
    const int32_t *query_index; /* [T + S - 1] */
    void *by_key;               /* [N, S, key_buckets]; NULL with its index, likewise */
    int64_t key_buckets;
    const int32_t *key_index; /* [T + S - 1] */
    int64_t key_stride;       /* elements of by_key from matrix to matrix, which do not overlap */
    void *out;                /* [N, T, S] */
    int64_t threads;
    int64_t isa;
} whorl_scores;

/* Writes `out`. */
WHORL_API int64_t whorl_gather_scores(const whorl_scores *job);

/* The gradient: reads `out`, and adds each number to its two places in by_query and by_key. */
WHORL_API int64_t whorl_scatter_scores(const whorl_scores *job);

#endif
