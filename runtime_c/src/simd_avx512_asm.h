/* The words of the vocabulary for AVX-512 that are written in assembler. */
#ifndef TINYCOMP_SIMD_AVX512_ASM_H
#define TINYCOMP_SIMD_AVX512_ASM_H

#include "kernel.h"

/* Keeps a loaded vector in its register: the compiler may not load it again at each use. */
TC_INLINE __m512 tc_vf_keep(__m512 v) {
  __asm__("" : "+v"(v));
  return v;
}
TC_INLINE __m256 tc_vh_keep(__m256 v) {
  __asm__("" : "+v"(v));
  return v;
}

/* Keeps the compiler from taking two results of this operand for one. */
TC_INLINE __m512i tc_vi_keep(__m512i v) {
  __asm__("" : "+v"(v));
  return v;
}

/* Written out because the compiler moves the sums of the intrinsic in and out of their registers. */
TC_INLINE __m512i tc_vi_dot4(__m512i sum, __m512i a, __m512i b) {
  __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
  return sum;
}

/* Written out likewise, and so that the compiler uses these instructions nowhere else. */
TC_INLINE __m512 tc_vf_dot_bf16(__m512 sum, __m512i a, __m512i b) {
  __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
  return sum;
}
TC_INLINE __m512i tc_vi_adjacent_bf16(__m512 low, __m512 high) {
  __m512i pairs;
  __asm__("vcvtne2ps2bf16 %1, %2, %0" : "=v"(pairs) : "v"(low), "v"(high));
  return pairs;
}

#endif
