/* The SIMD vocabulary for AVX-512 (F, BW, DQ, VL): sixteen lanes. What each word means is written in README.md. */
enum { TC_LANES = 16 };
#define TC_REGISTERS 32
typedef __m512 tc_vf;
typedef __mmask16 tc_vm;

#define TC_INLINE static inline __attribute__((always_inline, unused))

/* One bit for each of the first n lanes, 0 <= n <= 16. */
TC_INLINE __mmask16 tc_first_lanes(int64_t n) { return (__mmask16)((1u << n) - 1u); }

TC_INLINE tc_vf tc_vf_set1(float x) { return _mm512_set1_ps(x); }
TC_INLINE tc_vf tc_vf_load(const float *p) { return _mm512_loadu_ps(p); }
/* Keeps a loaded vector in its register: the compiler may not load it again at each use. */
TC_INLINE tc_vf tc_vf_keep(tc_vf v) {
  __asm__("" : "+v"(v));
  return v;
}
TC_INLINE void tc_vf_store(float *p, tc_vf v) { _mm512_storeu_ps(p, v); }
TC_INLINE tc_vf tc_vf_load_first(const float *p, int64_t n) { return _mm512_maskz_loadu_ps(tc_first_lanes(n), p); }
TC_INLINE void tc_vf_store_first(float *p, tc_vf v, int64_t n) { _mm512_mask_storeu_ps(p, tc_first_lanes(n), v); }
TC_INLINE tc_vf tc_vf_add(tc_vf a, tc_vf b) { return _mm512_add_ps(a, b); }
TC_INLINE tc_vf tc_vf_sub(tc_vf a, tc_vf b) { return _mm512_sub_ps(a, b); }
TC_INLINE tc_vf tc_vf_mul(tc_vf a, tc_vf b) { return _mm512_mul_ps(a, b); }
TC_INLINE tc_vf tc_vf_div(tc_vf a, tc_vf b) { return _mm512_div_ps(a, b); }
TC_INLINE tc_vf tc_vf_fma(tc_vf a, tc_vf b, tc_vf c) { return _mm512_fmadd_ps(a, b, c); }
TC_INLINE tc_vf tc_vf_max(tc_vf a, tc_vf b) { return _mm512_max_ps(a, b); }
TC_INLINE tc_vf tc_vf_min(tc_vf a, tc_vf b) { return _mm512_min_ps(a, b); }
TC_INLINE tc_vf tc_vf_abs(tc_vf a) { return _mm512_abs_ps(a); }
TC_INLINE tc_vf tc_vf_sqrt(tc_vf a) { return _mm512_sqrt_ps(a); }
TC_INLINE tc_vf tc_vf_round(tc_vf a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
TC_INLINE tc_vf tc_vf_scale2(tc_vf a, tc_vf n) { return _mm512_scalef_ps(a, n); }
TC_INLINE tc_vf tc_vf_power2(tc_vf t) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(t), 23)); }
TC_INLINE tc_vm tc_vf_lt(tc_vf a, tc_vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
TC_INLINE tc_vm tc_vf_eq(tc_vf a, tc_vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
/* Subtracting the bits of sqrt(1/2) makes the exponent field count from there. */
TC_INLINE tc_vf tc_vf_split2(tc_vf a, tc_vf *n) {
  const __m512i bits = _mm512_castps_si512(a);
  const __m512i whole = _mm512_srai_epi32(_mm512_sub_epi32(bits, _mm512_set1_epi32(0x3f3504f3)), 23);
  *n = _mm512_cvtepi32_ps(whole);
  return _mm512_castsi512_ps(_mm512_sub_epi32(bits, _mm512_slli_epi32(whole, 23)));
}
TC_INLINE tc_vf tc_vf_select(tc_vm m, tc_vf a, tc_vf b) { return _mm512_mask_blend_ps(m, b, a); }
TC_INLINE float tc_vf_reduce_add(tc_vf a) { return _mm512_reduce_add_ps(a); }
TC_INLINE float tc_vf_reduce_max(tc_vf a) { return _mm512_reduce_max_ps(a); }
