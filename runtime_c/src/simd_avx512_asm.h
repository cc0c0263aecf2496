/* The words of the vocabulary for AVX-512 that are written in assembler. */
#ifndef TINYCOMP_SIMD_AVX512_ASM_H
#define TINYCOMP_SIMD_AVX512_ASM_H

#include "kernel.h"

/* Keeps a loaded vector in its register: the compiler may not load it again at each use. */
TC_INLINE __m512 tc_vf_keep(__m512 v) {
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

#endif
