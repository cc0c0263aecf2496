/* What every kernel body is written against: the SIMD vocabulary, and names of its own in each instruction set.
 *
 * An isa_*.c has chosen the vocabulary before it includes a body. A body that is compiled alone gets that of the
 * instruction set that the compiler has been asked for. */
#ifndef TINYCOMP_VOCABULARY_H
#define TINYCOMP_VOCABULARY_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "isa.h"
#include "nd.h"
#include "window.h"

#if defined(TC_ISA_SUFFIX)
#elif defined(__AVX512F__)
#define TC_ISA_SUFFIX avx512
#include <immintrin.h>

#include "simd_avx512_asm.h"
#include "simd_avx512.h"
#elif defined(__AVX2__)
#define TC_ISA_SUFFIX avx2
#include <immintrin.h>

#include "simd_avx2.h"
#elif defined(__aarch64__)
#define TC_ISA_SUFFIX neon
#include <arm_neon.h>

#include "simd_neon.h"
#elif defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 2)
#define TC_ISA_SUFFIX helium
#include <arm_mve.h>

#include "simd_helium.h"
#else
#define TC_ISA_SUFFIX scalar
#include "simd_scalar.h"
#endif

#define TC_JOIN_(name, isa) name##__##isa
#define TC_JOIN(name, isa) TC_JOIN_(name, isa)
/* The name of a kernel's entry point in this instruction set. */
#define TC_NAME(name) TC_JOIN(name, TC_ISA_SUFFIX)

#endif
