/* one_hot: one of two values everywhere, the other where an index points. A unit is one slice of the outer dimension.
 */
#ifndef TINYCOMP_KERNELS_SELECT_ONE_HOT_H
#define TINYCOMP_KERNELS_SELECT_ONE_HOT_H

#include "vocabulary.h"

#include "../gather/index.h"

enum { ONE_HOT_Y, ONE_HOT_INDICES, ONE_HOT_VALUES };

static void TC_NAME(tc_one_hot_prepare)(tc_prepare *prepare) {
  const tc_one_hot_params *p = prepare->params;
  tc_check_indexed(prepare, p->element_size, p->index_size);
  const int64_t count = TC_PRODUCT(prepare, p->outer, p->depth, p->inner);
  tc_touch(prepare, ONE_HOT_Y, count, (int)p->element_size);
  tc_touch(prepare, ONE_HOT_INDICES, TC_PRODUCT(prepare, p->outer, p->inner), (int)p->index_size);
  tc_touch(prepare, ONE_HOT_VALUES, 2, (int)p->element_size);
  prepare->units = count ? p->outer : 0;
  prepare->cost = (double)count;
}

#define ONE_HOT_SLICE(type)                                                                               \
  static void one_hot_##type(const tc_one_hot_params *p, void *to, const void *pair, const void *indices, \
                             int64_t first) {                                                             \
    type *y = to;                                                                                         \
    const type off = ((const type *)pair)[0], on = ((const type *)pair)[1];                               \
    const int64_t count = p->depth * p->inner;                                                            \
    for (int64_t i = 0; i < count; i++) {                                                                 \
      y[i] = off;                                                                                         \
    }                                                                                                     \
    for (int64_t i = 0; i < p->inner; i++) {                                                              \
      const int64_t index = tc_index(indices, p->index_size, first + i, p->depth);                        \
      if (index >= 0) { /* others point nowhere, as ONNX says */                                          \
        y[index * p->inner + i] = on;                                                                     \
      }                                                                                                   \
    }                                                                                                     \
  }
ONE_HOT_SLICE(uint8_t)
ONE_HOT_SLICE(uint16_t)
ONE_HOT_SLICE(uint32_t)
ONE_HOT_SLICE(uint64_t)
#undef ONE_HOT_SLICE

static void TC_NAME(tc_one_hot)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_one_hot_params *p = call->params;
  const int64_t size = p->element_size;
  void (*slice)(const tc_one_hot_params *, void *, const void *, const void *, int64_t) = size == 1   ? one_hot_uint8_t
                                                                                          : size == 2 ? one_hot_uint16_t
                                                                                          : size == 4
                                                                                              ? one_hot_uint32_t
                                                                                              : one_hot_uint64_t;
  for (int64_t unit = begin; unit < end; unit++) {
    slice(p, (char *)call->operands[ONE_HOT_Y] + unit * p->depth * p->inner * size, call->operands[ONE_HOT_VALUES],
          call->operands[ONE_HOT_INDICES], unit * p->inner);
  }
}

#endif
