/* The kernels for 64-bit Arm, where NEON is always there. */
#include <arm_neon.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "window.h"
#include "isa.h"
#include "nd.h"
#include "simd_neon.h"

#define TC_ISA_SUFFIX neon
#include "isa_table.h"
