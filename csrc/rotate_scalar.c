/* Pair after pair, for every CPU; the arithmetic is in pair.h. */
#include "pair.h"

INLINE void span(const whorl_span *s, int dtype, int in_layout, int out_layout) {
    for (int64_t j = 0; j < s->count; j++) {
        const char *row = s->rows[j];
        for (int64_t g = 0; g < s->group; g++) {
            const char *x = s->x + j * s->x_step + g * s->x_head;
            char *out = s->out + j * s->out_step + g * s->out_head;
            whorl_pass_through(s, x, out);
            for (int64_t i = 0; i < s->pairs; i++)
                whorl_rotate_pair(x + s->head_bytes, out + s->head_bytes, row, i, s, dtype,
                                  in_layout, out_layout);
        }
    }
}

SPANS(WHORL_F32)
SPANS(WHORL_F64)
SPANS(WHORL_BF16)
SPANS(WHORL_F16)

whorl_span_fn whorl_scalar_span(int64_t dtype, int64_t in_layout, int64_t out_layout) {
    static const whorl_span_fn spans[4][2][2] = {SPAN_NAMES(WHORL_F32), SPAN_NAMES(WHORL_F64),
                                                 SPAN_NAMES(WHORL_BF16), SPAN_NAMES(WHORL_F16)};
    return spans[dtype][in_layout][out_layout];
}
