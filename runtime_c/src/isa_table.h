/* The end of every isa_*.c: all kernel bodies, the table of their entry points, and the loop that finds the peak. */
#include "../kernels/kernels.def"
#include "peak.h"

tc_isa_shape TC_NAME(tc_shape)(void) {
  return (tc_isa_shape){.lanes = TC_LANES, .panel = TC_PANEL, .pairs = TC_LANES > 1 && tc_has_dot_bf16()};
}

#define TC_PACK_packs(name) TC_NAME(tc_##name##_pack)
#define TC_PACK_stateless(name) NULL
/* Where no machine of the kind runs the kernels, the compiler leaves them out. */
#ifdef TC_PACKS_ONLY
#define TC_RUN(name) (0 ? TC_NAME(tc_##name) : NULL)
#else
#define TC_RUN(name) TC_NAME(tc_##name)
#endif
#define TC_KERNEL(name, signature, packing) {TC_NAME(tc_##name##_prepare), TC_PACK_##packing(name), TC_RUN(name)},
const tc_kernel TC_NAME(tc_kernels)[TC_KERNEL_COUNT] = {
#include "../kernels/kernels.def"
};
