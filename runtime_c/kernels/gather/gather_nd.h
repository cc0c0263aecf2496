/* gather_nd: slices addressed by tuples of indices. A unit is one slice. */
#ifndef TINYCOMP_KERNELS_GATHER_GATHER_ND_H
#define TINYCOMP_KERNELS_GATHER_GATHER_ND_H

#include "vocabulary.h"

#include "index.h"

enum { GATHER_ND_Y, GATHER_ND_DATA, GATHER_ND_INDICES };

/* Elements that the indexed dimensions have; refuses a wrong number of them. */
static int64_t tc_indexed_elements(tc_prepare *prepare, int64_t depth, const int64_t sizes[TC_ND_DIMS]) {
  const int64_t all = tc_product(prepare, sizes, TC_ND_DIMS);
  if (depth < 1 || depth > TC_ND_DIMS) {
    tc_refuse(prepare, "tuples of %lld indices are not supported", (long long)depth);
    return 0;
  }
  for (int64_t i = 0; i < TC_ND_DIMS - depth; i++) {
    if (sizes[i] != 1) {
      tc_refuse(prepare, "a size that no index addresses is not 1");
    }
  }
  return all;
}

static void TC_NAME(tc_gather_nd_prepare)(tc_prepare *prepare) {
  const tc_gather_nd_params *p = prepare->params;
  tc_check_indexed(prepare, p->element_size, p->index_size);
  const int64_t elements = tc_indexed_elements(prepare, p->depth, TC_EIGHT(p, size));
  tc_touch(prepare, GATHER_ND_Y, TC_PRODUCT(prepare, p->batch, p->count, p->inner), (int)p->element_size);
  tc_touch(prepare, GATHER_ND_DATA, TC_PRODUCT(prepare, p->batch, elements, p->inner), (int)p->element_size);
  tc_touch(prepare, GATHER_ND_INDICES, TC_PRODUCT(prepare, p->batch, p->count, p->depth), (int)p->index_size);
  TC_PRODUCT(prepare, p->inner, p->element_size); /* also where another size is 0 */
  tc_move(prepare, GATHER_ND_DATA, TC_COUNT(p->batch, tc_min(p->count, elements), p->inner), p->element_size);
  prepare->units = TC_PRODUCT(prepare, p->batch, p->count);
  prepare->cost = (double)prepare->units * (8.0 * (double)p->depth + (double)p->inner * (double)p->element_size);
}

/* Inlined with literal sizes for slices of one element. */
TC_INLINE void gather_nd_slices(const tc_call *call, const int64_t bytes, int64_t begin, int64_t end) {
  const tc_gather_nd_params *p = call->params;
  const int64_t *sizes = TC_EIGHT(p, size);
  int64_t elements = 1;
  for (int i = 0; i < TC_ND_DIMS; i++) {
    elements *= sizes[i];
  }
  char *y = call->operands[GATHER_ND_Y];
  const char *data = call->operands[GATHER_ND_DATA];
  for (int64_t unit = begin; unit < end; unit++) {
    const int64_t position = tc_index_tuple(call->operands[GATHER_ND_INDICES], p->index_size, unit, p->depth, sizes);
    if (position < 0) {
      tc_fail(call, "an index is out of range");
      return;
    }
    memcpy(y + unit * bytes, data + (unit / p->count * elements + position) * bytes, (size_t)bytes);
  }
}

static void TC_NAME(tc_gather_nd)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_gather_nd_params *p = call->params;
  const int64_t bytes = p->inner * p->element_size;
  if (bytes == 4) {
    gather_nd_slices(call, 4, begin, end);
  } else if (bytes == 8) {
    gather_nd_slices(call, 8, begin, end);
  } else {
    gather_nd_slices(call, bytes, begin, end);
  }
}

#endif
