/* scatter_nd: writes slices where tuples of indices say. A unit is one piece of all slices, so that slices that meet
 * are written in order, whatever the number of threads. */
#ifndef TINYCOMP_KERNELS_SCATTER_SCATTER_ND_H
#define TINYCOMP_KERNELS_SCATTER_SCATTER_ND_H

#include "vocabulary.h"

#include "../gather/index.h"
#include "../gather/gather_nd.h"
#include "steps.h"

enum { SCATTER_ND_Y, SCATTER_ND_INDICES, SCATTER_ND_UPDATES };

enum { SCATTER_ND_PIECE = 32 };

static void TC_NAME(tc_scatter_nd_prepare)(tc_prepare *prepare) {
  const tc_scatter_nd_params *p = prepare->params;
  tc_check_indexed(prepare, p->element_size, p->index_size);
  scatter_check(prepare, p->element_size, p->type, p->reduction);
  const int64_t elements = tc_indexed_elements(prepare, p->depth, TC_EIGHT(p, size));
  const int64_t count = TC_PRODUCT(prepare, p->count, p->inner);
  tc_touch(prepare, SCATTER_ND_Y, TC_PRODUCT(prepare, elements, p->inner), (int)p->element_size);
  tc_writes_some(prepare, SCATTER_ND_Y);
  tc_touch(prepare, SCATTER_ND_INDICES, TC_PRODUCT(prepare, p->count, p->depth), (int)p->index_size);
  tc_touch(prepare, SCATTER_ND_UPDATES, count, (int)p->element_size);
  if (tc_refused(prepare)) {
    return;
  }
  prepare->units = tc_ceil_div(p->inner, SCATTER_ND_PIECE);
  prepare->cost = 8.0 * (double)count;
  tc_move(prepare, SCATTER_ND_Y, TC_COUNT(tc_min(p->count, elements), p->inner), p->element_size);
  tc_operate(prepare, p->type, p->reduction == TC_SCATTER_REPLACE ? 0 : (double)count);
}

static void TC_NAME(tc_scatter_nd)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_scatter_nd_params *p = call->params;
  const int64_t size = p->element_size, *sizes = TC_EIGHT(p, size);
  const scatter_steps *steps = scatter_find(size, p->type, p->reduction);
  const int64_t first = begin * SCATTER_ND_PIECE, count = tc_min(p->inner, end * SCATTER_ND_PIECE) - first;
  for (int64_t tuple = 0, taken; tuple < p->count; tuple += taken) {
    int64_t positions[TC_POSITIONS];
    taken = p->inner == 1 ? tc_min(p->count - tuple, TC_POSITIONS) : 1;
    for (int64_t i = 0; i < taken; i++) {
      const int64_t at = tuple + i;
      positions[i] = tc_index_tuple(call->operands[SCATTER_ND_INDICES], p->index_size, at, p->depth, sizes);
      if (positions[i] < 0) {
        tc_fail(call, "an index is out of range");
        return;
      }
    }
    const char *updates = (const char *)call->operands[SCATTER_ND_UPDATES] + (tuple * p->inner + first) * size;
    if (p->inner == 1) {
      steps->apart(call->operands[SCATTER_ND_Y], positions, updates, 1, taken);
    } else {
      steps->adjacent((char *)call->operands[SCATTER_ND_Y] + (positions[0] * p->inner + first) * size, updates, count);
    }
  }
}

#endif
