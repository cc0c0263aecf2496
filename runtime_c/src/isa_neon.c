/* The kernels for 64-bit Arm, where NEON is always there. On other machines weights are packed for them. */
#ifdef __aarch64__
#include <arm_neon.h>
#endif
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "window.h"
#include "isa.h"
#include "nd.h"
#ifndef __aarch64__
#include "arm_vectors.h"
#define TC_PACKS_ONLY
#endif
#include "simd_neon.h"

#define TC_ISA_SUFFIX neon
#include "isa_table.h"
