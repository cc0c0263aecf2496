/* The SIMD vocabulary for AVX2 with FMA: eight lanes. What each word means is written in README.md. */
#ifndef TINYCOMP_SIMD_AVX2_H
#define TINYCOMP_SIMD_AVX2_H

#include <math.h>
#include <string.h>

#include "cpu.h"
#include "kernel.h"

enum { TC_LANES = 8 };
#define TC_REGISTERS 16
typedef __m256 tc_vf;
typedef __m256 tc_vm;

/* All ones in the first n lanes. */
TC_INLINE __m256i tc_first_lanes(int64_t n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

TC_INLINE tc_vf tc_vf_set1(float x) { return _mm256_set1_ps(x); }
TC_INLINE tc_vf tc_vf_load(const float *p) { return _mm256_loadu_ps(p); }
/* Keeps a loaded vector in its register: the compiler may not load it again at each use. */
TC_INLINE tc_vf tc_vf_keep(tc_vf v) {
  __asm__("" : "+x"(v));
  return v;
}
TC_INLINE void tc_vf_store(float *p, tc_vf v) { _mm256_storeu_ps(p, v); }
TC_INLINE tc_vf tc_vf_load_first(const float *p, int64_t n) { return _mm256_maskload_ps(p, tc_first_lanes(n)); }
TC_INLINE tc_vf tc_quarters_in_order(__m256 quarters) {
  return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(quarters), 0xd8));
}
TC_INLINE void tc_vf_load_pairs(const float *p, tc_vf *first, tc_vf *second) {
  const __m256 low = _mm256_loadu_ps(p), high = _mm256_loadu_ps(p + 8);
  *first = tc_quarters_in_order(_mm256_shuffle_ps(low, high, 0x88));
  *second = tc_quarters_in_order(_mm256_shuffle_ps(low, high, 0xdd));
}
TC_INLINE tc_vf tc_vf_first(tc_vf v, int64_t n) { return _mm256_and_ps(v, _mm256_castsi256_ps(tc_first_lanes(n))); }
/* Piece by piece, because some processors take a dozen cycles for a masked store. */
TC_INLINE void tc_vf_store_first(float *p, tc_vf v, int64_t n) {
  __m128 half = _mm256_castps256_ps128(v);
  if (n & 8) {
    _mm256_storeu_ps(p, v);
    return;
  }
  if (n & 4) {
    _mm_storeu_ps(p, half);
    half = _mm256_extractf128_ps(v, 1);
    p += 4;
  }
  if (n & 2) {
    _mm_storel_pi((__m64 *)p, half);
    half = _mm_movehl_ps(half, half);
    p += 2;
  }
  if (n & 1) {
    _mm_store_ss(p, half);
  }
}
TC_INLINE tc_vf tc_vf_add(tc_vf a, tc_vf b) { return _mm256_add_ps(a, b); }
TC_INLINE tc_vf tc_vf_sub(tc_vf a, tc_vf b) { return _mm256_sub_ps(a, b); }
TC_INLINE tc_vf tc_vf_mul(tc_vf a, tc_vf b) { return _mm256_mul_ps(a, b); }
TC_INLINE tc_vf tc_vf_div(tc_vf a, tc_vf b) { return _mm256_div_ps(a, b); }
TC_INLINE tc_vf tc_vf_fma(tc_vf a, tc_vf b, tc_vf c) { return _mm256_fmadd_ps(a, b, c); }
TC_INLINE tc_vf tc_vf_max(tc_vf a, tc_vf b) { return _mm256_max_ps(a, b); }
TC_INLINE tc_vf tc_vf_min(tc_vf a, tc_vf b) { return _mm256_min_ps(a, b); }
TC_INLINE tc_vf tc_vf_abs(tc_vf a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
TC_INLINE tc_vf tc_vf_sqrt(tc_vf a) { return _mm256_sqrt_ps(a); }
TC_INLINE tc_vf tc_vf_round(tc_vf a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
/* Two factors, each a normal number, so that results below the normal range are reached too. */
TC_INLINE tc_vf tc_vf_scale2(tc_vf a, tc_vf n) {
  const __m256i bias = _mm256_set1_epi32(127), whole = _mm256_cvtps_epi32(n);
  const __m256i half = _mm256_srai_epi32(whole, 1), rest = _mm256_sub_epi32(whole, half);
  const __m256i f0 = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
  const __m256i f1 = _mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23);
  return _mm256_mul_ps(_mm256_mul_ps(a, _mm256_castsi256_ps(f0)), _mm256_castsi256_ps(f1));
}
TC_INLINE tc_vf tc_vf_power2(tc_vf t) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(t), 23)); }
TC_INLINE tc_vm tc_vf_lt(tc_vf a, tc_vf b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
TC_INLINE tc_vm tc_vf_eq(tc_vf a, tc_vf b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
/* Subtracting the bits of sqrt(1/2) makes the exponent field count from there. */
TC_INLINE tc_vf tc_vf_split2(tc_vf a, tc_vf *n) {
  const __m256i bits = _mm256_castps_si256(a);
  const __m256i whole = _mm256_srai_epi32(_mm256_sub_epi32(bits, _mm256_set1_epi32(0x3f3504f3)), 23);
  *n = _mm256_cvtepi32_ps(whole);
  return _mm256_castsi256_ps(_mm256_sub_epi32(bits, _mm256_slli_epi32(whole, 23)));
}
TC_INLINE tc_vf tc_vf_select(tc_vm m, tc_vf a, tc_vf b) { return _mm256_blendv_ps(b, a, m); }
TC_INLINE float tc_vf_reduce_add(tc_vf a) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}
TC_INLINE float tc_vf_reduce_max(tc_vf a) {
  __m128 s = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  s = _mm_max_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_max_ss(s, _mm_shuffle_ps(s, s, 1)));
}

/* The compiler may fuse no addition with the product. */
TC_INLINE tc_vf tc_vf_mul_rounded(tc_vf a, tc_vf b) { return tc_vf_keep(tc_vf_mul(a, b)); }

/* Integers: a vector of TC_LANES 32-bit numbers, each of which may hold two of 16 bits or four of 8. */
typedef __m256i tc_vi;
#define TC_DOT4 1
#define TC_PACK4 1
#define TC_WIDEN_TWO 0
#define TC_ACROSS 0
#define TC_BOUNDS 0
#define TC_TAPS 0
#define TC_STORES_HALVES 1
#define TC_HALVES 0

TC_INLINE tc_vi tc_vi_set1(int32_t x) { return _mm256_set1_epi32(x); }
/* Keeps the compiler from taking two results of this operand for one. */
TC_INLINE tc_vi tc_vi_keep(tc_vi v) {
  __asm__("" : "+x"(v));
  return v;
}
TC_INLINE tc_vi tc_vi_load(const void *p) { return _mm256_loadu_si256(p); }
TC_INLINE tc_vi tc_vi_load_pair(const void *p) {
  int32_t word;
  memcpy(&word, p, sizeof(word));
  return _mm256_set1_epi32(word);
}
TC_INLINE void tc_vi_store(void *p, tc_vi v) { _mm256_storeu_si256(p, v); }
TC_INLINE void tc_vi_store_first(void *p, tc_vi v, int64_t n) { tc_vf_store_first(p, _mm256_castsi256_ps(v), n); }
TC_INLINE tc_vi tc_vi_add(tc_vi a, tc_vi b) { return _mm256_add_epi32(a, b); }
TC_INLINE tc_vi tc_vi_sub(tc_vi a, tc_vi b) { return _mm256_sub_epi32(a, b); }
TC_INLINE tc_vi tc_vi_quarter(tc_vi a) { return _mm256_srai_epi32(a, 2); }
TC_INLINE tc_vi tc_vi_max(tc_vi a, tc_vi b) { return _mm256_max_epi32(a, b); }
TC_INLINE tc_vi tc_vi_min(tc_vi a, tc_vi b) { return _mm256_min_epi32(a, b); }
TC_INLINE tc_vf tc_vi_to_float(tc_vi a) { return _mm256_cvtepi32_ps(a); }
TC_INLINE tc_vi tc_vf_to_int(tc_vf a) { return _mm256_cvtps_epi32(a); }
/* What is out of range becomes the lowest number, whose bits all turn over where the highest is meant. */
TC_INLINE tc_vi tc_vf_truncate(tc_vf a) {
  const __m256i above = _mm256_castps_si256(_mm256_cmp_ps(a, _mm256_set1_ps(0x1p31f), _CMP_GE_OQ));
  const __m256i number = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_ORD_Q));
  return _mm256_and_si256(number, _mm256_xor_si256(above, _mm256_cvttps_epi32(a)));
}
TC_INLINE tc_vi tc_vi_widen_bytes(const void *p) { return _mm256_cvtepi8_epi16(_mm_loadu_si128(p)); }
TC_INLINE tc_vi tc_vi_widen_unsigned_bytes(const void *p) { return _mm256_cvtepu8_epi16(_mm_loadu_si128(p)); }
TC_INLINE tc_vi tc_vi_add_pairs(tc_vi a, tc_vi b) { return _mm256_add_epi16(a, b); }
TC_INLINE tc_vi tc_vi_sub_pairs(tc_vi a, tc_vi b) { return _mm256_sub_epi16(a, b); }
TC_INLINE int64_t tc_pair_place(int64_t lane, int64_t half) { return 2 * lane + half; }
TC_INLINE tc_vi tc_vi_dot2(tc_vi sum, tc_vi a, tc_vi b) { return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b)); }
TC_INLINE tc_vi tc_vi_load_signed_bytes(const void *p) { return _mm256_cvtepi8_epi32(_mm_loadl_epi64(p)); }
TC_INLINE tc_vi tc_vi_low_nibble(tc_vi v) { return _mm256_srai_epi32(_mm256_slli_epi32(v, 28), 28); }
TC_INLINE tc_vi tc_vi_high_nibble(tc_vi v) { return _mm256_srai_epi32(v, 4); }
TC_INLINE tc_vi tc_vi_load_bytes(const uint8_t *p) { return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)p)); }
TC_INLINE tc_vi tc_vi_load_quad(const void *p) { return tc_vi_load_pair(p); }
TC_INLINE bool tc_has_dot4(void) { return true; }
/* The first step adds two products in 16 bits and saturates: 255 * 128 still fits. */
enum { TC_DOT4_MOST = 128 };
TC_INLINE tc_vi tc_vi_dot4(tc_vi sum, tc_vi a, tc_vi b) {
  return _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), _mm256_set1_epi16(1)));
}
TC_INLINE tc_vi tc_vi_and(tc_vi a, tc_vi b) { return _mm256_and_si256(a, b); }
TC_INLINE tc_vi tc_vi_clear(tc_vi v, tc_vm m, tc_vi bits) {
  return _mm256_andnot_si256(_mm256_and_si256(_mm256_castps_si256(m), bits), v);
}
TC_INLINE tc_vf tc_vf_lookup(const float *table, tc_vi at) { return _mm256_i32gather_ps(table, at, 4); }
TC_INLINE tc_vi tc_vi_down(tc_vi a, int n) { return _mm256_srli_epi32(a, n); }
enum { TC_DOT4_CODES_MOST = 255 };
TC_INLINE bool tc_has_dot4_codes(void) { return tc_cpu_has_avxvnni(); }
TC_INLINE tc_vi tc_vi_dot4_codes(const bool native, tc_vi sum, tc_vi codes, tc_vi b) {
  if (native) {
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(codes), "x"(b));
    return sum;
  }
  return tc_vi_dot4(sum, codes, b);
}
TC_INLINE tc_vf tc_vf_load_halves(const uint16_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const void *)p)); }
/* NaN as one number, with its sign. */
TC_INLINE void tc_vf_store_halves(uint16_t *p, tc_vf v) {
  const tc_vf nan = _mm256_or_ps(_mm256_and_ps(v, _mm256_set1_ps(-0.0f)), _mm256_set1_ps(NAN));
  const tc_vf numbers = _mm256_blendv_ps(v, nan, _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  _mm_storeu_si128((void *)p, _mm256_cvtps_ph(numbers, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
TC_INLINE tc_vf tc_vf_load_bfloats(const uint16_t *p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)p)), 16));
}
TC_INLINE tc_vi tc_vf_bits(tc_vf v) { return _mm256_castps_si256(v); }
TC_INLINE tc_vf tc_vf_of_bits(tc_vi v) { return _mm256_castsi256_ps(v); }
#define TC_DOT_BF16 0
TC_INLINE bool tc_has_dot_bf16(void) { return false; }
TC_INLINE tc_vi tc_vi_pair_bytes(const uint8_t *first, const uint8_t *second) {
  return _mm256_cvtepu8_epi16(
      _mm_unpacklo_epi8(_mm_loadl_epi64((const void *)first), _mm_loadl_epi64((const void *)second)));
}
TC_INLINE tc_vi tc_vi_pair_byte(const uint8_t *p) { return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)p)); }
TC_INLINE __m128i tc_low_bytes(tc_vi v) {
  const __m256i order = _mm256_set1_epi64x(0x0c080400);
  const __m256i bytes = _mm256_shuffle_epi8(v, order);
  return _mm_unpacklo_epi32(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1));
}
TC_INLINE void tc_vi_store_bytes(uint8_t *p, tc_vi v) { _mm_storel_epi64((void *)p, tc_low_bytes(v)); }
/* How integers become unsigned bytes: every step saturates. */
typedef struct tc_pack4 {
  __m256i zero; /* of 16 bits */
  __m256i low;
} tc_pack4;
TC_INLINE tc_pack4 tc_pack4_make(int32_t zero, int32_t low) {
  return (tc_pack4){_mm256_set1_epi16((int16_t)zero), _mm256_set1_epi8((char)low)};
}
TC_INLINE void tc_vi_store_pack4(uint8_t *p, const tc_vi v[4], const tc_pack4 *pack) {
  const __m256i first = _mm256_adds_epi16(_mm256_packs_epi32(v[0], v[1]), pack->zero);
  const __m256i second = _mm256_adds_epi16(_mm256_packs_epi32(v[2], v[3]), pack->zero);
  const __m256i bytes = _mm256_max_epu8(_mm256_packus_epi16(first, second), pack->low);
  /* Every half holds four bytes of each of the four vectors. */
  _mm256_storeu_si256((void *)p, _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
}
TC_INLINE void tc_vi_store_bytes_first(uint8_t *p, tc_vi v, int64_t n) {
  uint8_t bytes[8];
  tc_vi_store_bytes(bytes, v);
  for (int64_t i = 0; i < n; i++) {
    p[i] = bytes[i];
  }
}
/* Products of even and of odd lanes, which the shift to the left leaves in the upper half of their 64 bits. */
TC_INLINE tc_vi tc_vi_multiply_high(tc_vi a, tc_vi q) {
  const __m256i half = _mm256_set1_epi64x((int64_t)1 << 30);
  const __m256i even = _mm256_add_epi64(_mm256_mul_epi32(a, q), half);
  const __m256i odd = _mm256_add_epi64(_mm256_mul_epi32(_mm256_srli_epi64(a, 32), _mm256_srli_epi64(q, 32)), half);
  return _mm256_blend_epi32(_mm256_srli_epi64(even, 31), _mm256_slli_epi64(odd, 1), 0xaa);
}
TC_INLINE tc_vi tc_vi_shift_left(tc_vi a, tc_vi n) { return _mm256_sllv_epi32(a, n); }
TC_INLINE tc_vi tc_vi_shift_right(tc_vi a, tc_vi n) {
  const __m256i mask = _mm256_sub_epi32(_mm256_sllv_epi32(_mm256_set1_epi32(1), n), _mm256_set1_epi32(1));
  const __m256i threshold = _mm256_add_epi32(_mm256_srli_epi32(mask, 1), _mm256_srli_epi32(a, 31));
  const __m256i up = _mm256_cmpgt_epi32(_mm256_and_si256(a, mask), threshold);
  return _mm256_sub_epi32(_mm256_srav_epi32(a, n), up);
}

#endif
