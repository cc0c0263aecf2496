/* What an index means, for all kernels that gather or scatter. */
#ifndef TINYCOMP_KERNELS_GATHER_INDEX_H
#define TINYCOMP_KERNELS_GATHER_INDEX_H

#include "vocabulary.h"

/* The position that an index means, or -1 if it is out of range. */
TC_INLINE int64_t tc_index(const void *indices, int64_t size, int64_t i, int64_t axis) {
  const int64_t index = size == 4 ? ((const int32_t *)indices)[i] : ((const int64_t *)indices)[i];
  const int64_t position = index < 0 ? index + axis : index;
  return position < 0 || position >= axis ? -1 : position;
}

/* Likewise for a tuple of `depth` indices into the innermost of eight dimensions: the row-major position. */
TC_INLINE int64_t tc_index_tuple(const void *indices, int64_t size, int64_t tuple, int64_t depth,
                                 const int64_t sizes[TC_ND_DIMS]) {
  int64_t position = 0;
  for (int64_t i = 0; i < depth; i++) {
    const int64_t axis = sizes[TC_ND_DIMS - depth + i];
    const int64_t index = tc_index(indices, size, tuple * depth + i, axis);
    if (index < 0) {
      return -1;
    }
    position = position * axis + index;
  }
  return position;
}

/* Refuses indices and elements of sizes that there are none of. */
static void tc_check_indexed(tc_prepare *prepare, int64_t element_size, int64_t index_size) {
  TC_REQUIRE(prepare, index_size == 4 || index_size == 8, "indices of %lld bytes are not supported",
             (long long)index_size);
  TC_REQUIRE(prepare, element_size == 1 || element_size == 2 || element_size == 4 || element_size == 8,
             "elements of %lld bytes cannot be indexed", (long long)element_size);
}

/* States what is touched of an operand that is walked with strides and, along one axis, by indices. */
static void tc_touch_indexed(tc_prepare *prepare, int operand, const int64_t sizes[TC_ND_DIMS],
                             const int64_t strides[TC_ND_DIMS], int64_t axis, int64_t axis_stride, int element_size) {
  tc_nd_touch(prepare, operand, sizes, strides, element_size);
  TC_PRODUCT(prepare, axis, axis_stride);
  if (!tc_refused(prepare) && prepare->extents[operand] > 0) {
    prepare->extents[operand] += axis > 0 ? TC_PRODUCT(prepare, axis - 1, axis_stride, element_size) : 0;
  }
  const double there = tc_distinct(sizes, strides, TC_ND_DIMS) * (double)axis;
  tc_writes_some(prepare, operand); /* nor is all of it read */
  tc_move(prepare, operand, fmin((double)tc_product(prepare, sizes, TC_ND_DIMS), there), element_size);
}

#endif
