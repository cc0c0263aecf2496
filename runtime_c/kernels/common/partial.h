/* Loads and stores of what is left of a row: whole vectors as long as there are enough elements. */
#ifndef TINYCOMP_KERNELS_COMMON_PARTIAL_H
#define TINYCOMP_KERNELS_COMMON_PARTIAL_H

#include "vocabulary.h"

TC_INLINE tc_vf tc_load_up_to(const float *p, int64_t count) {
  return count >= TC_LANES ? tc_vf_load(p) : tc_vf_load_first(p, count);
}

TC_INLINE void tc_store_up_to(float *p, tc_vf v, int64_t count) {
  if (count >= TC_LANES) {
    tc_vf_store(p, v);
  } else {
    tc_vf_store_first(p, v, count);
  }
}

#endif
