/* What simd_helium.h takes from arm_mve.h and simd_neon.h from arm_neon.h, in portable C: for packing weights on other
 * machines, and for tests there. */
#ifndef TINYCOMP_ARM_VECTORS_H
#define TINYCOMP_ARM_VECTORS_H

#include <math.h>
#include <string.h>

#include "base.h"

#define ARM_VECTOR __attribute__((vector_size(16)))
typedef int8_t int8x16_t ARM_VECTOR;
typedef uint8_t uint8x16_t ARM_VECTOR;
typedef int16_t int16x8_t ARM_VECTOR;
typedef uint16_t uint16x8_t ARM_VECTOR;
typedef uint16_t float16x8_t ARM_VECTOR;
typedef int32_t int32x4_t ARM_VECTOR;
typedef uint32_t uint32x4_t ARM_VECTOR;
typedef float float32x4_t ARM_VECTOR;
#define ARM_HALF __attribute__((vector_size(8)))
typedef int8_t int8x8_t ARM_HALF;
typedef uint8_t uint8x8_t ARM_HALF;
typedef int16_t int16x4_t ARM_HALF;
typedef uint16_t uint16x4_t ARM_HALF;
typedef uint16_t float16x4_t ARM_HALF;
typedef uint32_t uint32x2_t ARM_HALF;
#undef ARM_HALF
typedef uint16_t mve_pred16_t; /* one bit per byte */
#undef ARM_VECTOR

#define vreinterpretq_s8_s32(v) ((int8x16_t)(v))
#define vreinterpretq_s16_s32(v) ((int16x8_t)(v))
#define vreinterpretq_s32_s8(v) ((int32x4_t)(v))
#define vreinterpretq_s32_s16(v) ((int32x4_t)(v))
#define vreinterpretq_s32_u16(v) ((int32x4_t)(v))
#define vreinterpretq_s32_u32(v) ((int32x4_t)(v))
#define vreinterpretq_s32_f32(v) ((int32x4_t)(v))
#define vreinterpretq_u32_s32(v) ((uint32x4_t)(v))
#define vreinterpretq_f16_u32(v) ((float16x8_t)(v))
#define vreinterpretq_f32_s32(v) ((float32x4_t)(v))
#define vgetq_lane_s32(v, lane) ((v)[lane])
#define vreinterpretq_f32_u32(v) ((float32x4_t)(v))
#define vreinterpretq_s32_u8(v) ((int32x4_t)(v))
#define vreinterpretq_u8_s32(v) ((uint8x16_t)(v))
#define vreinterpret_f16_u16(v) ((float16x4_t)(v))
#define vreinterpret_s8_u32(v) ((int8x8_t)(v))
#define vreinterpret_u8_u32(v) ((uint8x8_t)(v))

/* Functions whose result is an expression of lane i of their operands. */
#define ARM_EACH(result, name, parameters, expression)          \
  TC_INLINE result name parameters {                            \
    enum { LANES = sizeof(result) / sizeof(((result){0})[0]) }; \
    result r = {0};                                             \
    for (int i = 0; i < LANES; i++) {                           \
      r[i] = (expression);                                      \
    }                                                           \
    return r;                                                   \
  }

/* Whether lane i of so many bytes takes part. */
#define ARM_IN(p, bytes) ((p) >> (i * (bytes)) & 1)
TC_INLINE mve_pred16_t mve_first(uint32_t bytes) { return (mve_pred16_t)(bytes >= 16 ? 0xffff : (1u << bytes) - 1); }
TC_INLINE mve_pred16_t vctp8q(uint32_t n) { return mve_first(n); }
TC_INLINE mve_pred16_t vctp32q(uint32_t n) { return mve_first(n >= 4 ? 16 : 4 * n); }
TC_INLINE mve_pred16_t mve_where(int32x4_t lanes) {
  unsigned bits = 0;
  for (int i = 0; i < 4; i++) {
    bits |= (lanes[i] ? 15u : 0u) << 4 * i;
  }
  return (mve_pred16_t)bits;
}
TC_INLINE mve_pred16_t vcmpgtq_f32(float32x4_t a, float32x4_t b) { return mve_where(a > b); }
TC_INLINE mve_pred16_t vcmpltq_f32(float32x4_t a, float32x4_t b) { return mve_where(a < b); }
TC_INLINE mve_pred16_t vcmpeqq_f32(float32x4_t a, float32x4_t b) { return mve_where(a == b); }
TC_INLINE mve_pred16_t vcmpgtq_s32(int32x4_t a, int32x4_t b) { return mve_where(a > b); }
ARM_EACH(float32x4_t, vpselq_f32, (float32x4_t a, float32x4_t b, mve_pred16_t p), ARM_IN(p, 4) ? a[i] : b[i])
ARM_EACH(int32x4_t, vpselq_s32, (int32x4_t a, int32x4_t b, mve_pred16_t p), ARM_IN(p, 4) ? a[i] : b[i])

ARM_EACH(float32x4_t, vdupq_n_f32, (float x), x)
ARM_EACH(int32x4_t, vdupq_n_s32, (int32_t x), x)
ARM_EACH(uint8x16_t, vdupq_n_u8, (uint8_t x), x)

ARM_EACH(float32x4_t, vldrwq_f32, (const float *p), p[i])
ARM_EACH(float32x4_t, vldrwq_gather_shifted_offset_f32, (const float *p, uint32x4_t at), p[at[i]])
ARM_EACH(float32x4_t, vldrwq_z_f32, (const float *p, mve_pred16_t first), ARM_IN(first, 4) ? p[i] : 0.0f)
ARM_EACH(int8x16_t, vldrbq_s8, (const int8_t *p), p[i])
ARM_EACH(uint8x16_t, vldrbq_u8, (const uint8_t *p), p[i])
ARM_EACH(uint8x16_t, vldrbq_z_u8, (const uint8_t *p, mve_pred16_t first), ARM_IN(first, 1) ? p[i] : 0)
ARM_EACH(int16x8_t, vldrbq_s16, (const int8_t *p), p[i])
ARM_EACH(uint16x8_t, vldrbq_u16, (const uint8_t *p), p[i])
ARM_EACH(int32x4_t, vldrbq_s32, (const int8_t *p), p[i])
ARM_EACH(uint32x4_t, vldrbq_u32, (const uint8_t *p), p[i])
ARM_EACH(int32x4_t, vldrhq_s32, (const int16_t *p), p[i])
ARM_EACH(uint32x4_t, vldrhq_u32, (const uint16_t *p), p[i])

#define ARM_STORE(name, type, vector, element, bytes)          \
  TC_INLINE void name(type *p, vector v, mve_pred16_t first) { \
    for (int i = 0; i < 16 / (bytes); i++) {                   \
      if (ARM_IN(first, bytes)) {                              \
        p[i] = (type)v[i];                                     \
      }                                                        \
    }                                                          \
  }
ARM_STORE(vstrwq_p_f32, float, float32x4_t, float, 4)
ARM_STORE(vstrbq_p_s8, int8_t, int8x16_t, int8_t, 1)
ARM_STORE(vstrbq_p_u8, uint8_t, uint8x16_t, uint8_t, 1)
ARM_STORE(vstrbq_p_s32, int8_t, int32x4_t, int32_t, 4)
TC_INLINE void vstrwq_f32(float *p, float32x4_t v) { vstrwq_p_f32(p, v, 0xffff); }
TC_INLINE void vstrbq_u8(uint8_t *p, uint8x16_t v) { vstrbq_p_u8(p, v, 0xffff); }
TC_INLINE void vstrbq_s8(int8_t *p, int8x16_t v) { vstrbq_p_s8(p, v, 0xffff); }
TC_INLINE void vstrbq_s32(int8_t *p, int32x4_t v) { vstrbq_p_s32(p, v, 0xffff); }

TC_INLINE float32x4_t vaddq_f32(float32x4_t a, float32x4_t b) { return a + b; }
TC_INLINE float32x4_t vsubq_f32(float32x4_t a, float32x4_t b) { return a - b; }
/* Nothing is fused with the product, as with the instruction. */
TC_INLINE float32x4_t vmulq_f32(float32x4_t a, float32x4_t b) {
  float32x4_t product = a * b;
  __asm__("" : "+m"(product));
  return product;
}
ARM_EACH(float32x4_t, vfmaq_f32, (float32x4_t c, float32x4_t a, float32x4_t b), fmaf(a[i], b[i], c[i]))
ARM_EACH(float32x4_t, vmaxnmq_f32, (float32x4_t a, float32x4_t b), fmaxf(a[i], b[i]))
ARM_EACH(float32x4_t, vminnmq_f32, (float32x4_t a, float32x4_t b), fminf(a[i], b[i]))
ARM_EACH(float32x4_t, vabsq_f32, (float32x4_t a), fabsf(a[i]))
ARM_EACH(float32x4_t, vrndnq_f32, (float32x4_t a), rintf(a[i]))
ARM_EACH(float32x4_t, vcvtq_f32_s32, (int32x4_t a), (float)a[i])
ARM_EACH(float32x4_t, vcvtq_f32_u32, (uint32x4_t a), (float)a[i])
TC_INLINE int32_t arm_truncated(float x) {
  return x >= 0x1p31f ? INT32_MAX : x > -0x1p31f ? (int32_t)x : x <= -0x1p31f ? INT32_MIN : 0;
}
ARM_EACH(int32x4_t, vcvtq_s32_f32, (float32x4_t a), arm_truncated(a[i]))
ARM_EACH(int32x4_t, vcvtnq_s32_f32, (float32x4_t a), (int32_t)rintf(a[i]))
/* A number of half precision. */
TC_INLINE float arm_half(uint16_t half) {
  const int exponent = half >> 10 & 31, fraction = half & 1023;
  const float size = exponent == 31  ? (fraction ? NAN : INFINITY)
                     : exponent == 0 ? ldexpf((float)fraction, -24)
                                     : ldexpf((float)(fraction + 1024), exponent - 25);
  return half & 0x8000 ? -size : size;
}
/* The lower half of each lane. */
ARM_EACH(float32x4_t, vcvtbq_f32_f16, (float16x8_t a), arm_half(a[2 * i]))

TC_INLINE int16x8_t vaddq_s16(int16x8_t a, int16x8_t b) { return (int16x8_t)((uint16x8_t)a + (uint16x8_t)b); }
TC_INLINE int16x8_t vsubq_s16(int16x8_t a, int16x8_t b) { return (int16x8_t)((uint16x8_t)a - (uint16x8_t)b); }
TC_INLINE int32x4_t vaddq_s32(int32x4_t a, int32x4_t b) { return (int32x4_t)((uint32x4_t)a + (uint32x4_t)b); }
TC_INLINE int32x4_t vsubq_s32(int32x4_t a, int32x4_t b) { return (int32x4_t)((uint32x4_t)a - (uint32x4_t)b); }
ARM_EACH(int32x4_t, vmulq_s32, (int32x4_t a, int32x4_t b), (int32_t)((uint32_t)a[i] * (uint32_t)b[i]))
TC_INLINE int32x4_t vnegq_s32(int32x4_t a) { return vsubq_s32((int32x4_t){0}, a); }
TC_INLINE int32x4_t vandq_s32(int32x4_t a, int32x4_t b) { return a & b; }
TC_INLINE int32x4_t vbicq_s32(int32x4_t a, int32x4_t b) { return a & ~b; }
TC_INLINE uint8x16_t veorq_u8(uint8x16_t a, uint8x16_t b) { return a ^ b; }
ARM_EACH(int32x4_t, vmaxq_s32, (int32x4_t a, int32x4_t b), a[i] > b[i] ? a[i] : b[i])
ARM_EACH(int32x4_t, vminq_s32, (int32x4_t a, int32x4_t b), a[i] < b[i] ? a[i] : b[i])
TC_INLINE int32x4_t vshrq_n_s32(int32x4_t a, int n) { return a >> n; }
TC_INLINE int32x4_t vshlq_n_s32(int32x4_t a, int n) { return (int32x4_t)((uint32x4_t)a << n); }
TC_INLINE uint32x4_t vshlq_n_u32(uint32x4_t a, int n) { return a << n; }
TC_INLINE uint32x4_t vsliq_n_u32(uint32x4_t a, uint32x4_t b, int n) { return (a & ((1u << n) - 1)) | b << n; }
/* To the right where n is negative. */
ARM_EACH(int32x4_t, vshlq_s32, (int32x4_t a, int32x4_t n), n[i] < 0 ? a[i] >> -n[i] : (int32_t)((uint32_t)a[i] << n[i]))
ARM_EACH(uint32x4_t, vshlq_u32, (uint32x4_t a, int32x4_t n), n[i] < 0 ? a[i] >> -n[i] : a[i] << n[i])
ARM_EACH(int32x4_t, vqrdmulhq_s32, (int32x4_t a, int32x4_t b),
         a[i] == INT32_MIN && b[i] == INT32_MIN ? INT32_MAX
                                                : (int32_t)(((int64_t)a[i] * b[i] + ((int64_t)1 << 30)) >> 31))

/* Of the even lanes (bottom) or of the odd ones (top). */
ARM_EACH(int16x8_t, vmullbq_int_s8, (int8x16_t a, int8x16_t b), (int16_t)(a[2 * i] * b[2 * i]))
ARM_EACH(int16x8_t, vmulltq_int_s8, (int8x16_t a, int8x16_t b), (int16_t)(a[2 * i + 1] * b[2 * i + 1]))
ARM_EACH(int32x4_t, vmullbq_int_s16, (int16x8_t a, int16x8_t b), a[2 * i] * b[2 * i])
ARM_EACH(int32x4_t, vmulltq_int_s16, (int16x8_t a, int16x8_t b), a[2 * i + 1] * b[2 * i + 1])
ARM_EACH(int32x4_t, vmovlbq_s16, (int16x8_t a), a[2 * i])
ARM_EACH(int32x4_t, vmovltq_s16, (int16x8_t a), a[2 * i + 1])
TC_INLINE int32_t vmladavaq_s8(int32_t sum, int8x16_t a, int8x16_t b) {
  uint32_t total = (uint32_t)sum;
  for (int i = 0; i < 16; i++) {
    total += (uint32_t)(a[i] * b[i]);
  }
  return (int32_t)total;
}

/* What NEON alone has. */
TC_INLINE uint32x4_t vcltq_f32(float32x4_t a, float32x4_t b) { return (uint32x4_t)(a < b); }
TC_INLINE uint32x4_t vcgtq_f32(float32x4_t a, float32x4_t b) { return (uint32x4_t)(a > b); }
TC_INLINE uint32x4_t vceqq_f32(float32x4_t a, float32x4_t b) { return (uint32x4_t)(a == b); }
TC_INLINE uint32x4_t vcgtq_s32(int32x4_t a, int32x4_t b) { return (uint32x4_t)(a > b); }
TC_INLINE float32x4_t vbslq_f32(uint32x4_t mask, float32x4_t a, float32x4_t b) {
  return (float32x4_t)((mask & (uint32x4_t)a) | (~mask & (uint32x4_t)b));
}
TC_INLINE float32x4_t vdivq_f32(float32x4_t a, float32x4_t b) { return a / b; }
ARM_EACH(float32x4_t, vsqrtq_f32, (float32x4_t a), sqrtf(a[i]))
ARM_EACH(float32x4_t, vmaxq_f32, (float32x4_t a, float32x4_t b), a[i] > b[i] || a[i] != a[i] ? a[i] : b[i])
ARM_EACH(float32x4_t, vcvt_f32_f16, (float16x4_t a), arm_half(a[i]))
TC_INLINE float vaddvq_f32(float32x4_t a) { return (a[0] + a[1]) + (a[2] + a[3]); }
TC_INLINE float vmaxvq_f32(float32x4_t a) {
  const float32x4_t swapped = {a[2], a[3], a[0], a[1]}, pairs = vmaxq_f32(a, swapped);
  return vmaxq_f32(pairs, (float32x4_t){pairs[1], pairs[0], pairs[3], pairs[2]})[0];
}
ARM_EACH(float32x4_t, vld1q_f32, (const float *p), p[i])
typedef struct float32x4x2_t {
  float32x4_t val[2];
} float32x4x2_t;
TC_INLINE float32x4x2_t vld2q_f32(const float *p) {
  return (float32x4x2_t){{{p[0], p[2], p[4], p[6]}, {p[1], p[3], p[5], p[7]}}};
}
ARM_EACH(uint8x16_t, vld1q_u8, (const uint8_t *p), p[i])
ARM_EACH(uint8x8_t, vld1_u8, (const uint8_t *p), p[i])
ARM_EACH(int8x8_t, vld1_s8, (const int8_t *p), p[i])
ARM_EACH(uint16x4_t, vld1_u16, (const uint16_t *p), p[i])
ARM_EACH(uint32x2_t, vld1_u32, (const uint32_t *p), p[i])
ARM_EACH(int16x4_t, vld1_dup_s16, (const int16_t *p), *p)
ARM_EACH(uint16x4_t, vdup_n_u16, (uint16_t x), x)
TC_INLINE void vst1q_f32(float *p, float32x4_t v) { memcpy(p, &v, sizeof(v)); }
TC_INLINE void vst1q_u8(uint8_t *p, uint8x16_t v) { memcpy(p, &v, sizeof(v)); }
ARM_EACH(int16x8_t, vcombine_s16, (int16x4_t a, int16x4_t b), i < 4 ? a[i % 4] : b[i % 4])
ARM_EACH(uint16x8_t, vcombine_u16, (uint16x4_t a, uint16x4_t b), i < 4 ? a[i % 4] : b[i % 4])
ARM_EACH(int8x8_t, vget_low_s8, (int8x16_t a), a[i])
ARM_EACH(int16x4_t, vget_low_s16, (int16x8_t a), a[i])
ARM_EACH(uint16x4_t, vget_low_u16, (uint16x8_t a), a[i])
ARM_EACH(int16x8_t, vmovl_s8, (int8x8_t a), a[i])
ARM_EACH(uint16x8_t, vmovl_u8, (uint8x8_t a), a[i])
ARM_EACH(int32x4_t, vmovl_s16, (int16x4_t a), a[i])
ARM_EACH(uint32x4_t, vmovl_u16, (uint16x4_t a), a[i])
ARM_EACH(uint16x4_t, vmovn_u32, (uint32x4_t a), (uint16_t)a[i])
ARM_EACH(uint8x8_t, vmovn_u16, (uint16x8_t a), (uint8_t)a[i])
ARM_EACH(uint32x4_t, vshll_n_u16, (uint16x4_t a, int n), (uint32_t)a[i] << n)
TC_INLINE uint32x4_t vshrq_n_u32(uint32x4_t a, int n) { return a >> n; }
ARM_EACH(int32x4_t, vmlal_s16, (int32x4_t sum, int16x4_t a, int16x4_t b),
         (int32_t)((uint32_t)sum[i] + (uint32_t)(a[i] * b[i])))
ARM_EACH(int32x4_t, vmlal_high_s16, (int32x4_t sum, int16x8_t a, int16x8_t b),
         (int32_t)((uint32_t)sum[i] + (uint32_t)(a[i + 4] * b[i + 4])))
ARM_EACH(int16x8_t, vmull_s8, (int8x8_t a, int8x8_t b), (int16_t)(a[i] * b[i]))
ARM_EACH(int16x8_t, vmull_high_s8, (int8x16_t a, int8x16_t b), (int16_t)(a[i + 8] * b[i + 8]))
ARM_EACH(int16x8_t, vpaddq_s16, (int16x8_t a, int16x8_t b),
         (int16_t)(i < 4 ? a[2 * i % 8] + a[2 * i % 8 + 1] : b[2 * i % 8] + b[2 * i % 8 + 1]))
ARM_EACH(int32x4_t, vpadalq_s16, (int32x4_t sum, int16x8_t a),
         (int32_t)((uint32_t)sum[i] + (uint32_t)(a[2 * i] + a[2 * i + 1])))

#undef ARM_EACH
#undef ARM_STORE
#undef ARM_IN
#endif
