/* Logarithms, e^x - 1, rounding and extremes on f32 vectors: what the elementwise families need beside math.h. */
#ifndef TINYCOMP_KERNELS_COMMON_LOG_H
#define TINYCOMP_KERNELS_COMMON_LOG_H

#include "vocabulary.h"

#include "math.h"

/* ln x, within 2 ulp, for all x: -infinity at 0, NaN below, and subnormal numbers too. With x = m * 2^n and f = m - 1,
 * s = f / (2 + f): ln m = 2 artanh s, whose series converges fast for |s| < 0.172. */
TC_INLINE tc_vf tc_vf_log(tc_vf x) {
  static const float series[] = {2.0f / 3, 2.0f / 5, 2.0f / 7, 2.0f / 9};
  const tc_vm small = tc_vf_lt(x, tc_vf_set1(1.17549435e-38f));
  tc_vf n;
  const tc_vf m = tc_vf_split2(tc_vf_select(small, tc_vf_mul(x, tc_vf_set1(16777216.0f)), x), &n);
  n = tc_vf_select(small, tc_vf_sub(n, tc_vf_set1(24.0f)), n);
  const tc_vf f = tc_vf_sub(m, tc_vf_set1(1.0f)), s = tc_vf_div(f, tc_vf_add(f, tc_vf_set1(2.0f)));
  const tc_vf s2 = tc_vf_mul(s, s), rest = tc_vf_mul(s2, TC_POLYNOMIAL(s2, series));
  const tc_vf low = tc_vf_fma(n, tc_vf_set1(2.12194440e-4f), tc_vf_mul(s, tc_vf_sub(f, rest)));
  const tc_vf y = tc_vf_fma(n, tc_vf_set1(0.693359375f), tc_vf_sub(f, low));
  const tc_vf positive = tc_vf_select(tc_vf_lt(x, tc_vf_set1(INFINITY)), y, x); /* infinity and NaN as they are */
  const tc_vf at_zero = tc_vf_select(tc_vf_eq(x, tc_vf_set1(0.0f)), tc_vf_set1(-INFINITY), positive);
  return tc_vf_select(tc_vf_lt(x, tc_vf_set1(0.0f)), tc_vf_set1(NAN), at_zero);
}

/* ln(1 + x) for x >= 0, within 3 ulp: the logarithm of u = 1 + x, corrected by what u lost of x. */
TC_INLINE tc_vf tc_vf_log1p(tc_vf x) {
  const tc_vf one = tc_vf_set1(1.0f), u = tc_vf_add(x, one), kept = tc_vf_sub(u, one);
  const tc_vf y = tc_vf_mul(tc_vf_log(u), tc_vf_div(x, kept));
  return tc_vf_select(tc_vf_eq(kept, tc_vf_set1(0.0f)), x, y);
}

/* e^x - 1 for x <= 0, within 3 ulp: as tc_vf_exp, but 1 is taken away before it drowns the small sum. */
TC_INLINE tc_vf tc_vf_expm1(tc_vf x) {
  static const float tail[] = {0.49999994f, 0.16666509f, 0.041668527f, 0.008370135f, 0.0013811662f};
  x = tc_clamp(x, -104.0f, 0.0f);
  const tc_vf n = tc_vf_round(tc_vf_mul(x, tc_vf_set1(1.44269504f)));
  const tc_vf high = tc_vf_fma(n, tc_vf_set1(-0.693359375f), x), r = tc_vf_fma(n, tc_vf_set1(2.12194440e-4f), high);
  const tc_vf power = tc_vf_fma(tc_vf_mul(r, r), TC_POLYNOMIAL(r, tail), r);
  const tc_vf scale = tc_vf_scale2(tc_vf_set1(1.0f), n);
  return tc_vf_fma(power, scale, tc_vf_sub(scale, tc_vf_set1(1.0f)));
}

TC_INLINE tc_vf tc_vf_floor(tc_vf x) {
  const tc_vf near = tc_vf_round(x);
  return tc_vf_select(tc_vf_lt(x, near), tc_vf_sub(near, tc_vf_set1(1.0f)), near);
}

TC_INLINE tc_vf tc_vf_ceil(tc_vf x) {
  const tc_vf near = tc_vf_round(x);
  return tc_vf_select(tc_vf_lt(near, x), tc_vf_add(near, tc_vf_set1(1.0f)), near);
}

/* The larger and the smaller of two numbers; NaN if either is. */
TC_INLINE tc_vf tc_vf_maximum(tc_vf a, tc_vf b) { return tc_vf_select(tc_vf_eq(a, a), tc_vf_max(a, b), a); }
TC_INLINE tc_vf tc_vf_minimum(tc_vf a, tc_vf b) { return tc_vf_select(tc_vf_eq(a, a), tc_vf_min(a, b), a); }

#endif
