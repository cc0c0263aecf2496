/* Conversions between f32 and the two 16-bit floats, in integer arithmetic that the compiler turns into vectors. */
#ifndef TINYCOMP_KERNELS_CAST_HALF_H
#define TINYCOMP_KERNELS_CAST_HALF_H

#include "vocabulary.h"

TC_INLINE uint32_t tc_bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof(bits));
  return bits;
}

TC_INLINE float tc_float_of(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof(x));
  return x;
}

/* x where a value is below a bound, else y; value and bound are below 2^31. It has no branch that the compiler could
 * move float arithmetic for x or y into, which would keep it from making vectors of a loop. */
TC_INLINE uint32_t tc_where_below(uint32_t value, uint32_t bound, uint32_t x, uint32_t y) {
  const uint32_t below = 0 - ((value - bound) >> 31);
  return (x & below) | (y & ~below);
}

/* The exponent moves up by 112; multiplying does so for subnormal numbers too. */
TC_INLINE float tc_f32_of_f16(uint16_t half) {
  const uint32_t sign = (uint32_t)(half & 0x8000) << 16, rest = (uint32_t)(half & 0x7fff) << 13;
  const uint32_t finite = tc_bits_of(tc_float_of(rest) * 0x1p112f), infinite = rest | 0x7f800000;
  return tc_float_of(sign | ((half & 0x7c00) == 0x7c00 ? infinite : finite));
}

/* To nearest, ties to even; too large a number becomes infinity. */
TC_INLINE uint16_t tc_f16_of_f32(float x) {
  const uint32_t bits = tc_bits_of(x), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
  const uint32_t normal = (rest - (112u << 23) + 0xfff + (rest >> 13 & 1)) >> 13;
  /* Adding 1/2 leaves the bits of a subnormal half, rounded, at the end of the sum. */
  const uint32_t tiny = tc_bits_of(tc_float_of(rest) + 0.5f) - 0x3f000000;
  const uint32_t huge = rest > 0x7f800000 ? 0x7e00 : 0x7c00;
  const uint32_t finite = tc_where_below(rest, 0x38800000, tiny, normal);
  return (uint16_t)(sign | tc_where_below(rest, 0x47800000, finite, huge));
}

TC_INLINE float tc_f32_of_bf16(uint16_t half) { return tc_float_of((uint32_t)half << 16); }

/* To nearest, ties to even. */
TC_INLINE uint16_t tc_bf16_of_f32(float x) {
  const uint32_t bits = tc_bits_of(x), rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? (bits >> 16 | 0x40) : rounded);
}

#endif
