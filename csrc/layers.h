/* One row of each layer, for every instruction set: plain loops that compilers turn into vectors.
 *
 * Included by layers.c and layers_avx2.c, which name the functions by WHORL_ROW(name) and bring,
 * for LANES numbers at a time,
 *
 *     gated        out = gate sigmoid(gate) up
 *     gated_back   its gradients of gate and up
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

static float row_total(const float *lanes) {
    return ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) +
           ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
}

/* y = x r w, r = 1 / sqrt(mean(x^2) + eps); returns r. */
static float WHORL_ROW(rms_norm)(const float *x, const float *w, float *y, int64_t width,
                                 float eps) {
    float lanes[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= width; i += LANES)
        for (int l = 0; l < LANES; l++)
            lanes[l] += x[i + l] * x[i + l];
    float sum = row_total(lanes);
    for (; i < width; i++)
        sum += x[i] * x[i];
    const float r = 1.0f / sqrtf(sum / (float)width + eps);
    for (i = 0; i < width; i++)
        y[i] = x[i] * r * w[i];
    return r;
}

/* dx = r (g w - n mean(g w n)), n = x r; adds g n to dw. */
static void WHORL_ROW(rms_norm_back)(const float *g, const float *x, const float *w, float r,
                                     float *dx, float *dw, int64_t width) {
    float lanes[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= width; i += LANES)
        for (int l = 0; l < LANES; l++)
            lanes[l] += g[i + l] * w[i + l] * x[i + l];
    float sum = row_total(lanes);
    for (; i < width; i++)
        sum += g[i] * w[i] * x[i];
    const float mean = sum / (float)width * r * r;
    for (i = 0; i < width; i++)
        dx[i] = r * (g[i] * w[i] - x[i] * mean);
    for (i = 0; i < width; i++)
        dw[i] += g[i] * (x[i] * r);
}

/* The last few numbers of a row go through copies, so that no one reads past them. */
static void WHORL_ROW(swiglu)(const float *x, float *out, int64_t inner) {
    const float *gate = x, *up = x + inner;
    int64_t i = 0;
    for (; i + LANES <= inner; i += LANES)
        gated(gate + i, up + i, out + i);
    if (i == inner) return;
    const size_t rest = (size_t)(inner - i) * sizeof(float);
    float a[LANES] = {0}, b[LANES] = {0}, c[LANES];
    memcpy(a, gate + i, rest);
    memcpy(b, up + i, rest);
    gated(a, b, c);
    memcpy(out + i, c, rest);
}

static void WHORL_ROW(swiglu_back)(const float *g, const float *x, float *dx, int64_t inner) {
    const float *gate = x, *up = x + inner;
    int64_t i = 0;
    for (; i + LANES <= inner; i += LANES)
        gated_back(g + i, gate + i, up + i, dx + i, dx + inner + i);
    if (i == inner) return;
    const size_t rest = (size_t)(inner - i) * sizeof(float);
    float a[LANES] = {0}, b[LANES] = {0}, c[LANES] = {0}, da[LANES], db[LANES];
    memcpy(c, g + i, rest);
    memcpy(a, gate + i, rest);
    memcpy(b, up + i, rest);
    gated_back(c, a, b, da, db);
    memcpy(dx + i, da, rest);
    memcpy(dx + inner + i, db, rest);
}
