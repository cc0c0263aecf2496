/* The kernels for AVX-512 as isa_avx512.c has them, with SIMDe's functions in the place of the instructions. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "window.h"
#include "isa.h"
#include "nd.h"

/* Before SIMDe, which uses what the target has. */
#pragma GCC target("avx2,fma")
#include "simde.h"

#include "simd_avx512.h"

#define TC_ISA_SUFFIX avx512
#include "isa_table.h"
