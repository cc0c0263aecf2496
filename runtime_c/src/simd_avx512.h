/* The SIMD vocabulary for AVX-512 (F, BW, DQ, VL): sixteen lanes. What each word means is written in README.md. */
#ifndef TINYCOMP_SIMD_AVX512_H
#define TINYCOMP_SIMD_AVX512_H

#include <math.h>
#include <string.h>

#include "cpu.h"
#include "kernel.h"

enum { TC_LANES = 16 };
#define TC_REGISTERS 32
typedef __m512 tc_vf;
typedef __mmask16 tc_vm;

/* One bit for each of the first n lanes, 0 <= n <= 16. */
TC_INLINE __mmask16 tc_first_lanes(int64_t n) { return (__mmask16)((1u << n) - 1u); }

TC_INLINE tc_vf tc_vf_set1(float x) { return _mm512_set1_ps(x); }
TC_INLINE tc_vf tc_vf_load(const float *p) { return _mm512_loadu_ps(p); }
TC_INLINE void tc_vf_store(float *p, tc_vf v) { _mm512_storeu_ps(p, v); }
TC_INLINE tc_vf tc_vf_load_first(const float *p, int64_t n) { return _mm512_maskz_loadu_ps(tc_first_lanes(n), p); }
TC_INLINE void tc_vf_load_pairs(const float *p, tc_vf *first, tc_vf *second) {
  const __m512 low = _mm512_loadu_ps(p), high = _mm512_loadu_ps(p + 16);
  const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  *first = _mm512_permutex2var_ps(low, even, high);
  *second = _mm512_permutex2var_ps(low, _mm512_add_epi32(even, _mm512_set1_epi32(1)), high);
}
TC_INLINE tc_vf tc_vf_first(tc_vf v, int64_t n) { return _mm512_maskz_mov_ps(tc_first_lanes(n), v); }
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

/* Half a vector. */
typedef __m256 tc_vh;
TC_INLINE tc_vh tc_vh_set1(float x) { return _mm256_set1_ps(x); }
TC_INLINE tc_vh tc_vh_load(const float *p) { return _mm256_loadu_ps(p); }
TC_INLINE void tc_vh_store(float *p, tc_vh v) { _mm256_storeu_ps(p, v); }
TC_INLINE __m256i tc_vh_first(int64_t n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
TC_INLINE tc_vh tc_vh_load_first(const float *p, int64_t n) { return _mm256_maskload_ps(p, tc_vh_first(n)); }
TC_INLINE void tc_vh_store_first(float *p, tc_vh v, int64_t n) { _mm256_maskstore_ps(p, tc_vh_first(n), v); }
TC_INLINE tc_vh tc_vh_add(tc_vh a, tc_vh b) { return _mm256_add_ps(a, b); }
TC_INLINE tc_vh tc_vh_fma(tc_vh a, tc_vh b, tc_vh c) { return _mm256_fmadd_ps(a, b, c); }
TC_INLINE tc_vh tc_vh_max(tc_vh a, tc_vh b) { return _mm256_max_ps(a, b); }
TC_INLINE tc_vh tc_vh_min(tc_vh a, tc_vh b) { return _mm256_min_ps(a, b); }

/* The compiler may fuse no addition with the product. */
TC_INLINE tc_vf tc_vf_mul_rounded(tc_vf a, tc_vf b) { return tc_vf_keep(tc_vf_mul(a, b)); }

/* Integers: a vector of TC_LANES 32-bit numbers, each of which may hold two of 16 bits or four of 8. */
typedef __m512i tc_vi;
#define TC_DOT4 1
#define TC_PACK4 0
#define TC_WIDEN_TWO 0
#define TC_ACROSS 0
#define TC_BOUNDS 0
#define TC_TAPS 0
#define TC_STORES_HALVES 1
#define TC_HALVES 1

TC_INLINE tc_vi tc_vi_set1(int32_t x) { return _mm512_set1_epi32(x); }
TC_INLINE tc_vi tc_vi_load(const void *p) { return _mm512_loadu_si512(p); }
TC_INLINE tc_vi tc_vi_load_pair(const void *p) {
  int32_t word;
  memcpy(&word, p, sizeof(word));
  return _mm512_set1_epi32(word);
}
TC_INLINE void tc_vi_store(void *p, tc_vi v) { _mm512_storeu_si512(p, v); }
TC_INLINE void tc_vi_store_first(void *p, tc_vi v, int64_t n) { _mm512_mask_storeu_epi32(p, tc_first_lanes(n), v); }
TC_INLINE tc_vi tc_vi_add(tc_vi a, tc_vi b) { return _mm512_add_epi32(a, b); }
TC_INLINE tc_vi tc_vi_sub(tc_vi a, tc_vi b) { return _mm512_sub_epi32(a, b); }
TC_INLINE tc_vi tc_vi_quarter(tc_vi a) { return _mm512_srai_epi32(a, 2); }
TC_INLINE tc_vi tc_vi_max(tc_vi a, tc_vi b) { return _mm512_max_epi32(a, b); }
TC_INLINE tc_vi tc_vi_min(tc_vi a, tc_vi b) { return _mm512_min_epi32(a, b); }
TC_INLINE tc_vf tc_vi_to_float(tc_vi a) { return _mm512_cvtepi32_ps(a); }
TC_INLINE tc_vi tc_vf_to_int(tc_vf a) { return _mm512_cvtps_epi32(a); }
TC_INLINE tc_vi tc_vf_truncate(tc_vf a) {
  const __mmask16 above = _mm512_cmp_ps_mask(a, _mm512_set1_ps(0x1p31f), _CMP_GE_OQ);
  const __m512i whole = _mm512_mask_blend_epi32(above, _mm512_cvttps_epi32(a), _mm512_set1_epi32(INT32_MAX));
  return _mm512_maskz_mov_epi32(_mm512_cmp_ps_mask(a, a, _CMP_ORD_Q), whole);
}
TC_INLINE tc_vi tc_vi_widen_bytes(const void *p) { return _mm512_cvtepi8_epi16(_mm256_loadu_si256(p)); }
TC_INLINE tc_vi tc_vi_widen_unsigned_bytes(const void *p) { return _mm512_cvtepu8_epi16(_mm256_loadu_si256(p)); }
TC_INLINE tc_vi tc_vi_add_pairs(tc_vi a, tc_vi b) { return _mm512_add_epi16(a, b); }
TC_INLINE tc_vi tc_vi_sub_pairs(tc_vi a, tc_vi b) { return _mm512_sub_epi16(a, b); }
TC_INLINE int64_t tc_pair_place(int64_t lane, int64_t half) { return 2 * lane + half; }
TC_INLINE tc_vi tc_vi_dot2(tc_vi sum, tc_vi a, tc_vi b) { return _mm512_add_epi32(sum, _mm512_madd_epi16(a, b)); }
TC_INLINE tc_vi tc_vi_load_quad(const void *p) { return tc_vi_load_pair(p); }
/* Any weights. */
enum { TC_DOT4_MOST = 256 };
TC_INLINE bool tc_has_dot4(void) { return tc_cpu_has_avx512vnni(); }
TC_INLINE tc_vi tc_vi_and(tc_vi a, tc_vi b) { return _mm512_and_si512(a, b); }
TC_INLINE tc_vi tc_vi_clear(tc_vi v, tc_vm m, tc_vi bits) { return _mm512_mask_andnot_epi32(v, m, bits, v); }
TC_INLINE tc_vf tc_vf_lookup(const float *table, tc_vi at) {
  return _mm512_permutex2var_ps(_mm512_loadu_ps(table), at, _mm512_loadu_ps(table + 16));
}
TC_INLINE tc_vi tc_vi_down(tc_vi a, int n) { return _mm512_srli_epi32(a, (unsigned)n); }
enum { TC_DOT4_CODES_MOST = 255 };
TC_INLINE bool tc_has_dot4_codes(void) { return tc_cpu_has_avx512vnni(); }
TC_INLINE tc_vi tc_vi_dot4_codes(const bool native, tc_vi sum, tc_vi codes, tc_vi b) {
  if (native) {
    return tc_vi_dot4(sum, codes, b);
  }
  return _mm512_add_epi32(sum, _mm512_madd_epi16(_mm512_maddubs_epi16(codes, b), _mm512_set1_epi16(1)));
}
TC_INLINE tc_vf tc_vf_load_halves(const uint16_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)p)); }
/* NaN as one number, with its sign. */
TC_INLINE void tc_vf_store_halves(uint16_t *p, tc_vf v) {
  const tc_vf nan = _mm512_or_ps(_mm512_and_ps(v, _mm512_set1_ps(-0.0f)), _mm512_set1_ps(NAN));
  const tc_vf numbers = _mm512_mask_blend_ps(_mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), v, nan);
  _mm256_storeu_si256((void *)p, _mm512_cvtps_ph(numbers, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
TC_INLINE tc_vf tc_vf_load_bfloats(const uint16_t *p) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)p)), 16));
}
TC_INLINE tc_vi tc_vf_bits(tc_vf v) { return _mm512_castps_si512(v); }
TC_INLINE tc_vf tc_vf_of_bits(tc_vi v) { return _mm512_castsi512_ps(v); }
#define TC_DOT_BF16 1
TC_INLINE bool tc_has_dot_bf16(void) { return tc_cpu_has_avx512bf16(); }
TC_INLINE tc_vi tc_vi_load_signed_bytes(const void *p) { return _mm512_cvtepi8_epi32(_mm_loadu_si128(p)); }
TC_INLINE tc_vi tc_vi_low_nibble(tc_vi v) { return _mm512_srai_epi32(_mm512_slli_epi32(v, 28), 28); }
TC_INLINE tc_vi tc_vi_high_nibble(tc_vi v) { return _mm512_srai_epi32(v, 4); }
TC_INLINE tc_vi tc_vi_load_bytes(const uint8_t *p) { return _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)p)); }
TC_INLINE tc_vi tc_vi_pair_bytes(const uint8_t *first, const uint8_t *second) {
  const __m512i low = _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)first));
  const __m512i high = _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)second));
  return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}
TC_INLINE tc_vi tc_vi_pair_byte(const uint8_t *p) { return _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)p)); }
TC_INLINE void tc_vi_store_bytes(uint8_t *p, tc_vi v) { _mm_storeu_si128((void *)p, _mm512_cvtepi32_epi8(v)); }
TC_INLINE void tc_vi_store_bytes_first(uint8_t *p, tc_vi v, int64_t n) {
  _mm512_mask_cvtepi32_storeu_epi8(p, tc_first_lanes(n), v);
}
/* Products of even and of odd lanes, which the shift to the left leaves in the upper half of their 64 bits. */
TC_INLINE tc_vi tc_vi_multiply_high(tc_vi a, tc_vi q) {
  const __m512i half = _mm512_set1_epi64((int64_t)1 << 30);
  const __m512i even = _mm512_add_epi64(_mm512_mul_epi32(a, q), half);
  const __m512i odd = _mm512_add_epi64(_mm512_mul_epi32(_mm512_srli_epi64(a, 32), _mm512_srli_epi64(q, 32)), half);
  return _mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64(even, 31), _mm512_slli_epi64(odd, 1));
}
TC_INLINE tc_vi tc_vi_shift_left(tc_vi a, tc_vi n) { return _mm512_sllv_epi32(a, n); }
TC_INLINE tc_vi tc_vi_shift_right(tc_vi a, tc_vi n) {
  const __m512i one = _mm512_set1_epi32(1), mask = _mm512_sub_epi32(_mm512_sllv_epi32(one, n), one);
  const __m512i threshold = _mm512_add_epi32(_mm512_srli_epi32(mask, 1), _mm512_srli_epi32(a, 31));
  const __mmask16 up = _mm512_cmpgt_epi32_mask(_mm512_and_si512(a, mask), threshold);
  const __m512i shifted = _mm512_srav_epi32(a, n);
  return _mm512_mask_add_epi32(shifted, up, shifted, one);
}

#endif
