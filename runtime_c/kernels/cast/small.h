/* Conversions between f32 and floats of 8 bits or fewer, each in the low bits of a byte. A format is data, so that one
 * loop in integer arithmetic serves them all. */
#ifndef TINYCOMP_KERNELS_CAST_SMALL_H
#define TINYCOMP_KERNELS_CAST_SMALL_H

#include "vocabulary.h"

#include "half.h"

typedef struct small_format {
  int mantissa, bias; /* bits of the one, and what an exponent is stored with on top */
  int sign;           /* the place of the sign, above the bits of exponent and mantissa */
  uint32_t largest;   /* the greatest number */
  uint32_t overflow;  /* infinity, or what is there in its place */
  uint32_t nan[2];    /* what NaN becomes, without and with a sign */
  bool negative_zero; /* whether -0 is a number; if not, its bits are those of NaN */
} small_format;

/* One row per format: TC_SMALL(kind, the fields of a small_format). NaN becomes a zero where there is none. */
#define TC_SMALL_LIST                                             \
  TC_SMALL(F8E4M3FN, 3, 7, 7, 0x7e, 0x7f, {0x7f, 0xff}, true)     \
  TC_SMALL(F8E4M3FNUZ, 3, 8, 7, 0x7f, 0x80, {0x80, 0x80}, false)  \
  TC_SMALL(F8E5M2, 2, 15, 7, 0x7b, 0x7c, {0x7e, 0xfe}, true)      \
  TC_SMALL(F8E5M2FNUZ, 2, 16, 7, 0x7f, 0x80, {0x80, 0x80}, false) \
  TC_SMALL(F6E2M3FN, 3, 1, 5, 0x1f, 0x1f, {0x20, 0x00}, true)     \
  TC_SMALL(F6E3M2FN, 2, 3, 5, 0x1f, 0x1f, {0x20, 0x00}, true)     \
  TC_SMALL(F4E2M1FN, 1, 1, 3, 0x07, 0x07, {0x08, 0x00}, true)

/* Multiplying by a power of two moves the exponent, of subnormal numbers too. */
TC_INLINE float tc_f32_of_small(uint32_t code, const small_format *format) {
  const uint32_t magnitude = code & ((1u << format->sign) - 1), sign = (code >> format->sign & 1) << 31;
  const float scale = tc_float_of((uint32_t)(254 - format->bias) << 23);
  const uint32_t finite = tc_bits_of(tc_float_of(magnitude << (23 - format->mantissa)) * scale);
  const bool infinite = magnitude == format->overflow && format->overflow != format->nan[0];
  const bool no_zero = !format->negative_zero && sign && magnitude == 0;
  const uint32_t special = infinite ? 0x7f800000 : 0x7fc00000;
  return tc_float_of(sign | (magnitude > format->largest || no_zero ? special : finite));
}

/* To nearest, ties to even. What is too large then, infinity included, becomes the largest number if `saturate` says
 * so. */
TC_INLINE uint8_t tc_small_of_f32(float x, const small_format *format, bool saturate) {
  const uint32_t bits = tc_bits_of(x), rest = bits & 0x7fffffff, negative = bits >> 31;
  const int shift = 23 - format->mantissa, move = 127 - format->bias;
  const uint32_t normal = (rest - ((uint32_t)move << 23) + (1u << (shift - 1)) - 1 + (rest >> shift & 1)) >> shift;
  /* Adding a number whose last bit is worth a subnormal step leaves the steps, rounded, at the end of the sum. */
  const uint32_t magic = (uint32_t)(move + 1 + shift) << 23;
  const uint32_t tiny = tc_bits_of(tc_float_of(rest) + tc_float_of(magic)) - magic;
  const uint32_t rounded = tc_where_below(rest, (uint32_t)(move + 1) << 23, tiny, normal);
  const uint32_t beyond = saturate ? format->largest : format->overflow;
  const uint32_t magnitude = rounded > format->largest ? beyond : rounded;
  const uint32_t sign = magnitude == 0 && !format->negative_zero ? 0 : negative << format->sign;
  return (uint8_t)(rest > 0x7f800000 ? negative ? format->nan[1] : format->nan[0] : magnitude | sign);
}

/* F8E8M0FNU: a power of two as its exponent alone, less -127; 255 is NaN. */
TC_INLINE float tc_f32_of_scale(uint8_t code) {
  const uint32_t special = code == 0 ? 0x00400000 : 0x7fc00000;
  return tc_float_of(code == 0 || code == 255 ? special : (uint32_t)code << 23);
}

/* Rounded as an enum tc_scale_rounding says. What is negative is NaN; so is what is too large or too small, 0 included,
 * unless `saturate` says so. No float is subnormal as a double. */
TC_INLINE uint8_t tc_scale_of_f32(float x, bool saturate, int rounding) {
  const double wide = x;
  uint64_t bits;
  memcpy(&bits, &wide, sizeof(bits));
  const uint64_t fraction = bits & 0xfffffffffffff, half = 0x8000000000000;
  const bool up = rounding == TC_SCALE_UP ? fraction != 0 : rounding == TC_SCALE_NEAREST && fraction >= half;
  const int exponent = (int)(bits >> 52 & 0x7ff) - 1023 + 127 + up;
  const int limited = saturate ? exponent < 0 ? 0 : exponent > 254 ? 254 : exponent : exponent;
  return (uint8_t)(x != x || x < 0 || limited < 0 || limited > 254 ? 255 : limited);
}

#endif
