/* The SIMD vocabulary for 64-bit Arm: four lanes. What each word means is written in README.md. */
#ifndef TINYCOMP_SIMD_NEON_H
#define TINYCOMP_SIMD_NEON_H

#include <math.h>
#include <string.h>

#include "cpu.h"
#include "kernel.h"

enum { TC_LANES = 4 };
#define TC_REGISTERS 32
typedef float32x4_t tc_vf;
typedef uint32x4_t tc_vm;

#ifdef __aarch64__
#define NEON_REGISTER "+w"
#else /* where only weights are packed */
#define NEON_REGISTER "+m"
#endif

TC_INLINE tc_vf tc_vf_set1(float x) { return vdupq_n_f32(x); }
TC_INLINE tc_vf tc_vf_load(const float *p) { return vld1q_f32(p); }
/* Keeps a loaded vector in its register: the compiler may not load it again at each use. */
TC_INLINE tc_vf tc_vf_keep(tc_vf v) {
  __asm__("" : NEON_REGISTER(v));
  return v;
}
TC_INLINE void tc_vf_store(float *p, tc_vf v) { vst1q_f32(p, v); }
TC_INLINE tc_vf tc_vf_load_first(const float *p, int64_t n) {
  float lanes[4] = {0, 0, 0, 0};
  for (int64_t i = 0; i < n; i++) {
    lanes[i] = p[i];
  }
  return vld1q_f32(lanes);
}
TC_INLINE void tc_vf_load_pairs(const float *p, tc_vf *first, tc_vf *second) {
  const float32x4x2_t both = vld2q_f32(p);
  *first = both.val[0];
  *second = both.val[1];
}
TC_INLINE tc_vf tc_vf_first(tc_vf v, int64_t n) {
  const float32x4_t lanes = {0.0f, 1.0f, 2.0f, 3.0f};
  return vbslq_f32(vcltq_f32(lanes, vdupq_n_f32((float)n)), v, vdupq_n_f32(0.0f));
}
TC_INLINE void tc_vf_store_first(float *p, tc_vf v, int64_t n) {
  float lanes[4];
  vst1q_f32(lanes, v);
  for (int64_t i = 0; i < n; i++) {
    p[i] = lanes[i];
  }
}
TC_INLINE tc_vf tc_vf_add(tc_vf a, tc_vf b) { return vaddq_f32(a, b); }
TC_INLINE tc_vf tc_vf_sub(tc_vf a, tc_vf b) { return vsubq_f32(a, b); }
TC_INLINE tc_vf tc_vf_mul(tc_vf a, tc_vf b) { return vmulq_f32(a, b); }
TC_INLINE tc_vf tc_vf_div(tc_vf a, tc_vf b) { return vdivq_f32(a, b); }
TC_INLINE tc_vf tc_vf_fma(tc_vf a, tc_vf b, tc_vf c) { return vfmaq_f32(c, a, b); }
/* By comparison: vmaxq_f32 returns NaN for either operand, the vocabulary wants the second. */
TC_INLINE tc_vf tc_vf_max(tc_vf a, tc_vf b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
TC_INLINE tc_vf tc_vf_min(tc_vf a, tc_vf b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
TC_INLINE tc_vf tc_vf_abs(tc_vf a) { return vabsq_f32(a); }
TC_INLINE tc_vf tc_vf_sqrt(tc_vf a) { return vsqrtq_f32(a); }
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
TC_INLINE tc_vm tc_vf_lt(tc_vf a, tc_vf b) { return vcltq_f32(a, b); }
TC_INLINE tc_vm tc_vf_eq(tc_vf a, tc_vf b) { return vceqq_f32(a, b); }
/* Subtracting the bits of sqrt(1/2) makes the exponent field count from there. */
TC_INLINE tc_vf tc_vf_split2(tc_vf a, tc_vf *n) {
  const int32x4_t bits = vreinterpretq_s32_f32(a);
  const int32x4_t whole = vshrq_n_s32(vsubq_s32(bits, vdupq_n_s32(0x3f3504f3)), 23);
  *n = vcvtq_f32_s32(whole);
  return vreinterpretq_f32_s32(vsubq_s32(bits, vshlq_n_s32(whole, 23)));
}
TC_INLINE tc_vf tc_vf_select(tc_vm m, tc_vf a, tc_vf b) { return vbslq_f32(m, a, b); }
TC_INLINE float tc_vf_reduce_add(tc_vf a) { return vaddvq_f32(a); }
TC_INLINE float tc_vf_reduce_max(tc_vf a) { return vmaxvq_f32(a); }

/* The compiler may fuse no addition with the product. */
TC_INLINE tc_vf tc_vf_mul_rounded(tc_vf a, tc_vf b) { return tc_vf_keep(tc_vf_mul(a, b)); }

/* Integers: a vector of TC_LANES 32-bit numbers, each of which may hold two of 16 bits. */
typedef int32x4_t tc_vi;
#define TC_DOT4 0
#define TC_PACK4 0
#define TC_WIDEN_TWO 0
#define TC_ACROSS 0
#define TC_BOUNDS 0
#define TC_TAPS 0
#define TC_STORES_HALVES 0
#define TC_HALVES 0

TC_INLINE tc_vi tc_vi_set1(int32_t x) { return vdupq_n_s32(x); }
/* Keeps the compiler from taking two results of this operand for one. */
TC_INLINE tc_vi tc_vi_keep(tc_vi v) {
  __asm__("" : NEON_REGISTER(v));
  return v;
}
TC_INLINE tc_vi tc_vi_load(const void *p) { return vreinterpretq_s32_u8(vld1q_u8(p)); }
TC_INLINE tc_vi tc_vi_load_pair(const void *p) {
  const int16_t *halves = p;
  return vreinterpretq_s32_s16(vcombine_s16(vld1_dup_s16(halves), vld1_dup_s16(halves + 1)));
}
TC_INLINE void tc_vi_store(void *p, tc_vi v) { vst1q_u8(p, vreinterpretq_u8_s32(v)); }
TC_INLINE void tc_vi_store_first(void *p, tc_vi v, int64_t n) { memcpy(p, &v, (size_t)n * sizeof(int32_t)); }
TC_INLINE tc_vi tc_vi_add(tc_vi a, tc_vi b) { return vaddq_s32(a, b); }
TC_INLINE tc_vi tc_vi_sub(tc_vi a, tc_vi b) { return vsubq_s32(a, b); }
TC_INLINE tc_vi tc_vi_quarter(tc_vi a) { return vshrq_n_s32(a, 2); }
TC_INLINE tc_vi tc_vi_max(tc_vi a, tc_vi b) { return vmaxq_s32(a, b); }
TC_INLINE tc_vi tc_vi_min(tc_vi a, tc_vi b) { return vminq_s32(a, b); }
TC_INLINE tc_vf tc_vi_to_float(tc_vi a) { return vcvtq_f32_s32(a); }
TC_INLINE tc_vi tc_vf_to_int(tc_vf a) { return vcvtnq_s32_f32(a); }
TC_INLINE tc_vi tc_vf_truncate(tc_vf a) { return vcvtq_s32_f32(a); }
/* The first halves of all lanes, then the second ones: what the instruction multiplies is half a vector. */
TC_INLINE tc_vi tc_vi_widen_bytes(const void *p) { return vreinterpretq_s32_s16(vmovl_s8(vld1_s8(p))); }
TC_INLINE tc_vi tc_vi_widen_unsigned_bytes(const void *p) { return vreinterpretq_s32_u16(vmovl_u8(vld1_u8(p))); }
TC_INLINE tc_vi tc_vi_add_pairs(tc_vi a, tc_vi b) {
  return vreinterpretq_s32_s16(vaddq_s16(vreinterpretq_s16_s32(a), vreinterpretq_s16_s32(b)));
}
TC_INLINE tc_vi tc_vi_sub_pairs(tc_vi a, tc_vi b) {
  return vreinterpretq_s32_s16(vsubq_s16(vreinterpretq_s16_s32(a), vreinterpretq_s16_s32(b)));
}
TC_INLINE int64_t tc_pair_place(int64_t lane, int64_t half) { return TC_LANES * half + lane; }
TC_INLINE tc_vi tc_vi_dot2(tc_vi sum, tc_vi a, tc_vi b) {
  const int16x8_t x = vreinterpretq_s16_s32(a), w = vreinterpretq_s16_s32(b);
  sum = vmlal_s16(sum, vget_low_s16(x), vget_low_s16(w));
  return vmlal_high_s16(sum, x, w);
}
TC_INLINE tc_vi tc_vi_load_quad(const void *p) {
  int32_t word;
  memcpy(&word, p, sizeof(word));
  return vdupq_n_s32(word);
}
TC_INLINE tc_vi tc_vi_and(tc_vi a, tc_vi b) { return vandq_s32(a, b); }
TC_INLINE tc_vi tc_vi_clear(tc_vi v, tc_vm m, tc_vi bits) {
  return vbicq_s32(v, vandq_s32(vreinterpretq_s32_u32(m), bits));
}
TC_INLINE tc_vf tc_vf_lookup(const float *table, tc_vi at) {
  return (tc_vf){table[vgetq_lane_s32(at, 0)], table[vgetq_lane_s32(at, 1)], table[vgetq_lane_s32(at, 2)],
                 table[vgetq_lane_s32(at, 3)]};
}
TC_INLINE tc_vi tc_vi_down(tc_vi a, int n) {
  return vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(a), vdupq_n_s32(-n)));
}
/* Codes are signed to the instruction. */
enum { TC_DOT4_CODES_MOST = 127 };
TC_INLINE bool tc_has_dot4_codes(void) { return tc_cpu_has_dotprod(); }
TC_INLINE tc_vi tc_vi_dot4_codes(const bool native, tc_vi sum, tc_vi codes, tc_vi b) {
#ifdef __aarch64__
  if (native) {
    __asm__(".arch armv8.2-a+dotprod\n\tsdot %0.4s, %1.16b, %2.16b" : "+w"(sum) : "w"(codes), "w"(b));
    return sum;
  }
#endif
  (void)native;
  const int8x16_t x = vreinterpretq_s8_s32(codes), w = vreinterpretq_s8_s32(b);
  const int16x8_t low = vmull_s8(vget_low_s8(x), vget_low_s8(w)), high = vmull_high_s8(x, w);
  return vpadalq_s16(sum, vpaddq_s16(low, high));
}
TC_INLINE tc_vf tc_vf_load_halves(const uint16_t *p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
TC_INLINE tc_vf tc_vf_load_bfloats(const uint16_t *p) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16)); }
TC_INLINE tc_vi tc_vf_bits(tc_vf v) { return vreinterpretq_s32_f32(v); }
TC_INLINE tc_vf tc_vf_of_bits(tc_vi v) { return vreinterpretq_f32_s32(v); }
#define TC_DOT_BF16 0
TC_INLINE bool tc_has_dot_bf16(void) { return false; }
TC_INLINE tc_vi tc_vi_load_signed_bytes(const void *p) {
  uint32_t bytes[2] = {0, 0};
  memcpy(&bytes[0], p, sizeof(bytes[0]));
  return vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u32(vld1_u32(bytes)))));
}
TC_INLINE tc_vi tc_vi_low_nibble(tc_vi v) { return vshrq_n_s32(vshlq_n_s32(v, 28), 28); }
TC_INLINE tc_vi tc_vi_high_nibble(tc_vi v) { return vshrq_n_s32(v, 4); }
TC_INLINE tc_vi tc_vi_load_bytes(const uint8_t *p) {
  uint32_t bytes[2] = {0, 0};
  memcpy(&bytes[0], p, sizeof(bytes[0]));
  return vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(vmovl_u8(vreinterpret_u8_u32(vld1_u32(bytes))))));
}
TC_INLINE tc_vi tc_vi_pair_bytes(const uint8_t *first, const uint8_t *second) {
  uint32_t bytes[2];
  memcpy(&bytes[0], first, sizeof(bytes[0]));
  memcpy(&bytes[1], second, sizeof(bytes[1]));
  return vreinterpretq_s32_u16(vmovl_u8(vreinterpret_u8_u32(vld1_u32(bytes))));
}
TC_INLINE tc_vi tc_vi_pair_byte(const uint8_t *p) {
  uint32_t bytes[2] = {0, 0};
  memcpy(&bytes[0], p, sizeof(bytes[0]));
  return vreinterpretq_s32_u16(vmovl_u8(vreinterpret_u8_u32(vld1_u32(bytes))));
}
TC_INLINE void tc_vi_store_bytes_first(uint8_t *p, tc_vi v, int64_t n) {
  const uint8x8_t bytes = vmovn_u16(vcombine_u16(vmovn_u32(vreinterpretq_u32_s32(v)), vdup_n_u16(0)));
  memcpy(p, &bytes, (size_t)n);
}
TC_INLINE void tc_vi_store_bytes(uint8_t *p, tc_vi v) { tc_vi_store_bytes_first(p, v, TC_LANES); }
TC_INLINE tc_vi tc_vi_multiply_high(tc_vi a, tc_vi q) { return vqrdmulhq_s32(a, q); }
TC_INLINE tc_vi tc_vi_shift_left(tc_vi a, tc_vi n) { return vshlq_s32(a, n); }
TC_INLINE tc_vi tc_vi_shift_right(tc_vi a, tc_vi n) {
  const int32x4_t one = vdupq_n_s32(1), mask = vsubq_s32(vshlq_s32(one, n), one);
  const int32x4_t sign = vreinterpretq_s32_u32(vshrq_n_u32(vreinterpretq_u32_s32(a), 31));
  const int32x4_t threshold = vaddq_s32(vshrq_n_s32(mask, 1), sign);
  const uint32x4_t up = vcgtq_s32(vandq_s32(a, mask), threshold);
  return vsubq_s32(vshlq_s32(a, vnegq_s32(n)), vreinterpretq_s32_u32(up));
}

#endif
