/* Trigonometric functions and their inverses on f32 vectors. Coefficients and errors as in math.h. */
#ifndef TINYCOMP_KERNELS_COMMON_TRIG_H
#define TINYCOMP_KERNELS_COMMON_TRIG_H

#include "vocabulary.h"

#include "math.h"

/* Up to here a fused multiply-add takes multiples of pi/2 away from an argument without an error that matters. */
#define TC_TRIG_LIMIT 100000.0f

/* x or -x: the sign of `sign`, which is that of a float or its highest bit alone, put onto a number that is not below
 * 0. */
TC_INLINE tc_vf tc_vf_with_sign(tc_vf x, tc_vi sign) {
  return tc_vf_of_bits(tc_vi_add(tc_vf_bits(x), tc_vi_and(sign, tc_vi_set1(INT32_MIN))));
}

/* An argument as n * pi/2 + r with |r| not much above pi/4, the sine and the cosine of r, and n as an integer. */
typedef struct tc_turn {
  tc_vf sin, cos;
  tc_vi quadrant;
} tc_turn;

/* For |x| up to TC_TRIG_LIMIT. The first product has few enough bits that the first difference is exact. */
TC_INLINE tc_turn tc_vf_turn(tc_vf x) {
  static const float sine[] = {-0.16666667f, 0.0083333785f, -0.00019852484f, 2.8247202e-06f};
  static const float cosine[] = {0.041666668f, -0.0013888979f, 2.4821338e-05f, -2.8793613e-07f};
  const tc_vf n = tc_vf_round(tc_vf_mul(x, tc_vf_set1(0.636619772f))), minus = tc_vf_sub(tc_vf_set1(0.0f), n);
  const tc_vf high = tc_vf_fma(minus, tc_vf_set1(1.57079637f), x);
  const tc_vf r = tc_vf_fma(minus, tc_vf_set1(-1.7151245e-15f), tc_vf_fma(minus, tc_vf_set1(-4.37113883e-8f), high));
  const tc_vf r2 = tc_vf_mul(r, r), half = tc_vf_fma(r2, tc_vf_set1(-0.5f), tc_vf_set1(1.0f));
  return (tc_turn){tc_vf_fma(tc_vf_mul(r2, r), TC_POLYNOMIAL(r2, sine), r),
                   tc_vf_fma(tc_vf_mul(r2, r2), TC_POLYNOMIAL(r2, cosine), half), tc_vf_to_int(n)};
}

/* Whether a quadrant is odd. */
TC_INLINE tc_vm tc_turn_odd(tc_vi quadrant) {
  return tc_vf_lt(tc_vf_set1(0.0f), tc_vi_to_float(tc_vi_and(quadrant, tc_vi_set1(1))));
}

/* The sine of a quarter turn times `quadrant` more: bit 1 of a quadrant becomes the sign, whose bit is added. */
TC_INLINE tc_vf tc_turn_sin(const tc_turn *turn, tc_vi quadrant) {
  const tc_vf y = tc_vf_select(tc_turn_odd(quadrant), turn->cos, turn->sin);
  return tc_vf_with_sign(y, tc_vi_shift_left(quadrant, tc_vi_set1(30)));
}

/* sin x and cos x, within 2 ulp, for |x| up to TC_TRIG_LIMIT. */
TC_INLINE tc_vf tc_vf_sin(tc_vf x) {
  const tc_turn turn = tc_vf_turn(x);
  return tc_vf_select(tc_vf_eq(x, tc_vf_set1(0.0f)), x, tc_turn_sin(&turn, turn.quadrant));
}
TC_INLINE tc_vf tc_vf_cos(tc_vf x) {
  const tc_turn turn = tc_vf_turn(x);
  return tc_turn_sin(&turn, tc_vi_add(turn.quadrant, tc_vi_set1(1)));
}

/* tan x, within 4 ulp, for |x| up to TC_TRIG_LIMIT. */
TC_INLINE tc_vf tc_vf_tan(tc_vf x) {
  const tc_turn turn = tc_vf_turn(x);
  const tc_vm odd = tc_turn_odd(turn.quadrant);
  const tc_vf above = tc_vf_select(odd, turn.cos, turn.sin), below = tc_vf_select(odd, turn.sin, turn.cos);
  const tc_vf y = tc_vf_with_sign(tc_vf_div(above, below), tc_vi_shift_left(turn.quadrant, tc_vi_set1(31)));
  return tc_vf_select(tc_vf_eq(x, tc_vf_set1(0.0f)), x, y);
}

/* pi/2 - x, where pi/2 has more bits than a float. */
TC_INLINE tc_vf tc_half_pi_less(tc_vf x) {
  return tc_vf_sub(tc_vf_set1(1.57079637f), tc_vf_add(x, tc_vf_set1(4.37113883e-8f)));
}

/* asin(x) / x - 1 of z = x^2 up to 1/4. */
TC_INLINE tc_vf tc_asin_rest(tc_vf z) {
  static const float series[] = {0.1666666f, 0.07500521f, 0.044513635f, 0.031836055f, 0.014329189f, 0.037673127f};
  return tc_vf_mul(z, TC_POLYNOMIAL(z, series));
}

/* The arc sine of |x|, or from 1/2 on that of the sine of half the angle that is left to pi/2. */
TC_INLINE tc_vf tc_asin_core(tc_vf a, tc_vm large) {
  const tc_vf left = tc_vf_fma(a, tc_vf_set1(-0.5f), tc_vf_set1(0.5f));
  const tc_vf z = tc_vf_select(large, left, tc_vf_mul(a, a)), s = tc_vf_select(large, tc_vf_sqrt(left), a);
  return tc_vf_fma(s, tc_asin_rest(z), s);
}

/* asin x, within 2 ulp; NaN beyond 1. */
TC_INLINE tc_vf tc_vf_asin(tc_vf x) {
  const tc_vf a = tc_vf_abs(x);
  const tc_vm large = tc_vf_lt(tc_vf_set1(0.5f), a);
  const tc_vf core = tc_asin_core(a, large), rest = tc_half_pi_less(tc_vf_add(core, core));
  return tc_vf_with_sign(tc_vf_select(large, rest, core), tc_vf_bits(x));
}

/* acos x, within 2 ulp; NaN beyond 1. */
TC_INLINE tc_vf tc_vf_acos(tc_vf x) {
  const tc_vf a = tc_vf_abs(x), zero = tc_vf_set1(0.0f);
  const tc_vm large = tc_vf_lt(tc_vf_set1(0.5f), a), below = tc_vf_lt(x, zero);
  const tc_vf core = tc_asin_core(a, large), signed_core = tc_vf_select(below, tc_vf_sub(zero, core), core);
  const tc_vf near = tc_half_pi_less(signed_core);
  const tc_vf far = tc_vf_select(below, tc_vf_set1(3.14159274f), zero);
  return tc_vf_select(large, tc_vf_fma(signed_core, tc_vf_set1(2.0f), far), near);
}

/* atan x, within 2 ulp: beyond 1 what is left to pi/2 is the arc tangent of 1/x. */
TC_INLINE tc_vf tc_vf_atan(tc_vf x) {
  static const float series[] = {-0.333333f,   0.19998531f,   -0.14264052f, 0.10951175f,   -0.08400475f,
                                 0.057906546f, -0.031127002f, 0.010887361f, -0.0017875476f};
  const tc_vf a = tc_vf_abs(x), one = tc_vf_set1(1.0f);
  const tc_vm large = tc_vf_lt(one, a);
  const tc_vf t = tc_vf_select(large, tc_vf_div(one, a), a), t2 = tc_vf_mul(t, t);
  const tc_vf core = tc_vf_fma(tc_vf_mul(t2, t), TC_POLYNOMIAL(t2, series), t);
  return tc_vf_with_sign(tc_vf_select(large, tc_half_pi_less(core), core), tc_vf_bits(x));
}

#endif
