/* The kernels in plain C: for any machine, and the yardstick of the others. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "window.h"
#include "isa.h"
#include "nd.h"
#include "simd_scalar.h"

#define TC_ISA_SUFFIX scalar
#include "isa_table.h"
