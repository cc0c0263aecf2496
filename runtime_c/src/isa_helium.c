/* The kernels for Helium. No machine with a Python has it: what runs here is the packing of weights. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "window.h"
#include "isa.h"
#include "nd.h"
#include "arm_vectors.h"
#include "simd_helium.h"

#ifndef TC_EMULATES_HELIUM
#define TC_PACKS_ONLY
#endif
#define TC_ISA_SUFFIX helium
#include "isa_table.h"
