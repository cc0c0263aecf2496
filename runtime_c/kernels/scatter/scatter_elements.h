/* scatter_elements: writes one element per index, in a walk in which the index takes the place of one coordinate of the
 * result. The last dimension of the walk is that coordinate, so that rows, which are the units, never meet. State: the
 * collapsed walk. */
#ifndef TINYCOMP_KERNELS_SCATTER_SCATTER_ELEMENTS_H
#define TINYCOMP_KERNELS_SCATTER_SCATTER_ELEMENTS_H

#include "vocabulary.h"

#include "../gather/index.h"
#include "steps.h"

enum { SCATTER_ELEMENTS_Y, SCATTER_ELEMENTS_INDICES, SCATTER_ELEMENTS_UPDATES };

static tc_rows scatter_elements_rows(const tc_scatter_elements_params *p) {
  tc_nd nd = tc_nd_make(TC_EIGHT(p, size));
  tc_nd_add(&nd, TC_EIGHT(p, y_stride));
  tc_nd_add(&nd, TC_EIGHT(p, index_stride));
  tc_nd_add(&nd, TC_EIGHT(p, update_stride));
  tc_nd_collapse(&nd);
  return tc_rows_make(&nd, tc_max(nd.sizes[nd.rank - 1], 1));
}

static void scatter_elements_check(tc_prepare *prepare) {
  const tc_scatter_elements_params *p = prepare->params;
  tc_check_indexed(prepare, p->element_size, p->index_size);
  scatter_check(prepare, p->element_size, p->type, p->reduction);
  TC_REQUIRE(prepare, p->y_stride7 == 0, "the result has a stride along the indexed dimension");
  int64_t sizes[TC_ND_DIMS];
  memcpy(sizes, TC_EIGHT(p, size), sizeof(sizes));
  sizes[TC_ND_DIMS - 1] = 1;
  tc_nd_require_forward(prepare, sizes, TC_EIGHT(p, y_stride));
  tc_touch_indexed(prepare, SCATTER_ELEMENTS_Y, TC_EIGHT(p, size), TC_EIGHT(p, y_stride), p->axis, p->axis_stride,
                   (int)p->element_size);
  tc_nd_touch(prepare, SCATTER_ELEMENTS_INDICES, TC_EIGHT(p, size), TC_EIGHT(p, index_stride), (int)p->index_size);
  tc_nd_touch(prepare, SCATTER_ELEMENTS_UPDATES, TC_EIGHT(p, size), TC_EIGHT(p, update_stride), (int)p->element_size);
}

static void TC_NAME(tc_scatter_elements_prepare)(tc_prepare *prepare) {
  const tc_scatter_elements_params *p = prepare->params;
  scatter_elements_check(prepare);
  if (tc_refused(prepare)) {
    return;
  }
  const double count = (double)tc_product(prepare, TC_EIGHT(p, size), TC_ND_DIMS);
  prepare->units = scatter_elements_rows(p).units;
  prepare->cost = 10.0 * count;
  tc_operate(prepare, p->type, p->reduction == TC_SCATTER_REPLACE ? 0 : count);
  tc_state_is_rows(prepare);
}

static void TC_NAME(tc_scatter_elements_pack)(const tc_prepare *prepare, void *state) {
  *(tc_rows *)state = scatter_elements_rows(prepare->params);
}

static void TC_NAME(tc_scatter_elements)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_scatter_elements_params *p = call->params;
  const int64_t size = p->element_size;
  const scatter_steps *steps = scatter_find(size, p->type, p->reduction);
  tc_rows_walk walk = tc_rows_seek(call->state, begin);
  const tc_indices indices = {.indices = call->operands[SCATTER_ELEMENTS_INDICES],
                              .size = p->index_size,
                              .step = walk.step[SCATTER_ELEMENTS_INDICES],
                              .axis = p->axis,
                              .stride = p->axis_stride,
                              .row = walk.step[SCATTER_ELEMENTS_Y]};
  const int64_t step = walk.step[SCATTER_ELEMENTS_UPDATES];
  for (int64_t unit = begin; unit < end; unit++) {
    char *y = (char *)call->operands[SCATTER_ELEMENTS_Y] + walk.at[SCATTER_ELEMENTS_Y] * size;
    for (int64_t i = 0; i < walk.count; i += TC_POSITIONS) {
      int64_t positions[TC_POSITIONS];
      const int64_t count = tc_min(walk.count - i, TC_POSITIONS);
      if (!tc_positions(&indices, walk.at[SCATTER_ELEMENTS_INDICES] + i * indices.step, count, positions)) {
        tc_fail(call, "an index is out of range");
        return;
      }
      const int64_t from = walk.at[SCATTER_ELEMENTS_UPDATES] + i * step;
      steps->apart(y + i * indices.row * size, positions,
                   (const char *)call->operands[SCATTER_ELEMENTS_UPDATES] + from * size, step, count);
    }
    tc_rows_next(&walk);
  }
}

#endif
