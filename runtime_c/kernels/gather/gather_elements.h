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

/* Elements where positions say. */
#define GATHER_APART(type)                                                                               \
  static void gather_apart_##type(void *to, const void *from, const int64_t *positions, int64_t count) { \
    type *y = to;                                                                                        \
    const type *data = from;                                                                             \
    for (int64_t i = 0; i < count; i++) {                                                                \
      y[i] = data[positions[i]];                                                                         \
    }                                                                                                    \
  }
GATHER_APART(uint8_t)
GATHER_APART(uint16_t)
GATHER_APART(uint32_t)
GATHER_APART(uint64_t)
#undef GATHER_APART

static void TC_NAME(tc_gather_elements)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_gather_elements_params *p = call->params;
  const int64_t size = p->element_size;
  void (*apart)(void *, const void *, const int64_t *, int64_t) = size == 1   ? gather_apart_uint8_t
                                                                  : size == 2 ? gather_apart_uint16_t
                                                                  : size == 4 ? gather_apart_uint32_t
                                                                              : gather_apart_uint64_t;
  tc_rows_walk walk = tc_rows_seek(call->state, begin);
  const tc_indices indices = {.indices = call->operands[GATHER_ELEMENTS_INDICES],
                              .size = p->index_size,
                              .step = 1,
                              .axis = p->axis,
                              .stride = p->axis_stride,
                              .row = walk.step[GATHER_ELEMENTS_DATA]};
  for (int64_t unit = begin; unit < end; unit++) {
    const int64_t first = walk.at[GATHER_ELEMENTS_Y];
    for (int64_t i = 0; i < walk.count; i += TC_POSITIONS) {
      int64_t positions[TC_POSITIONS];
      const int64_t count = tc_min(walk.count - i, TC_POSITIONS);
      if (!tc_positions(&indices, first + i, count, positions)) {
        tc_fail(call, "an index is out of range");
        return;
      }
      const int64_t from = walk.at[GATHER_ELEMENTS_DATA] + i * indices.row;
      apart((char *)call->operands[GATHER_ELEMENTS_Y] + (first + i) * size,
            (const char *)call->operands[GATHER_ELEMENTS_DATA] + from * size, positions, count);
    }
    tc_rows_next(&walk);
  }
}

#endif
