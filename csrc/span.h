/* Internal: what the threading loop in rotate.c hands to the instruction-set specific code. */
#ifndef WHORL_SPAN_H
#define WHORL_SPAN_H

#include "whorl.h"

#include <stddef.h>
#include <string.h>

#if defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline))
#else
#define INLINE static inline
#endif

/* Heads that walk through positions together: one load from the table then serves four of them. */
#define WHORL_GROUP 4

/* `count` positions, and at each of them `group` heads that share its table row. */
typedef struct {
    const char *x;
    char *out;
    int64_t count;
    int64_t x_step; /* bytes from position to position */
    int64_t out_step;
    int64_t group;
    int64_t x_head; /* bytes from head to head */
    int64_t out_head;
    const char *const *rows; /* cos and sin of each position, 2 P table entries */
    int64_t pairs;
    int64_t head_bytes;    /* channels before the rotated channels */
    int64_t rotated_bytes; /* the rotated channels */
    int64_t tail_bytes;    /* channels after it */
    int negate;            /* 1: sin is negated */
} whorl_span;

typedef void (*whorl_span_fn)(const whorl_span *);

/* NULL when this build has no such code. */
whorl_span_fn whorl_scalar_span(int64_t dtype, int64_t in_layout, int64_t out_layout);
whorl_span_fn whorl_avx2_span(int64_t dtype, int64_t in_layout, int64_t out_layout);

/* Copies the channels outside the rotated channels; in place they are already there. Mostly there
 * are none, and even a memcpy of nothing is a call. */
INLINE void whorl_pass_through(const whorl_span *s, const char *x, char *out) {
    if (x == out) return;
    const int64_t end = s->head_bytes + s->rotated_bytes;
    if (s->head_bytes) memcpy(out, x, (size_t)s->head_bytes);
    if (s->tail_bytes) memcpy(out + end, x + end, (size_t)s->tail_bytes);
}

/* One function per dtype and pair of layouts, from one inlined `span` with constant arguments. */
#define SPANS(dtype)                                                                               \
    static void dtype##_hh(const whorl_span *s) { span(s, dtype, WHORL_HALF, WHORL_HALF); }        \
    static void dtype##_hi(const whorl_span *s) { span(s, dtype, WHORL_HALF, WHORL_INTERLEAVED); } \
    static void dtype##_ih(const whorl_span *s) { span(s, dtype, WHORL_INTERLEAVED, WHORL_HALF); } \
    static void dtype##_ii(const whorl_span *s) {                                                  \
        span(s, dtype, WHORL_INTERLEAVED, WHORL_INTERLEAVED);                                      \
    }
#define SPAN_NAMES(dtype)                                                                          \
    {                                                                                              \
        {dtype##_hh, dtype##_hi}, { dtype##_ih, dtype##_ii }                                       \
    }

#endif
