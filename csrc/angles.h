/* cos and sin of angles, for every instruction set: plain loops that compilers make vector code of.
 *
 * Included by angles.c and angles_avx2.c, which name the functions by WHORL_ANGLES(name). Every
 * operation is rounded by itself, so that all versions give the same bits.
 */
#include "angles_rows.h"

#include <string.h>

INLINE uint64_t double_bits(double d) {
    uint64_t u;
    memcpy(&u, &d, sizeof u);
    return u;
}

INLINE double from_double_bits(uint64_t u) {
    double d;
    memcpy(&d, &u, sizeof d);
    return d;
}

/* angle = position inv_freq, rounded once, and its cos and sin with an error below one unit in the
 * last place, where |angle| <= WHORL_LARGEST_ANGLE.
 *
 * angle = k pi/2 + r + y with |r| <= pi/4. pi/2 is three numbers, the first two of 29 bits each: k
 * has at most 24, so their products with k are exact; y holds what r cannot. The polynomials are
 * fdlibm's (Sun Microsystems, 1993), near-minimax on that interval. */
static void WHORL_ANGLES(direct)(double position, const double *inv_freq, int64_t count,
                                 whorl_angles *to) {
    const double whole = 0x1.8p52; /* adding it rounds to an integer, which the last bits hold */
    for (int64_t i = 0; i < count; i++) {
        const double angle = position * inv_freq[i];
        const double shifted = angle * 0x1.45f306dc9c883p-1 + whole;
        const double k = shifted - whole;
        const uint64_t quadrant = double_bits(shifted);
        const double a = angle - k * 0x1.921fb54p+0, b = k * 0x1.10b4611p-30;
        const double high = a - b, less = high - a;
        const double low = ((a - (high - less)) - (b + less)) - k * 0x1.4c4c6628b80dcp-59;
        const double r = high + low, y = (high - r) + low, z = r * r;
        const double s = z * 1.58969099521155010221e-10 - 2.50507602534068634195e-08;
        const double s2 = z * s + 2.75573137070700676789e-06;
        const double s3 = z * (z * s2 - 1.98412698298579493134e-04) + 8.33333333332248946124e-03;
        const double cube = z * r;
        const double sine =
            r - ((z * (0.5 * y - cube * s3) - y) + cube * 1.66666666666666324348e-1);
        const double c = z * -1.13596475577881948265e-11 + 2.08757232129817482790e-09;
        const double c2 = z * (z * c - 2.75573143513906633035e-07) + 2.48015872894767294178e-05;
        const double c3 = z * (z * c2 - 1.38888888888741095749e-03) + 4.16666666666666019037e-02;
        const double half = 0.5 * z, rest = 1.0 - half;
        const double cosine = rest + (((1.0 - rest) - half) + (z * (z * c3) - r * y));
        const uint64_t first = double_bits(quadrant & 1 ? sine : cosine);
        const uint64_t second = double_bits(quadrant & 1 ? cosine : sine);
        to->angle[i] = angle;
        to->cosine[i] = from_double_bits(first ^ ((quadrant + 1) & 2) << 62);
        to->sine[i] = from_double_bits(second ^ (quadrant & 2) << 62);
    }
}

/* One row of a table, scale cos and scale sin, where position = coarse + fine.
 *
 * The angle is position inv_freq, rounded once, which differs a little from the sum of the two
 * angles; the difference is exact by Sterbenz' lemma, and so small that a linear term covers it. */
static void WHORL_ANGLES(add)(const whorl_sum *sum, const double *inv_freq, int64_t count,
                              float *cosines, float *sines) {
    const double position = sum->position, scale = sum->scale, sine_scale = sum->sine_scale;
    const double *ca = sum->coarse.angle, *cc = sum->coarse.cosine, *cs = sum->coarse.sine;
    const double *fa = sum->fine.angle, *fc = sum->fine.cosine, *fs = sum->fine.sine;
    for (int64_t i = 0; i < count; i++) {
        const double left = (position * inv_freq[i] - ca[i]) - fa[i];
        const double c = cc[i] * fc[i] - cs[i] * fs[i], s = cs[i] * fc[i] + cc[i] * fs[i];
        cosines[i] = (float)((c - left * s) * scale);
        sines[i] = (float)((s + left * c) * sine_scale);
    }
}

const whorl_angle_rows WHORL_ANGLES(rows) = {WHORL_ANGLES(direct), WHORL_ANGLES(add)};
