/* The kernels for AVX2 with FMA. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "window.h"
#include "isa.h"
#include "nd.h"

/* Before immintrin.h, so that its inline functions belong to the same target. */
#pragma GCC target("avx2,fma,f16c")
#include <immintrin.h>

#include "simd_avx2.h"

#define TC_ISA_SUFFIX avx2
#include "isa_table.h"
