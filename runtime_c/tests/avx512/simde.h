/* AVX-512 in terms of AVX2: the intrinsics from SIMDe, those that its version 0.7.4 lacks or rounds in another way, and
 * the words that the vocabulary takes from the assembler. */
#define SIMDE_ENABLE_NATIVE_ALIASES
/* Half of an instruction takes a few: inline they would take the compiler half an hour. */
#define SIMDE_NO_INLINE
#include <simde/x86/avx512.h>

#define EMULATED static __attribute__((noinline, unused))

/* One vector, seen as what it is made of. */
typedef union pieces {
  __m512 f;
  __m512i i;
  __m256 f_half[2];
  __m256i i_half[2];
  float f32[16];
  int32_t i32[16];
} pieces;

/* Memory is touched in the chosen lanes alone, as by the instructions. */
EMULATED __m512 emulated_maskz_loadu_ps(__mmask16 mask, const float *p) {
  pieces r = {.f32 = {0}};
  for (int lane = 0; lane < 16; lane++) {
    r.f32[lane] = mask >> lane & 1 ? p[lane] : 0.0f;
  }
  return r.f;
}
EMULATED void emulated_mask_storeu_ps(float *p, __mmask16 mask, __m512 v) {
  const pieces from = {.f = v};
  for (int lane = 0; lane < 16; lane++) {
    if (mask >> lane & 1) {
      p[lane] = from.f32[lane];
    }
  }
}
EMULATED void emulated_mask_storeu_epi32(void *p, __mmask16 mask, __m512i v) {
  emulated_mask_storeu_ps(p, mask, _mm512_castsi512_ps(v));
}
EMULATED void emulated_mask_cvtepi32_storeu_epi8(void *p, __mmask16 mask, __m512i v) {
  const pieces from = {.i = v};
  for (int lane = 0; lane < 16; lane++) {
    if (mask >> lane & 1) {
      ((uint8_t *)p)[lane] = (uint8_t)from.i32[lane];
    }
  }
}
EMULATED __m128i emulated_cvtepi32_epi8(__m512i v) {
  uint8_t bytes[16];
  emulated_mask_cvtepi32_storeu_epi8(bytes, 0xffff, v);
  return _mm_loadu_si128((const void *)bytes);
}

/* What is done to the halves as AVX2 does it. */
EMULATED __m512 emulated_cvtepi32_ps(__m512i v) {
  const pieces a = {.i = v};
  return (pieces){.f_half = {_mm256_cvtepi32_ps(a.i_half[0]), _mm256_cvtepi32_ps(a.i_half[1])}}.f;
}
EMULATED __m512i emulated_cvtps_epi32(__m512 v) {
  const pieces a = {.f = v};
  return (pieces){.i_half = {_mm256_cvtps_epi32(a.f_half[0]), _mm256_cvtps_epi32(a.f_half[1])}}.i;
}
EMULATED __m512i emulated_cvttps_epi32(__m512 v) {
  const pieces a = {.f = v};
  return (pieces){.i_half = {_mm256_cvttps_epi32(a.f_half[0]), _mm256_cvttps_epi32(a.f_half[1])}}.i;
}
EMULATED __m512i emulated_cvtepi8_epi32(__m128i v) {
  return (pieces){.i_half = {_mm256_cvtepi8_epi32(v), _mm256_cvtepi8_epi32(_mm_srli_si128(v, 8))}}.i;
}
EMULATED __m512i emulated_cvtepu8_epi32(__m128i v) {
  return (pieces){.i_half = {_mm256_cvtepu8_epi32(v), _mm256_cvtepu8_epi32(_mm_srli_si128(v, 8))}}.i;
}
EMULATED __m512i emulated_cvtepu16_epi32(__m256i v) {
  return (pieces){.i_half = {_mm256_cvtepu16_epi32(_mm256_castsi256_si128(v)),
                             _mm256_cvtepu16_epi32(_mm256_extracti128_si256(v, 1))}}
      .i;
}
EMULATED __m512i emulated_cvtepu8_epi16(__m256i v) {
  return (pieces){
      .i_half = {_mm256_cvtepu8_epi16(_mm256_castsi256_si128(v)), _mm256_cvtepu8_epi16(_mm256_extracti128_si256(v, 1))}}
      .i;
}
EMULATED __m512i emulated_srai_epi32(__m512i v, unsigned n) {
  const pieces a = {.i = v};
  return (pieces){.i_half = {_mm256_srai_epi32(a.i_half[0], (int)n), _mm256_srai_epi32(a.i_half[1], (int)n)}}.i;
}
EMULATED __m512i emulated_srav_epi32(__m512i v, __m512i by) {
  const pieces a = {.i = v}, n = {.i = by};
  return (pieces){.i_half = {_mm256_srav_epi32(a.i_half[0], n.i_half[0]), _mm256_srav_epi32(a.i_half[1], n.i_half[1])}}
      .i;
}

/* The sign of a zero goes, too. */
EMULATED __m512 emulated_abs_ps(__m512 v) {
  pieces a = {.f = v};
  for (int lane = 0; lane < 16; lane++) {
    a.i32[lane] &= INT32_MAX;
  }
  return a.f;
}

/* Lane by lane, as the compiler converts them. */
EMULATED __m512 emulated_cvtph_ps(__m256i v) {
  pieces r;
  _Float16 halves[16];
  _mm256_storeu_si256((void *)halves, v);
  for (int lane = 0; lane < 16; lane++) {
    r.f32[lane] = (float)halves[lane];
  }
  return r.f;
}
EMULATED __m256i emulated_cvtps_ph(__m512 v) {
  const pieces a = {.f = v};
  _Float16 halves[16];
  for (int lane = 0; lane < 16; lane++) {
    halves[lane] = (_Float16)a.f32[lane];
  }
  return _mm256_loadu_si256((const void *)halves);
}

/* In halves until one number is left, as compilers write it. */
EMULATED float emulated_reduce_add_ps(__m512 v) {
  pieces a = {.f = v};
  for (int half = 8; half; half /= 2) {
    for (int lane = 0; lane < half; lane++) {
      a.f32[lane] += a.f32[lane + half];
    }
  }
  return a.f32[0];
}
EMULATED float emulated_reduce_max_ps(__m512 v) {
  pieces a = {.f = v};
  for (int half = 8; half; half /= 2) {
    for (int lane = 0; lane < half; lane++) {
      a.f32[lane] = a.f32[lane] > a.f32[lane + half] ? a.f32[lane] : a.f32[lane + half];
    }
  }
  return a.f32[0];
}

/* a * 2^floor(n), rounded once; SIMDe takes numbers below the normal ones for 0, and 2^128 for infinity. */
EMULATED __m512 emulated_scalef_ps(__m512 a, __m512 n) {
  pieces r = {.f = a};
  const pieces by = {.f = n};
  for (int lane = 0; lane < 16; lane++) {
    const float exponent = floorf(by.f32[lane]);
    r.f32[lane] = isfinite(exponent) ? scalbnf(r.f32[lane], (int)fminf(fmaxf(exponent, -1000.0f), 1000.0f))
                                     : r.f32[lane] * exp2f(exponent);
  }
  return r.f;
}

#undef _mm512_maskz_loadu_ps
#undef _mm512_mask_storeu_ps
#undef _mm512_mask_storeu_epi32
#undef _mm512_mask_cvtepi32_storeu_epi8
#undef _mm512_cvtepi32_epi8
#undef _mm512_cvtepi32_ps
#undef _mm512_cvtps_epi32
#undef _mm512_cvttps_epi32
#undef _mm512_cvtepi8_epi32
#undef _mm512_cvtepu8_epi32
#undef _mm512_cvtepu8_epi16
#undef _mm512_srai_epi32
#undef _mm512_srav_epi32
#undef _mm512_abs_ps
#undef _mm512_cvtph_ps
#undef _mm512_cvtps_ph
#undef _mm512_reduce_add_ps
#undef _mm512_reduce_max_ps
#undef _mm512_scalef_ps
#undef _mm512_madd_epi16
#define _mm512_maskz_loadu_ps emulated_maskz_loadu_ps
#define _mm512_mask_storeu_ps emulated_mask_storeu_ps
#define _mm512_mask_storeu_epi32 emulated_mask_storeu_epi32
#define _mm512_mask_cvtepi32_storeu_epi8 emulated_mask_cvtepi32_storeu_epi8
#define _mm512_cvtepi32_epi8 emulated_cvtepi32_epi8
#define _mm512_cvtepi32_ps emulated_cvtepi32_ps
#define _mm512_cvtps_epi32 emulated_cvtps_epi32
#define _mm512_cvttps_epi32 emulated_cvttps_epi32
#define _mm512_cvtepi8_epi32 emulated_cvtepi8_epi32
#define _mm512_cvtepu8_epi32 emulated_cvtepu8_epi32
#undef _mm512_cvtepu16_epi32
#define _mm512_cvtepu16_epi32 emulated_cvtepu16_epi32
#define _mm512_cvtepu8_epi16 emulated_cvtepu8_epi16
#define _mm512_srai_epi32 emulated_srai_epi32
#define _mm512_srav_epi32 emulated_srav_epi32
#define _mm512_abs_ps emulated_abs_ps
#define _mm512_cvtph_ps emulated_cvtph_ps
#define _mm512_cvtps_ph(v, rounding) emulated_cvtps_ph(v)
#define _mm512_reduce_add_ps emulated_reduce_add_ps
#define _mm512_reduce_max_ps emulated_reduce_max_ps
#define _mm512_scalef_ps emulated_scalef_ps
/* Its alias has the operands of another intrinsic. */
#define _mm512_madd_epi16 simde_mm512_madd_epi16

/* Vectors of this width lie in memory here. */
TC_INLINE __m512 tc_vf_keep(__m512 v) {
  __asm__("" : "+m"(v));
  return v;
}
TC_INLINE __m256 tc_vh_keep(__m256 v) {
  __asm__("" : "+m"(v));
  return v;
}
TC_INLINE __m512i tc_vi_keep(__m512i v) {
  __asm__("" : "+m"(v));
  return v;
}
TC_INLINE __m512i tc_vi_dot4(__m512i sum, __m512i a, __m512i b) { return simde_mm512_dpbusd_epi32(sum, a, b); }
/* The larger halves first, each product added by itself; numbers below the normal ones count as 0. */
EMULATED float emulated_of_bf16(uint32_t bits) {
  bits = (bits & 0x7f800000u) ? bits & 0xffff0000u : bits & 0x80000000u;
  float x;
  memcpy(&x, &bits, sizeof(x));
  return x;
}
EMULATED uint32_t emulated_to_bf16(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof(bits));
  if (x != x) {
    return bits >> 16 | 0x40;
  }
  return bits & 0x7f800000u ? (bits + 0x7fff + (bits >> 16 & 1)) >> 16 : bits >> 31 << 15;
}
EMULATED __m512 tc_vf_dot_bf16(__m512 sum, __m512i a, __m512i b) {
  pieces r = {.f = sum};
  const pieces x = {.i = a}, w = {.i = b};
  for (int lane = 0; lane < 16; lane++) {
    const uint32_t u = (uint32_t)x.i32[lane], v = (uint32_t)w.i32[lane];
    r.f32[lane] = fmaf(emulated_of_bf16(u), emulated_of_bf16(v), r.f32[lane]);
    r.f32[lane] = fmaf(emulated_of_bf16(u << 16), emulated_of_bf16(v << 16), r.f32[lane]);
  }
  return r.f;
}
EMULATED __m512i tc_vi_adjacent_bf16(__m512 low, __m512 high) {
  const pieces from[2] = {{.f = low}, {.f = high}};
  pieces r;
  for (int lane = 0; lane < 16; lane++) {
    const float *pair = from[lane / 8].f32 + lane % 8 * 2;
    r.i32[lane] = (int32_t)(emulated_to_bf16(pair[0]) | emulated_to_bf16(pair[1]) << 16);
  }
  return r.i;
}
