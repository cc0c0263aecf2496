/* range: an arithmetic progression. Units are pieces of it. */
#ifndef TINYCOMP_KERNELS_COPY_RANGE_H
#define TINYCOMP_KERNELS_COPY_RANGE_H

#include "vocabulary.h"

enum { RANGE_PIECE = 4096 };

static void TC_NAME(tc_range_prepare)(tc_prepare *prepare) {
  const tc_range_params *p = prepare->params;
  const bool wide = p->type == TC_TYPE_F64 || p->type == TC_TYPE_I64;
  TC_REQUIRE(prepare, wide || p->type == TC_TYPE_F32 || p->type == TC_TYPE_I32,
             "a range of numbers that are neither float32, float64, int32 nor int64");
  const int size = wide ? 8 : 4;
  tc_touch(prepare, 0, p->count, size);
  tc_touch(prepare, 1, 1, size);
  tc_touch(prepare, 2, 1, size);
  if (tc_refused(prepare)) {
    return;
  }
  prepare->units = tc_ceil_div(p->count, RANGE_PIECE);
  prepare->cost = (double)p->count;
  tc_operate(prepare, p->type, 2.0 * (double)p->count);
}

#define RANGE_OF(type, wide)                                                                       \
  do {                                                                                             \
    const type start = *(const type *)call->operands[1], delta = *(const type *)call->operands[2]; \
    type *y = call->operands[0];                                                                   \
    for (int64_t i = first; i < last; i++) {                                                       \
      y[i] = (type)((wide)start + (wide)i * (wide)delta);                                          \
    }                                                                                              \
  } while (0)

static void TC_NAME(tc_range)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_range_params *p = call->params;
  const int64_t first = begin * RANGE_PIECE, last = tc_min(end * RANGE_PIECE, p->count);
  switch (p->type) {
    case TC_TYPE_F32:
      RANGE_OF(float, double);
      break;
    case TC_TYPE_F64:
      RANGE_OF(double, double);
      break;
    case TC_TYPE_I32:
      RANGE_OF(int32_t, uint64_t); /* wraps around as numpy does */
      break;
    default:
      RANGE_OF(int64_t, uint64_t);
  }
}
#undef RANGE_OF

#endif
