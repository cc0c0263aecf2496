/* The SIMD vocabulary without SIMD: one lane. What each word means is written in README.md. */
#ifndef TINYCOMP_SIMD_SCALAR_H
#define TINYCOMP_SIMD_SCALAR_H

#include <math.h>
#include <string.h>

#ifdef __ARM_FEATURE_DSP
#include <arm_acle.h>

/* Bytes 1 and 3 as numbers of 16 bits in one instruction, which compilers do not find. */
static inline int32_t tc_odd_bytes(uint32_t v) {
  int32_t odd;
  __asm__("sxtb16 %0, %1, ror #8" : "=r"(odd) : "r"(v));
  return odd;
}
static inline int32_t tc_odd_unsigned_bytes(uint32_t v) {
  int32_t odd;
  __asm__("uxtb16 %0, %1, ror #8" : "=r"(odd) : "r"(v));
  return odd;
}
#endif

#include "kernel.h"

enum { TC_LANES = 1 };
#define TC_REGISTERS 16
typedef float tc_vf;
typedef bool tc_vm;

TC_INLINE tc_vf tc_vf_set1(float x) { return x; }
TC_INLINE tc_vf tc_vf_load(const float *p) { return *p; }
/* Keeps a loaded vector in its register: the compiler may not load it again at each use. */
TC_INLINE tc_vf tc_vf_keep(tc_vf v) { return v; }
TC_INLINE void tc_vf_store(float *p, tc_vf v) { *p = v; }
TC_INLINE tc_vf tc_vf_load_first(const float *p, int64_t n) { return n > 0 ? *p : 0.0f; }
TC_INLINE void tc_vf_load_pairs(const float *p, tc_vf *first, tc_vf *second) {
  *first = p[0];
  *second = p[1];
}
TC_INLINE tc_vf tc_vf_first(tc_vf v, int64_t n) { return n > 0 ? v : 0.0f; }
TC_INLINE void tc_vf_store_first(float *p, tc_vf v, int64_t n) {
  if (n > 0) {
    *p = v;
  }
}
TC_INLINE tc_vf tc_vf_add(tc_vf a, tc_vf b) { return a + b; }
TC_INLINE tc_vf tc_vf_sub(tc_vf a, tc_vf b) { return a - b; }
TC_INLINE tc_vf tc_vf_mul(tc_vf a, tc_vf b) { return a * b; }
TC_INLINE tc_vf tc_vf_div(tc_vf a, tc_vf b) { return a / b; }
TC_INLINE tc_vf tc_vf_fma(tc_vf a, tc_vf b, tc_vf c) { return a * b + c; }
TC_INLINE tc_vf tc_vf_max(tc_vf a, tc_vf b) { return a > b ? a : b; }
TC_INLINE tc_vf tc_vf_min(tc_vf a, tc_vf b) { return a < b ? a : b; }
TC_INLINE tc_vf tc_vf_abs(tc_vf a) { return fabsf(a); }
TC_INLINE tc_vf tc_vf_sqrt(tc_vf a) { return sqrtf(a); }
TC_INLINE tc_vf tc_vf_round(tc_vf a) { return rintf(a); }
TC_INLINE tc_vf tc_vf_scale2(tc_vf a, tc_vf n) { return ldexpf(a, (int)n); }
TC_INLINE tc_vf tc_vf_power2(tc_vf t) {
  uint32_t bits;
  memcpy(&bits, &t, sizeof(bits));
  bits <<= 23;
  memcpy(&t, &bits, sizeof(bits));
  return t;
}
TC_INLINE tc_vm tc_vf_lt(tc_vf a, tc_vf b) { return a < b; }
TC_INLINE tc_vm tc_vf_eq(tc_vf a, tc_vf b) { return a == b; }
/* Subtracting the bits of sqrt(1/2) makes the exponent field count from there; in unsigned arithmetic, which wraps. */
TC_INLINE tc_vf tc_vf_split2(tc_vf a, tc_vf *n) {
  uint32_t bits;
  memcpy(&bits, &a, sizeof(bits));
  const int32_t whole = (int32_t)(bits - 0x3f3504f3u) >> 23;
  *n = (float)whole;
  bits -= (uint32_t)whole << 23;
  memcpy(&a, &bits, sizeof(bits));
  return a;
}
TC_INLINE tc_vf tc_vf_select(tc_vm m, tc_vf a, tc_vf b) { return m ? a : b; }
TC_INLINE float tc_vf_reduce_add(tc_vf a) { return a; }
TC_INLINE float tc_vf_reduce_max(tc_vf a) { return a; }

/* The product passes through memory, so that the compiler fuses no addition with it. */
TC_INLINE tc_vf tc_vf_mul_rounded(tc_vf a, tc_vf b) {
  tc_vf product = a * b;
  __asm__("" : "+m"(product));
  return product;
}

/* Integers: a 32-bit number, which may hold two of 16 bits or four of 8. They wrap around. */
typedef int32_t tc_vi;
#define TC_DOT4 0
#define TC_PACK4 0
#define TC_WIDEN_TWO 1
#define TC_ACROSS 0
#define TC_TAPS 0
#define TC_STORES_HALVES 0
#define TC_HALVES 0
#if defined(__ARM_FEATURE_DSP) && defined(__ARM_FP) && defined(__thumb2__)
#define TC_BOUNDS 1
#else
#define TC_BOUNDS 0
#endif

TC_INLINE tc_vi tc_vi_set1(int32_t x) { return x; }
/* Keeps the compiler from taking two results of this operand for one. */
TC_INLINE tc_vi tc_vi_keep(tc_vi v) {
  __asm__("" : "+r"(v));
  return v;
}
TC_INLINE tc_vi tc_vi_load(const void *p) {
  int32_t word;
  memcpy(&word, p, sizeof(word));
  return word;
}
TC_INLINE tc_vi tc_vi_load_pair(const void *p) { return tc_vi_load(p); }
TC_INLINE void tc_vi_store(void *p, tc_vi v) { memcpy(p, &v, sizeof(v)); }
TC_INLINE void tc_vi_store_first(void *p, tc_vi v, int64_t n) { memcpy(p, &v, n > 0 ? sizeof(v) : 0); }
TC_INLINE tc_vi tc_vi_add(tc_vi a, tc_vi b) { return (int32_t)((uint32_t)a + (uint32_t)b); }
TC_INLINE tc_vi tc_vi_sub(tc_vi a, tc_vi b) { return (int32_t)((uint32_t)a - (uint32_t)b); }
TC_INLINE tc_vi tc_vi_quarter(tc_vi a) { return a >> 2; }
TC_INLINE tc_vi tc_vi_max(tc_vi a, tc_vi b) { return a > b ? a : b; }
TC_INLINE tc_vi tc_vi_min(tc_vi a, tc_vi b) { return a < b ? a : b; }
TC_INLINE tc_vf tc_vi_to_float(tc_vi a) { return (float)a; }
TC_INLINE tc_vi tc_vf_truncate(tc_vf a) {
  return a >= 0x1p31f ? INT32_MAX : a > -0x1p31f ? (int32_t)a : a <= -0x1p31f ? INT32_MIN : 0;
}
TC_INLINE tc_vi tc_vf_to_int(tc_vf a) {
#if defined(__ARM_FP) && defined(__thumb2__) /* to nearest even, unless somebody has changed that */
  tc_vi rounded;
  __asm__("vcvtr.s32.f32 %1, %1\n\tvmov %0, %1" : "=r"(rounded), "+t"(a));
  return rounded;
#else
  return (int32_t)rintf(a);
#endif
}
#if TC_BOUNDS
/* Bounds of bytes that something is added to, without a comparison: the lower bound becomes 0, the upper one 255. */
typedef struct tc_bounds {
  int32_t up, room, back;
} tc_bounds;
TC_INLINE tc_bounds tc_bounds_make(int32_t low, int32_t high, int32_t added) {
  const int32_t room = 255 - (high - low);
  return (tc_bounds){added - low, room, low - room};
}
/* NaN counts as 0. */
TC_INLINE tc_vi tc_vf_to_bounds(const tc_bounds *b, tc_vf v) {
  const uint32_t above = (uint32_t)__usat(__qadd(tc_vf_to_int(v), b->up), 8);
  return (int32_t)__uqadd8(above, (uint32_t)b->room) + b->back;
}
#endif
/* Two numbers of 16 bits as they would follow each other in memory. */
TC_INLINE tc_vi tc_vi_halves(int32_t first, int32_t second) {
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
  const int32_t low = second, high = first;
#else
  const int32_t low = first, high = second;
#endif
  return (int32_t)((uint32_t)(uint16_t)low | (uint32_t)high << 16);
}
TC_INLINE tc_vi tc_vi_widen_bytes(const void *p) {
  const int8_t *halves = p;
  return tc_vi_halves(halves[0], halves[1]);
}
/* Two vectors of pairs, whose bytes lie crossed. */
TC_INLINE void tc_vi_widen_two(const void *p, tc_vi v[2]) {
#ifdef __ARM_FEATURE_DSP
  const uint32_t bytes = (uint32_t)tc_vi_load(p);
  v[0] = __sxtb16(bytes);
  v[1] = tc_odd_bytes(bytes);
#else
  const int8_t *bytes = p;
  v[0] = tc_vi_halves(bytes[0], bytes[2]);
  v[1] = tc_vi_halves(bytes[1], bytes[3]);
#endif
}
TC_INLINE tc_vi tc_vi_widen_unsigned_bytes(const void *p) {
  const uint8_t *halves = p;
  return tc_vi_halves(halves[0], halves[1]);
}
/* Unsigned bytes as numbers of 16 bits, any number of them. */
TC_INLINE void tc_widen_unsigned(uint16_t *to, const uint8_t *from, ptrdiff_t count) {
#ifdef __ARM_FEATURE_DSP
#pragma GCC unroll 4
  for (; count >= 4; count -= 4, from += 4, to += 4) {
    const uint32_t bytes = (uint32_t)tc_vi_load(from);
    const uint32_t even = __uxtb16(bytes), odd = (uint32_t)tc_odd_unsigned_bytes(bytes);
    tc_vi_store(to, (int32_t)(even & 0xffff) | (int32_t)(odd << 16));
    tc_vi_store(to + 2, (int32_t)(even >> 16 | (odd & 0xffff0000u)));
  }
#endif
  for (ptrdiff_t i = 0; i < count; i++) {
    to[i] = from[i];
  }
}
/* The lower halves are added in a word of their own, whose carry is cut off. */
TC_INLINE tc_vi tc_vi_add_pairs(tc_vi a, tc_vi b) {
  const uint32_t high = (uint32_t)-65536, u = (uint32_t)a, v = (uint32_t)b;
  return (int32_t)(((u + v) & ~high) | ((u & high) + (v & high)));
}
TC_INLINE tc_vi tc_vi_sub_pairs(tc_vi a, tc_vi b) {
  const uint32_t high = (uint32_t)-65536, u = (uint32_t)a, v = (uint32_t)b;
  return (int32_t)(((u - v) & ~high) | ((u & high) - (v & high)));
}
TC_INLINE int64_t tc_pair_place(int64_t lane, int64_t half) { return 2 * lane + half; }
TC_INLINE tc_vi tc_vi_dot2(tc_vi sum, tc_vi a, tc_vi b) {
#ifdef __ARM_FEATURE_DSP
  return __smlad(a, b, sum);
#else
  return tc_vi_add(sum, tc_vi_add((int16_t)a * (int16_t)b, (a >> 16) * (b >> 16)));
#endif
}
TC_INLINE tc_vi tc_vi_load_quad(const void *p) { return tc_vi_load(p); }
TC_INLINE tc_vi tc_vi_dot4(tc_vi sum, tc_vi a, tc_vi b) {
#ifdef __ARM_FEATURE_DSP
  const uint32_t u = (uint32_t)a, v = (uint32_t)b;
  sum = __smlad((int32_t)__uxtb16(u), __sxtb16(v), sum);
  return __smlad(tc_odd_unsigned_bytes(u), tc_odd_bytes(v), sum);
#else
  uint8_t x[4];
  int8_t w[4];
  memcpy(x, &a, sizeof(x));
  memcpy(w, &b, sizeof(w));
  return tc_vi_add(sum, x[0] * w[0] + x[1] * w[1] + x[2] * w[2] + x[3] * w[3]);
#endif
}
TC_INLINE tc_vi tc_vi_and(tc_vi a, tc_vi b) { return a & b; }
TC_INLINE tc_vi tc_vi_clear(tc_vi v, tc_vm m, tc_vi bits) { return m ? v & ~bits : v; }
TC_INLINE tc_vf tc_vf_lookup(const float *table, tc_vi at) { return table[at]; }
TC_INLINE tc_vi tc_vi_down(tc_vi a, int n) { return (int32_t)((uint32_t)a >> n); }
enum { TC_DOT4_CODES_MOST = 255 };
TC_INLINE bool tc_has_dot4_codes(void) { return true; }
TC_INLINE tc_vi tc_vi_dot4_codes(const bool native, tc_vi sum, tc_vi codes, tc_vi b) {
  (void)native;
  return tc_vi_dot4(sum, codes, b);
}
/* The exponent moves up by 112; multiplying does so for subnormal numbers too. */
TC_INLINE tc_vf tc_vf_load_halves(const uint16_t *p) {
  const uint32_t sign = (uint32_t)(*p & 0x8000) << 16, rest = (uint32_t)(*p & 0x7fff) << 13;
  float x;
  memcpy(&x, &rest, sizeof(x));
  x *= (*p & 0x7c00) == 0x7c00 ? INFINITY : 0x1p112f;
  uint32_t bits;
  memcpy(&bits, &x, sizeof(bits));
  bits |= sign | ((*p & 0x7fff) > 0x7c00 ? 0x7fc00000u : 0);
  memcpy(&x, &bits, sizeof(x));
  return x;
}
TC_INLINE tc_vf tc_vf_load_bfloats(const uint16_t *p) {
  const uint32_t bits = (uint32_t)*p << 16;
  float x;
  memcpy(&x, &bits, sizeof(x));
  return x;
}
/* The bits of floats as integers, and back. */
TC_INLINE tc_vi tc_vf_bits(tc_vf v) {
  tc_vi bits;
  memcpy(&bits, &v, sizeof(bits));
  return bits;
}
TC_INLINE tc_vf tc_vf_of_bits(tc_vi v) {
  tc_vf x;
  memcpy(&x, &v, sizeof(x));
  return x;
}
/* Two bfloat16 in a lane. Their products are exact, so that contraction changes nothing. */
#define TC_DOT_BF16 1
TC_INLINE bool tc_has_dot_bf16(void) { return true; }
TC_INLINE tc_vi tc_vi_adjacent_bf16(tc_vf low, tc_vf high) {
  const tc_vf x[2] = {low, high};
  uint32_t pair = 0;
  for (int half = 0; half < 2; half++) {
    const uint32_t bits = (uint32_t)tc_vf_bits(x[half]);
    const uint32_t rounded = x[half] == x[half] ? bits + 0x7fff + (bits >> 16 & 1) : bits | 0x400000;
    pair = pair >> 16 | (rounded & 0xffff0000u);
  }
  return (int32_t)pair;
}
TC_INLINE tc_vf tc_vf_dot_bf16(tc_vf sum, tc_vi a, tc_vi b) {
  const tc_vi upper = (int32_t)0xffff0000u;
  sum = tc_vf_of_bits(a & upper) * tc_vf_of_bits(b & upper) + sum;
  return tc_vf_of_bits((int32_t)((uint32_t)a << 16)) * tc_vf_of_bits((int32_t)((uint32_t)b << 16)) + sum;
}
TC_INLINE tc_vi tc_vi_load_signed_bytes(const void *p) { return *(const int8_t *)p; }
TC_INLINE tc_vi tc_vi_low_nibble(tc_vi v) { return (int32_t)((uint32_t)v << 28) >> 28; }
TC_INLINE tc_vi tc_vi_high_nibble(tc_vi v) { return v >> 4; }
TC_INLINE tc_vi tc_vi_load_bytes(const uint8_t *p) { return *p; }
TC_INLINE tc_vi tc_vi_pair_bytes(const uint8_t *first, const uint8_t *second) { return tc_vi_halves(*first, *second); }
TC_INLINE tc_vi tc_vi_pair_byte(const uint8_t *p) { return tc_vi_halves(*p, 0); }
TC_INLINE void tc_vi_store_bytes_first(uint8_t *p, tc_vi v, int64_t n) {
  if (n > 0) {
    *p = (uint8_t)v;
  }
}
TC_INLINE void tc_vi_store_bytes(uint8_t *p, tc_vi v) { *p = (uint8_t)v; }
TC_INLINE tc_vi tc_vi_multiply_high(tc_vi a, tc_vi q) { return (int32_t)(((int64_t)a * q + ((int64_t)1 << 30)) >> 31); }
TC_INLINE tc_vi tc_vi_shift_left(tc_vi a, tc_vi n) { return (int32_t)((uint32_t)a << n); }
TC_INLINE tc_vi tc_vi_shift_right(tc_vi a, tc_vi n) {
  const int32_t mask = (int32_t)(((uint32_t)1 << n) - 1);
  return (a >> n) + ((a & mask) > (mask >> 1) + (a < 0));
}

#endif
