/* The kernels for AVX-512 (F, BW, DQ, VL). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "window.h"
#include "isa.h"
#include "nd.h"

/* Before immintrin.h, so that its inline functions belong to the same target. */
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")
#include <immintrin.h>

#include "simd_avx512_asm.h"
#include "simd_avx512.h"

#define TC_ISA_SUFFIX avx512
#include "isa_table.h"
