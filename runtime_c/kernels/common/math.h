/* Elementary functions on f32 vectors. Coefficients are minimax fits in the relative error (Lawson's iteration on the
 * linearised problem); the quoted errors were measured against double precision. All of them propagate NaN. */
#ifndef TINYCOMP_KERNELS_COMMON_MATH_H
#define TINYCOMP_KERNELS_COMMON_MATH_H

#include "vocabulary.h"

/* Horner's rule, coefficients from the constant up; an unrolled loop of fused multiply-adds. */
#define TC_POLYNOMIAL(x, coefficients) \
  tc_polynomial((x), (coefficients), (int)(sizeof(coefficients) / sizeof((coefficients)[0])))

TC_INLINE tc_vf tc_polynomial(tc_vf x, const float *coefficients, int count) {
  tc_vf sum = tc_vf_set1(coefficients[count - 1]);
#pragma GCC unroll 8
  for (int i = count - 2; i >= 0; i--) {
    sum = tc_vf_fma(sum, x, tc_vf_set1(coefficients[i]));
  }
  return sum;
}

/* Clamps to [low, high]; NaN stays NaN, because the second operand of max and min wins for NaN. */
TC_INLINE tc_vf tc_clamp(tc_vf x, float low, float high) {
  return tc_vf_min(tc_vf_set1(high), tc_vf_max(tc_vf_set1(low), x));
}

/* x - n ln 2, in two parts, the first with few enough bits that n times it is exact. */
TC_INLINE tc_vf tc_vf_exp_rest(tc_vf x, tc_vf n) {
  const tc_vf high = tc_vf_fma(n, tc_vf_set1(-0.693359375f), x);
  return tc_vf_fma(n, tc_vf_set1(2.12194440e-4f), high);
}

/* e^x, within 2 ulp; underflows gradually to 0 and overflows to infinity. */
TC_INLINE tc_vf tc_vf_exp(tc_vf x) {
  static const float tail[] = {0.49999994f, 0.16666509f, 0.041668527f, 0.008370135f, 0.0013811662f};
  const tc_vf bounded = tc_clamp(x, -104.0f, 89.0f), n = tc_vf_round(tc_vf_mul(bounded, tc_vf_set1(1.44269504f)));
  const tc_vf r = tc_vf_exp_rest(bounded, n);
  const tc_vf power = tc_vf_fma(tc_vf_mul(r, r), TC_POLYNOMIAL(r, tail), r);
  return tc_vf_scale2(tc_vf_add(power, tc_vf_set1(1.0f)), n);
}

/* What makes power2's argument of an exponent: the sum has the exponent, biased, in its lowest bits. */
#define TC_POWER2_MAGIC 12583039.0f /* 1.5 * 2^23 + 127 */

/* e^(sign x), within 4 ulp, for a literal sign of 1 or -1 and sign x of -88 to 89; infinity from 88.4 on. */
TC_INLINE tc_vf tc_vf_exp_signed(const float sign, tc_vf x) {
  const float series[] = {1.0f,          sign * 0.999999702f,  0.499991477f, sign * 0.166676387f,
                          0.0418981612f, sign * 0.00829027221f};
  const tc_vf magic = tc_vf_set1(TC_POWER2_MAGIC), t = tc_vf_fma(x, tc_vf_set1(sign * 1.44269504f), magic);
  const tc_vf rest = tc_vf_exp_rest(x, sign > 0.0f ? tc_vf_sub(t, magic) : tc_vf_sub(magic, t));
  return tc_vf_mul(TC_POLYNOMIAL(rest, series), tc_vf_power2(t));
}

/* What differences are multiplied by, 1 / ln 2 times their scale, and the least that counts. */
typedef struct tc_exponent {
  tc_vf factor, low;
} tc_exponent;

TC_INLINE tc_exponent tc_exponent_make(float scale) {
  return (tc_exponent){tc_vf_set1(scale * 1.44269504f), tc_vf_set1(-127.0f / (scale * 1.44269504f))};
}

/* e^(scale d) for differences d of at most 0, or a little above it, as exact as the product of both is; 0
 * where it would be below the normal numbers. */
TC_INLINE tc_vf tc_vf_exp_difference(tc_vf d, tc_exponent exponent) {
  static const float series[] = {1.0f, 0.693147004f, 0.240222424f, 0.0555073359f, 0.00967151299f, 0.00132647273f};
  const tc_vf magic = tc_vf_set1(TC_POWER2_MAGIC), bounded = tc_vf_max(exponent.low, d);
  const tc_vf t = tc_vf_fma(bounded, exponent.factor, magic);
  const tc_vf rest = tc_vf_fma(bounded, exponent.factor, tc_vf_sub(magic, t));
  return tc_vf_mul(TC_POLYNOMIAL(rest, series), tc_vf_power2(t));
}

/* x * p(x^2) / q(x^2) for an odd function that is 1 in float beyond `limit`. */
#define TC_ODD_RATIONAL(x, limit, p, q)                                                                \
  do {                                                                                                 \
    const tc_vf t = tc_clamp((x), -(limit), (limit)), t2 = tc_vf_mul(t, t);                            \
    return tc_clamp(tc_vf_div(tc_vf_mul(t, TC_POLYNOMIAL(t2, p)), TC_POLYNOMIAL(t2, q)), -1.0f, 1.0f); \
  } while (0)

/* erf(x), within 6 ulp. */
TC_INLINE tc_vf tc_vf_erf(tc_vf x) {
  static const float p[] = {1.1283791f, 0.19040763f, 0.052748878f, 0.0037656655f, 0.00028488351f, 2.050075e-06f};
  static const float q[] = {1.0f, 0.5020771f, 0.11410959f, 0.014969315f, 0.0011625466f, 3.8091628e-05f};
  TC_ODD_RATIONAL(x, 3.92f, p, q);
}

/* tanh(x), within 6 ulp. */
TC_INLINE tc_vf tc_vf_tanh(tc_vf x) {
  static const float p[] = {1.0f, 0.13381027f, 0.0034955894f, 2.0609103e-05f, 1.3354686e-08f};
  static const float q[] = {1.0f, 0.46714342f, 0.025876988f, 0.00032856371f, 7.7765691e-07f};
  TC_ODD_RATIONAL(x, 9.0f, p, q);
}

/* 1 + e^-x, or infinity */
TC_INLINE tc_vf tc_vf_sigmoid_divisor(tc_vf x) {
  return tc_vf_add(tc_vf_exp_signed(-1.0f, tc_clamp(x, -89.0f, 88.0f)), tc_vf_set1(1.0f));
}

/* 1 / (1 + e^-x); 0 from about -88 down. */
TC_INLINE tc_vf tc_vf_sigmoid(tc_vf x) { return tc_vf_div(tc_vf_set1(1.0f), tc_vf_sigmoid_divisor(x)); }

/* x / (1 + e^-x) */
TC_INLINE tc_vf tc_vf_silu(tc_vf x) { return tc_vf_div(x, tc_vf_sigmoid_divisor(x)); }

#endif
