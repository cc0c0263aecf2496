/* Elementary functions of one f64 without branches, so that the compiler turns loops over them into vectors. All of
 * them propagate NaN; the quoted errors were measured against long double. */
#ifndef TINYCOMP_KERNELS_COMMON_MATH_F64_H
#define TINYCOMP_KERNELS_COMMON_MATH_F64_H

#include "vocabulary.h"

/* A number that is added rounds to an integer and leaves it in the lowest bits of the sum. */
#define TC_F64_MAGIC 0x1.8p52

TC_INLINE uint64_t tc_f64_bits(double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof(bits));
  return bits;
}

TC_INLINE double tc_f64_of_bits(uint64_t bits) {
  double x;
  memcpy(&x, &bits, sizeof(x));
  return x;
}

/* 2^n for an integer n of -1022 to 1023; its exponent has lost what is above it. */
TC_INLINE double tc_f64_power2(double n) { return tc_f64_of_bits(tc_f64_bits(n + (TC_F64_MAGIC + 1023.0)) << 52); }

/* min(max(x, low), high), which keeps NaN. */
TC_INLINE double tc_f64_limit(double x, double low, double high) {
  const double above = x < low ? low : x;
  return above > high ? high : above;
}

/* e^r - 1 and n of x = n ln 2 + r with |r| <= ln(2) / 2, by the first terms of the series. */
typedef struct tc_f64_exponent {
  double power, n;
} tc_f64_exponent;

TC_INLINE tc_f64_exponent tc_f64_exponent_of(double x) {
  const double n = (x * 1.44269504088896340736 + TC_F64_MAGIC) - TC_F64_MAGIC;
  const double r = (x - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
  double sum = 1.0 / 6227020800;
  sum = sum * r + 1.0 / 479001600;
  sum = sum * r + 1.0 / 39916800;
  sum = sum * r + 1.0 / 3628800;
  sum = sum * r + 1.0 / 362880;
  sum = sum * r + 1.0 / 40320;
  sum = sum * r + 1.0 / 5040;
  sum = sum * r + 1.0 / 720;
  sum = sum * r + 1.0 / 120;
  sum = sum * r + 1.0 / 24;
  sum = sum * r + 1.0 / 6;
  sum = sum * r + 0.5;
  return (tc_f64_exponent){r * r * sum + r, n};
}

/* e^x, within 2 ulp; underflows gradually to 0 and overflows to infinity. Two factors reach numbers below the normal
 * ones. */
TC_INLINE double tc_f64_exp(double x) {
  const tc_f64_exponent e = tc_f64_exponent_of(tc_f64_limit(x, -746.0, 710.0));
  const double half = (e.n * 0.5 + TC_F64_MAGIC) - TC_F64_MAGIC;
  return (e.power + 1.0) * tc_f64_power2(half) * tc_f64_power2(e.n - half);
}

/* e^x - 1 for x <= 0, within 2 ulp. */
TC_INLINE double tc_f64_expm1(double x) {
  const tc_f64_exponent e = tc_f64_exponent_of(tc_f64_limit(x, -700.0, 0.0));
  const double scale = tc_f64_power2(e.n);
  return scale * e.power + (scale - 1.0);
}

/* tanh x, within 3 ulp. */
TC_INLINE double tc_f64_tanh(double x) {
  const double rest = tc_f64_expm1(-2.0 * fabs(x));
  return copysign(rest / (rest + 2.0), x);
}

/* ln x, within 2 ulp, for normal numbers above 0: as tc_vf_log. */
TC_INLINE double tc_f64_log(double x) {
  const uint64_t sqrt_half = UINT64_C(0x3fe6a09e667f3bcd), bits = tc_f64_bits(x);
  /* The exponent counts from sqrt(1/2), and from 1023 less so that it is never below 0. */
  const uint64_t whole = (bits - sqrt_half + (UINT64_C(1023) << 52)) >> 52;
  const double n = tc_f64_of_bits(whole | UINT64_C(0x4330000000000000)) - (0x1p52 + 1023.0);
  const double m = tc_f64_of_bits(bits - ((whole - 1023) << 52)), f = m - 1.0, s = f / (2.0 + f), s2 = s * s;
  double sum = 2.0 / 21;
  sum = sum * s2 + 2.0 / 19;
  sum = sum * s2 + 2.0 / 17;
  sum = sum * s2 + 2.0 / 15;
  sum = sum * s2 + 2.0 / 13;
  sum = sum * s2 + 2.0 / 11;
  sum = sum * s2 + 2.0 / 9;
  sum = sum * s2 + 2.0 / 7;
  sum = sum * s2 + 2.0 / 5;
  sum = sum * s2 + 2.0 / 3;
  const double low = s * (f - s2 * sum) - n * 1.90821492927058770002e-10;
  return n * 6.93147180369123816490e-01 + (f - low);
}

/* cos x, within 2^-52, for x from 0 to 7. */
TC_INLINE double tc_f64_cos(double x) {
  const double n = (x * 0.63661977236758134308 + TC_F64_MAGIC) - TC_F64_MAGIC;
  const double r = ((x - n * 1.57079632673412561417e+00) - n * 6.07710050650619224932e-11), r2 = r * r;
  double sine = 1.0 / 1307674368000.0, cosine = 1.0 / 20922789888000.0;
  sine = sine * -r2 + 1.0 / 6227020800;
  sine = sine * -r2 + 1.0 / 39916800;
  sine = sine * -r2 + 1.0 / 362880;
  sine = sine * -r2 + 1.0 / 5040;
  sine = sine * -r2 + 1.0 / 120;
  sine = sine * -r2 + 1.0 / 6;
  sine = sine * -r2 + 1.0;
  cosine = cosine * -r2 + 1.0 / 87178291200.0;
  cosine = cosine * -r2 + 1.0 / 479001600;
  cosine = cosine * -r2 + 1.0 / 3628800;
  cosine = cosine * -r2 + 1.0 / 40320;
  cosine = cosine * -r2 + 1.0 / 720;
  cosine = cosine * -r2 + 1.0 / 24;
  cosine = cosine * -r2 + 0.5;
  cosine = cosine * -r2 + 1.0;
  /* Quadrants are counted by their last two bits: odd ones have the sine, 1 and 2 the other sign. */
  const uint64_t quadrant = tc_f64_bits(n + TC_F64_MAGIC);
  const double y = quadrant & 1 ? r * sine : cosine;
  return tc_f64_of_bits(tc_f64_bits(y) ^ (quadrant + 1) << 62 >> 63 << 63);
}

#endif
