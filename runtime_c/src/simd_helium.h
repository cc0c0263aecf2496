/* The SIMD vocabulary for Helium, Arm's vector extension of microcontrollers (MVE): four lanes. What each word means is
 * written in README.md. Its floats are flushed to zero below the normal range. */
#ifndef TINYCOMP_SIMD_HELIUM_H
#define TINYCOMP_SIMD_HELIUM_H

#include <math.h>
#include <string.h>

#include "kernel.h"

enum { TC_LANES = 4 };
#define TC_REGISTERS 8
typedef float32x4_t tc_vf;
typedef mve_pred16_t tc_vm;

/* The first n lanes, n from 0 on. */
TC_INLINE mve_pred16_t tc_first_lanes(int64_t n) { return vctp32q((uint32_t)n); }

TC_INLINE tc_vf tc_vf_set1(float x) { return vdupq_n_f32(x); }
TC_INLINE tc_vf tc_vf_load(const float *p) { return vldrwq_f32(p); }
TC_INLINE tc_vf tc_vf_keep(tc_vf v) { return v; }
TC_INLINE void tc_vf_store(float *p, tc_vf v) { vstrwq_f32(p, v); }
TC_INLINE tc_vf tc_vf_load_first(const float *p, int64_t n) { return vldrwq_z_f32(p, tc_first_lanes(n)); }
TC_INLINE void tc_vf_load_pairs(const float *p, tc_vf *first, tc_vf *second) {
  const float32x4x2_t both = vld2q_f32(p);
  *first = both.val[0];
  *second = both.val[1];
}
TC_INLINE tc_vf tc_vf_first(tc_vf v, int64_t n) { return vpselq_f32(v, vdupq_n_f32(0.0f), tc_first_lanes(n)); }
TC_INLINE void tc_vf_store_first(float *p, tc_vf v, int64_t n) { vstrwq_p_f32(p, v, tc_first_lanes(n)); }
TC_INLINE tc_vf tc_vf_add(tc_vf a, tc_vf b) { return vaddq_f32(a, b); }
TC_INLINE tc_vf tc_vf_sub(tc_vf a, tc_vf b) { return vsubq_f32(a, b); }
TC_INLINE tc_vf tc_vf_mul(tc_vf a, tc_vf b) { return vmulq_f32(a, b); }
TC_INLINE tc_vf tc_vf_div(tc_vf a, tc_vf b) { return (tc_vf){a[0] / b[0], a[1] / b[1], a[2] / b[2], a[3] / b[3]}; }
TC_INLINE tc_vf tc_vf_fma(tc_vf a, tc_vf b, tc_vf c) { return vfmaq_f32(c, a, b); }
/* By comparison: the instructions return the number if one operand is NaN, the vocabulary wants the second operand. */
TC_INLINE tc_vf tc_vf_max(tc_vf a, tc_vf b) { return vpselq_f32(a, b, vcmpgtq_f32(a, b)); }
TC_INLINE tc_vf tc_vf_min(tc_vf a, tc_vf b) { return vpselq_f32(a, b, vcmpltq_f32(a, b)); }
TC_INLINE tc_vf tc_vf_abs(tc_vf a) { return vabsq_f32(a); }
TC_INLINE tc_vf tc_vf_sqrt(tc_vf a) { return (tc_vf){sqrtf(a[0]), sqrtf(a[1]), sqrtf(a[2]), sqrtf(a[3])}; }
TC_INLINE tc_vf tc_vf_round(tc_vf a) { return vrndnq_f32(a); }
/* Two factors, each a normal number, so that results below the normal range are reached too. */
TC_INLINE tc_vf tc_vf_scale2(tc_vf a, tc_vf n) {
  const int32x4_t bias = vdupq_n_s32(127), whole = vcvtnq_s32_f32(n);
  const int32x4_t half = vshrq_n_s32(whole, 1), rest = vsubq_s32(whole, half);
  const float32x4_t f0 = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(half, bias), 23));
  const float32x4_t f1 = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(rest, bias), 23));
  return vmulq_f32(vmulq_f32(a, f0), f1);
}
TC_INLINE tc_vf tc_vf_power2(tc_vf t) { return vreinterpretq_f32_s32(vshlq_n_s32(vreinterpretq_s32_f32(t), 23)); }
TC_INLINE tc_vm tc_vf_lt(tc_vf a, tc_vf b) { return vcmpltq_f32(a, b); }
TC_INLINE tc_vm tc_vf_eq(tc_vf a, tc_vf b) { return vcmpeqq_f32(a, b); }
/* Subtracting the bits of sqrt(1/2) makes the exponent field count from there. */
TC_INLINE tc_vf tc_vf_split2(tc_vf a, tc_vf *n) {
  const int32x4_t bits = vreinterpretq_s32_f32(a);
  const int32x4_t whole = vshrq_n_s32(vsubq_s32(bits, vdupq_n_s32(0x3f3504f3)), 23);
  *n = vcvtq_f32_s32(whole);
  return vreinterpretq_f32_s32(vsubq_s32(bits, vshlq_n_s32(whole, 23)));
}
TC_INLINE tc_vf tc_vf_select(tc_vm m, tc_vf a, tc_vf b) { return vpselq_f32(a, b, m); }
TC_INLINE float tc_vf_reduce_add(tc_vf a) { return (a[0] + a[1]) + (a[2] + a[3]); }
TC_INLINE float tc_vf_reduce_max(tc_vf a) { return fmaxf(fmaxf(a[0], a[1]), fmaxf(a[2], a[3])); }

/* The compiler may fuse no addition with the product. */
TC_INLINE tc_vf tc_vf_mul_rounded(tc_vf a, tc_vf b) { return tc_vf_mul(a, b); }

/* Integers: a vector of TC_LANES 32-bit numbers, each of which may hold two of 16 bits. Bytes are loaded and stored,
 * whose addresses may be any. */
typedef int32x4_t tc_vi;
#define TC_DOT4 0
#define TC_PACK4 0
#define TC_WIDEN_TWO 0
#define TC_ACROSS 1
#define TC_BOUNDS 1
#define TC_TAPS 1
#define TC_STORES_HALVES 0
#define TC_HALVES 0

TC_INLINE tc_vi tc_vi_set1(int32_t x) { return vdupq_n_s32(x); }
TC_INLINE tc_vi tc_vi_keep(tc_vi v) { return v; }
TC_INLINE tc_vi tc_vi_load(const void *p) { return vreinterpretq_s32_s8(vldrbq_s8(p)); }
TC_INLINE tc_vi tc_vi_load_pair(const void *p) {
  int32_t word;
  memcpy(&word, p, sizeof(word));
  return vdupq_n_s32(word);
}
TC_INLINE void tc_vi_store(void *p, tc_vi v) { vstrbq_s8(p, vreinterpretq_s8_s32(v)); }
TC_INLINE void tc_vi_store_first(void *p, tc_vi v, int64_t n) {
  vstrbq_p_s8(p, vreinterpretq_s8_s32(v), tc_first_lanes(n));
}
TC_INLINE tc_vi tc_vi_add(tc_vi a, tc_vi b) { return vaddq_s32(a, b); }
TC_INLINE tc_vi tc_vi_sub(tc_vi a, tc_vi b) { return vsubq_s32(a, b); }
TC_INLINE tc_vi tc_vi_quarter(tc_vi a) { return vshrq_n_s32(a, 2); }
TC_INLINE tc_vi tc_vi_max(tc_vi a, tc_vi b) { return vmaxq_s32(a, b); }
TC_INLINE tc_vi tc_vi_min(tc_vi a, tc_vi b) { return vminq_s32(a, b); }
TC_INLINE tc_vf tc_vi_to_float(tc_vi a) { return vcvtq_f32_s32(a); }
TC_INLINE tc_vi tc_vf_to_int(tc_vf a) { return vcvtnq_s32_f32(a); }
TC_INLINE tc_vi tc_vf_truncate(tc_vf a) { return vcvtq_s32_f32(a); }
TC_INLINE tc_vi tc_vi_widen_bytes(const void *p) { return vreinterpretq_s32_s16(vldrbq_s16(p)); }
TC_INLINE tc_vi tc_vi_widen_unsigned_bytes(const void *p) { return vreinterpretq_s32_u16(vldrbq_u16(p)); }
TC_INLINE tc_vi tc_vi_add_pairs(tc_vi a, tc_vi b) {
  return vreinterpretq_s32_s16(vaddq_s16(vreinterpretq_s16_s32(a), vreinterpretq_s16_s32(b)));
}
TC_INLINE tc_vi tc_vi_sub_pairs(tc_vi a, tc_vi b) {
  return vreinterpretq_s32_s16(vsubq_s16(vreinterpretq_s16_s32(a), vreinterpretq_s16_s32(b)));
}
TC_INLINE int64_t tc_pair_place(int64_t lane, int64_t half) { return 2 * lane + half; }
TC_INLINE tc_vi tc_vi_dot2(tc_vi sum, tc_vi a, tc_vi b) {
  const int16x8_t x = vreinterpretq_s16_s32(a), w = vreinterpretq_s16_s32(b);
  return vaddq_s32(vaddq_s32(sum, vmullbq_int_s16(x, w)), vmulltq_int_s16(x, w));
}
/* Sixteen bytes with signs, and a number plus all their products. */
typedef int8x16_t tc_bytes;
TC_INLINE tc_bytes tc_bytes_load(const void *p) { return vldrbq_s8(p); }
TC_INLINE int32_t tc_bytes_dot(int32_t sum, tc_bytes a, tc_bytes b) { return vmladavaq_s8(sum, a, b); }
/* Adds the products of `words` times sixteen bytes of x and those of each of four columns, which lie by turns, to four
 * sums. Returns where the columns go on. */
TC_INLINE const char *tc_bytes_dot_four(int32_t sums[4], const char *x, const char *columns, int32_t words) {
  int32_t a = sums[0], b = sums[1], c = sums[2], d = sums[3];
#ifdef __arm__ /* compilers spend an addition on every load, and need not see what the loop leaves of the words */
  __asm__(
      "wls lr, %[words], 1f\n\t"
      "0: vldrb.8 q0, [%[x]], #16\n\t"
      "vldrb.8 q1, [%[columns]], #16\n\t"
      "vmladava.s8 %[a], q0, q1\n\t"
      "vldrb.8 q1, [%[columns]], #16\n\t"
      "vmladava.s8 %[b], q0, q1\n\t"
      "vldrb.8 q1, [%[columns]], #16\n\t"
      "vmladava.s8 %[c], q0, q1\n\t"
      "vldrb.8 q1, [%[columns]], #16\n\t"
      "vmladava.s8 %[d], q0, q1\n\t"
      "le lr, 0b\n"
      "1:"
      : [a] "+Te"(a), [b] "+Te"(b), [c] "+Te"(c), [d] "+Te"(d), [x] "+r"(x), [columns] "+r"(columns)
      : [words] "r"(words), "m"(*(const char (*)[])x), "m"(*(const char (*)[])columns)
      : "lr", "q0", "q1");
#else
  for (; words > 0; words--, x += 16, columns += 64) {
    a = tc_bytes_dot(a, tc_bytes_load(x), tc_bytes_load(columns));
    b = tc_bytes_dot(b, tc_bytes_load(x), tc_bytes_load(columns + 16));
    c = tc_bytes_dot(c, tc_bytes_load(x), tc_bytes_load(columns + 32));
    d = tc_bytes_dot(d, tc_bytes_load(x), tc_bytes_load(columns + 48));
  }
#endif
  sums[0] = a;
  sums[1] = b;
  sums[2] = c;
  sums[3] = d;
  return columns;
}
/* A vector of four numbers. */
TC_INLINE tc_vi tc_vi_set(const int32_t v[4]) {
#ifdef __arm__ /* compilers go through memory */
  tc_vi r;
  __asm__("vmov %q0[2], %q0[0], %1, %2\n\tvmov %q0[3], %q0[1], %3, %4"
          : "=&w"(r)
          : "r"(v[0]), "r"(v[2]), "r"(v[1]), "r"(v[3]));
  return r;
#else
  return (tc_vi){v[0], v[1], v[2], v[3]};
#endif
}
/* Copies bytes and moves them by 128: unsigned ones get signs. */
TC_INLINE void tc_bytes_sign(void *to, const void *from, int64_t count) {
  uint8_t *y = to;
  const uint8_t *x = from;
  const uint8x16_t flip = vdupq_n_u8(128);
  int32_t left = (int32_t)count;
  for (; left >= 16; left -= 16, x += 16, y += 16) {
    vstrbq_u8(y, veorq_u8(vldrbq_u8(x), flip));
  }
  if (left > 0) {
    const mve_pred16_t first = vctp8q((uint32_t)left);
    vstrbq_p_u8(y, veorq_u8(vldrbq_z_u8(x, first), flip), first);
  }
}
/* Bounds of bytes that something is added to. */
typedef struct tc_bounds {
  tc_vf low, high; /* before it is added */
  tc_vi added;
} tc_bounds;
TC_INLINE tc_bounds tc_bounds_make(int32_t low, int32_t high, int32_t added) {
  return (tc_bounds){vdupq_n_f32((float)(low - added)), vdupq_n_f32((float)(high - added)), vdupq_n_s32(added)};
}
TC_INLINE tc_vi tc_vf_to_bounds(const tc_bounds *b, tc_vf v) {
  return vaddq_s32(vcvtnq_s32_f32(vminnmq_f32(vmaxnmq_f32(v, b->low), b->high)), b->added);
}
/* Taps of depthwise convolutions, a line of the kernel at a time. Up to 512 of them are added in floats, which hold the
 * sums exactly and whose multiplications add. */
enum { TC_TAP_LINES = 1, TC_MOST_TAPS = 512 };
typedef tc_vf tc_vt;
TC_INLINE tc_vt tc_vt_start(tc_vi start) {
  (void)start;
  return vdupq_n_f32(0.0f);
}
TC_INLINE tc_vi tc_vt_end(tc_vt sum, tc_vi start) { return vaddq_s32(vcvtq_s32_f32(sum), start); }
TC_INLINE tc_vt tc_vt_weights(const int16_t *p) { return vcvtq_f32_s32(vldrhq_s32(p)); }
TC_INLINE tc_vt tc_vt_column(const bool is_pair, const uint8_t *x, ptrdiff_t line_step) {
  (void)is_pair;
  (void)line_step;
  return vcvtq_f32_u32(vldrbq_u32(x));
}
TC_INLINE tc_vt tc_vt_dot(tc_vt sum, tc_vt x, tc_vt weights) { return vfmaq_f32(sum, x, weights); }
TC_INLINE int64_t tc_tap_place(int64_t lane, int64_t half) { return lane + half; }
/* The same in integers, of any number of taps. */
TC_INLINE tc_vi tc_vi_tap(const bool is_pair, tc_vi sum, const uint8_t *x, ptrdiff_t line_step,
                          const int16_t *weights) {
  (void)is_pair;
  (void)line_step;
  return vaddq_s32(sum, vmulq_s32(vreinterpretq_s32_u32(vldrbq_u32(x)), vldrhq_s32(weights)));
}
TC_INLINE tc_vi tc_vi_load_quad(const void *p) { return tc_vi_load_pair(p); }
TC_INLINE tc_vi tc_vi_and(tc_vi a, tc_vi b) { return vandq_s32(a, b); }
TC_INLINE tc_vi tc_vi_clear(tc_vi v, tc_vm m, tc_vi bits) { return vpselq_s32(vbicq_s32(v, bits), v, m); }
TC_INLINE tc_vf tc_vf_lookup(const float *table, tc_vi at) {
  return vldrwq_gather_shifted_offset_f32(table, vreinterpretq_u32_s32(at));
}
TC_INLINE tc_vi tc_vi_down(tc_vi a, int n) {
  return vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(a), vdupq_n_s32(-n)));
}
/* Codes are signed to the instruction, and so are sums of two products. */
enum { TC_DOT4_CODES_MOST = 127 };
TC_INLINE bool tc_has_dot4_codes(void) { return true; }
TC_INLINE tc_vi tc_vi_dot4_codes(const bool native, tc_vi sum, tc_vi codes, tc_vi b) {
  (void)native;
  const int8x16_t x = vreinterpretq_s8_s32(codes), w = vreinterpretq_s8_s32(b);
  const int16x8_t products = vaddq_s16(vmullbq_int_s8(x, w), vmulltq_int_s8(x, w));
  return vaddq_s32(vaddq_s32(sum, vmovlbq_s16(products)), vmovltq_s16(products));
}
TC_INLINE tc_vf tc_vf_load_halves(const uint16_t *p) { return vcvtbq_f32_f16(vreinterpretq_f16_u32(vldrhq_u32(p))); }
TC_INLINE tc_vf tc_vf_load_bfloats(const uint16_t *p) { return vreinterpretq_f32_u32(vshlq_n_u32(vldrhq_u32(p), 16)); }
TC_INLINE tc_vi tc_vf_bits(tc_vf v) { return vreinterpretq_s32_f32(v); }
TC_INLINE tc_vf tc_vf_of_bits(tc_vi v) { return vreinterpretq_f32_s32(v); }
#define TC_DOT_BF16 0
TC_INLINE bool tc_has_dot_bf16(void) { return false; }
TC_INLINE tc_vi tc_vi_load_signed_bytes(const void *p) { return vldrbq_s32(p); }
TC_INLINE tc_vi tc_vi_low_nibble(tc_vi v) { return vshrq_n_s32(vshlq_n_s32(v, 28), 28); }
TC_INLINE tc_vi tc_vi_high_nibble(tc_vi v) { return vshrq_n_s32(v, 4); }
TC_INLINE tc_vi tc_vi_load_bytes(const uint8_t *p) { return vreinterpretq_s32_u32(vldrbq_u32(p)); }
TC_INLINE tc_vi tc_vi_pair_bytes(const uint8_t *first, const uint8_t *second) {
  return vreinterpretq_s32_u32(vsliq_n_u32(vldrbq_u32(first), vldrbq_u32(second), 16));
}
TC_INLINE tc_vi tc_vi_pair_byte(const uint8_t *p) { return tc_vi_load_bytes(p); }
TC_INLINE void tc_vi_store_bytes_first(uint8_t *p, tc_vi v, int64_t n) {
  vstrbq_p_s32((int8_t *)p, v, tc_first_lanes(n));
}
TC_INLINE void tc_vi_store_bytes(uint8_t *p, tc_vi v) { vstrbq_s32((int8_t *)p, v); }
TC_INLINE tc_vi tc_vi_multiply_high(tc_vi a, tc_vi q) { return vqrdmulhq_s32(a, q); }
TC_INLINE tc_vi tc_vi_shift_left(tc_vi a, tc_vi n) { return vshlq_s32(a, n); }
TC_INLINE tc_vi tc_vi_shift_right(tc_vi a, tc_vi n) {
  const int32x4_t one = vdupq_n_s32(1), mask = vsubq_s32(vshlq_s32(one, n), one);
  const int32x4_t sign = vshrq_n_s32(a, 31); /* -1 or 0 */
  const int32x4_t threshold = vsubq_s32(vshrq_n_s32(mask, 1), sign);
  const int32x4_t down = vshlq_s32(a, vnegq_s32(n));
  return vpselq_s32(vaddq_s32(down, one), down, vcmpgtq_s32(vandq_s32(a, mask), threshold));
}

#endif
