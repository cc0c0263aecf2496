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

enum { TC_POSITIONS = 64 };

/* Indices, `step` apart, along an axis of elements that are `stride` apart, of rows that are `row` apart. */
typedef struct tc_indices {
  const void *indices;
  int64_t size, step, axis, stride, row;
} tc_indices;

/* Finds where up to TC_POSITIONS elements lie, one in each row; whether all indices are in range. */
TC_INLINE bool tc_positions(const tc_indices *x, int64_t first, int64_t count, int64_t *positions) {
  const int64_t step = x->step, axis = x->axis, stride = x->stride, row = x->row;
  int64_t wrong = 0;
#define TC_POSITIONS_OF(type)                                                  \
  const type *from = (const type *)x->indices + first;                         \
  for (int64_t i = 0; i < count; i++) {                                        \
    const int64_t index = from[i * step];                                      \
    const int64_t position = index < 0 ? index + axis : index;                 \
    wrong |= position | (axis - 1 - position); /* below 0 if either is */      \
    positions[i] = (int64_t)((uint64_t)position * (uint64_t)stride) + i * row; \
  }
  if (x->size == 4) {
    TC_POSITIONS_OF(int32_t)
  } else {
    TC_POSITIONS_OF(int64_t)
  }
#undef TC_POSITIONS_OF
  return wrong >= 0;
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
