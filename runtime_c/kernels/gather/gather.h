/* gather: slices of data[outer, axis, inner bytes] by indices that count from the end if they are negative. A unit is
 * one slice; a piece of many small ones would not be faster, as a thread takes its units in one go. */
#ifndef TINYCOMP_KERNELS_GATHER_GATHER_H
#define TINYCOMP_KERNELS_GATHER_GATHER_H

#include "vocabulary.h"

#include "index.h"

enum { GATHER_Y, GATHER_DATA, GATHER_INDICES };

static void TC_NAME(tc_gather_prepare)(tc_prepare *prepare) {
  const tc_gather_params *p = prepare->params;
  tc_check_indexed(prepare, p->element_size, p->index_size);
  tc_touch(prepare, GATHER_Y, TC_PRODUCT(prepare, p->outer, p->count, p->inner), (int)p->element_size);
  tc_touch(prepare, GATHER_DATA, TC_PRODUCT(prepare, p->outer, p->axis, p->inner), (int)p->element_size);
  tc_touch(prepare, GATHER_INDICES, p->count, (int)p->index_size);
  tc_move(prepare, GATHER_DATA, TC_COUNT(p->outer, tc_min(p->count, p->axis), p->inner), p->element_size);
  prepare->units = TC_PRODUCT(prepare, p->outer, p->count);
  prepare->cost = (double)prepare->units * (8.0 + (double)p->inner * (double)p->element_size);
}

/* Inlined with literal sizes for slices of one element. */
TC_INLINE void gather_slices(const tc_call *call, const int64_t bytes, int64_t begin, int64_t end) {
  const tc_gather_params *p = call->params;
  char *y = call->operands[GATHER_Y];
  const char *data = call->operands[GATHER_DATA];
  if (begin == end) {
    return;
  }
  int64_t place = begin % p->count; /* among the indices */
  data += begin / p->count * p->axis * bytes;
  for (int64_t unit = begin; unit < end; unit++) {
    const int64_t index = tc_index(call->operands[GATHER_INDICES], p->index_size, place, p->axis);
    if (index < 0) {
      tc_fail(call, "an index is out of range");
      return;
    }
    memcpy(y + unit * bytes, data + index * bytes, (size_t)bytes);
    if (++place == p->count) {
      place = 0;
      data += p->axis * bytes;
    }
  }
}

static void TC_NAME(tc_gather)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_gather_params *p = call->params;
  const int64_t bytes = p->inner * p->element_size;
  if (bytes == 4) {
    gather_slices(call, 4, begin, end);
  } else if (bytes == 8) {
    gather_slices(call, 8, begin, end);
  } else {
    gather_slices(call, bytes, begin, end);
  }
}

#endif
