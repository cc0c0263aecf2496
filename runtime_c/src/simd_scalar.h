/* The SIMD vocabulary without SIMD: one lane. What each word means is written in README.md. */

enum { TC_LANES = 1 };
#define TC_REGISTERS 16
typedef float tc_vf;
typedef bool tc_vm;

#define TC_INLINE static inline __attribute__((always_inline, unused))

TC_INLINE tc_vf tc_vf_set1(float x) { return x; }
TC_INLINE tc_vf tc_vf_load(const float *p) { return *p; }
/* Keeps a loaded vector in its register: the compiler may not load it again at each use. */
TC_INLINE tc_vf tc_vf_keep(tc_vf v) { return v; }
TC_INLINE void tc_vf_store(float *p, tc_vf v) { *p = v; }
TC_INLINE tc_vf tc_vf_load_first(const float *p, int64_t n) { return n > 0 ? *p : 0.0f; }
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
