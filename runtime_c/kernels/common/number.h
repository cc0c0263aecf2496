/* The types that kernels for numbers of every kind compute with, and which of them an enum tc_type names.
 *
 * TC_NUMBER(kind, type, wide): sums and products are formed in `wide`, in which integers wrap around. */
#ifndef TINYCOMP_KERNELS_COMMON_NUMBER_H
#define TINYCOMP_KERNELS_COMMON_NUMBER_H

#include "vocabulary.h"

#define TC_NUMBER_LIST               \
  TC_NUMBER(F32, float, float)       \
  TC_NUMBER(F64, double, double)     \
  TC_NUMBER(I8, int8_t, uint64_t)    \
  TC_NUMBER(U8, uint8_t, uint64_t)   \
  TC_NUMBER(I16, int16_t, uint64_t)  \
  TC_NUMBER(U16, uint16_t, uint64_t) \
  TC_NUMBER(I32, int32_t, uint64_t)  \
  TC_NUMBER(U32, uint32_t, uint64_t) \
  TC_NUMBER(I64, int64_t, uint64_t)  \
  TC_NUMBER(U64, uint64_t, uint64_t)

/* Bytes of a number of a type, or 0 if kernels do not compute with it. */
static int tc_number_size(int64_t type) {
  switch (type) {
#define TC_NUMBER(kind, c_type, wide) \
  case TC_TYPE_##kind:                \
    return sizeof(c_type);
    TC_NUMBER_LIST
#undef TC_NUMBER
    default:
      return 0;
  }
}

#endif
