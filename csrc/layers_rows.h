/* The row functions of one instruction set. */
#ifndef WHORL_LAYERS_ROWS_H
#define WHORL_LAYERS_ROWS_H

#include "whorl.h"

enum { LANES = 8 };

typedef struct {
    float (*rms_norm)(const float *x, const float *w, float *y, int64_t width, float eps);
    void (*rms_norm_back)(const float *g, const float *x, const float *w, float r, float *dx,
                          float *dw, int64_t width);
    void (*swiglu)(const float *x, float *out, int64_t inner);
    void (*swiglu_back)(const float *g, const float *x, float *dx, int64_t inner);
} whorl_layer_rows;

extern const whorl_layer_rows whorl_layer_rows_avx2;

#endif
