/* gather_elements: one element per index, in a walk over the data in which an index takes the place of one coordinate.
 * State: the collapsed walk. Units are pieces of rows. */
#ifndef TINYCOMP_KERNELS_GATHER_GATHER_ELEMENTS_H
#define TINYCOMP_KERNELS_GATHER_GATHER_ELEMENTS_H

#include "vocabulary.h"

#include "index.h"

enum { GATHER_ELEMENTS_Y, GATHER_ELEMENTS_DATA, GATHER_ELEMENTS_INDICES };

enum { GATHER_ELEMENTS_PIECE = 4096 };

static tc_rows gather_elements_rows(const tc_gather_elements_params *p) {
  tc_nd nd = tc_nd_make(TC_EIGHT(p, size));
  tc_nd_add_contiguous(&nd);
  tc_nd_add(&nd, TC_EIGHT(p, data_stride));
  tc_nd_collapse(&nd);
  return tc_rows_make(&nd, GATHER_ELEMENTS_PIECE);
}

static void TC_NAME(tc_gather_elements_prepare)(tc_prepare *prepare) {
  const tc_gather_elements_params *p = prepare->params;
  tc_check_indexed(prepare, p->element_size, p->index_size);
  const int64_t count = tc_product(prepare, TC_EIGHT(p, size), TC_ND_DIMS);
  tc_touch(prepare, GATHER_ELEMENTS_Y, count, (int)p->element_size);
  tc_touch(prepare, GATHER_ELEMENTS_INDICES, count, (int)p->index_size);
  tc_touch_indexed(prepare, GATHER_ELEMENTS_DATA, TC_EIGHT(p, size), TC_EIGHT(p, data_stride), p->axis, p->axis_stride,
                   (int)p->element_size);
  if (tc_refused(prepare)) {
    return;
  }
  prepare->units = gather_elements_rows(p).units;
  prepare->cost = 8.0 * (double)count;
  tc_state_is_rows(prepare);
}

static void TC_NAME(tc_gather_elements_pack)(const tc_prepare *prepare, void *state) {
  *(tc_rows *)state = gather_elements_rows(prepare->params);
}

/* One piece; whether all its indices are in range. */
#define GATHER_ELEMENTS_ROW(type)                                                                                  \
  static bool gather_elements_##type(const tc_gather_elements_params *p, void *to, const void *from, int64_t step, \
                                     const void *indices, int64_t first, int64_t count) {                          \
    type *y = to;                                                                                                  \
    const type *data = from;                                                                                       \
    for (int64_t i = 0; i < count; i++) {                                                                          \
      const int64_t index = tc_index(indices, p->index_size, first + i, p->axis);                                  \
      if (index < 0) {                                                                                             \
        return false;                                                                                              \
      }                                                                                                            \
      y[i] = data[i * step + index * p->axis_stride];                                                              \
    }                                                                                                              \
    return true;                                                                                                   \
  }
GATHER_ELEMENTS_ROW(uint8_t)
GATHER_ELEMENTS_ROW(uint16_t)
GATHER_ELEMENTS_ROW(uint32_t)
GATHER_ELEMENTS_ROW(uint64_t)
#undef GATHER_ELEMENTS_ROW

static void TC_NAME(tc_gather_elements)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_gather_elements_params *p = call->params;
  const int64_t size = p->element_size;
  bool (*row)(const tc_gather_elements_params *, void *, const void *, int64_t, const void *, int64_t, int64_t) =
      size == 1   ? gather_elements_uint8_t
      : size == 2 ? gather_elements_uint16_t
      : size == 4 ? gather_elements_uint32_t
                  : gather_elements_uint64_t;
  tc_rows_walk walk = tc_rows_seek(call->state, begin);
  for (int64_t unit = begin; unit < end; unit++) {
    const int64_t first = walk.at[GATHER_ELEMENTS_Y];
    if (!row(p, (char *)call->operands[GATHER_ELEMENTS_Y] + first * size,
             (const char *)call->operands[GATHER_ELEMENTS_DATA] + walk.at[GATHER_ELEMENTS_DATA] * size,
             walk.step[GATHER_ELEMENTS_DATA], call->operands[GATHER_ELEMENTS_INDICES], first, walk.count)) {
      tc_fail(call, "an index is out of range");
      return;
    }
    tc_rows_next(&walk);
  }
}

#endif
