/* The SIMD vocabulary for 64-bit Arm: four lanes. What each word means is written in README.md. */
enum { TC_LANES = 4 };
#define TC_REGISTERS 32
typedef float32x4_t tc_vf;
typedef uint32x4_t tc_vm;

#define TC_INLINE static inline __attribute__((always_inline, unused))

TC_INLINE tc_vf tc_vf_set1(float x) { return vdupq_n_f32(x); }
TC_INLINE tc_vf tc_vf_load(const float *p) { return vld1q_f32(p); }
/* Keeps a loaded vector in its register: the compiler may not load it again at each use. */
TC_INLINE tc_vf tc_vf_keep(tc_vf v) {
  __asm__("" : "+w"(v));
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
