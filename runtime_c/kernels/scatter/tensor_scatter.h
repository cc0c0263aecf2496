/* tensor_scatter: writes new steps into a cache, in every batch entry from a place of its own on. A unit is one batch
 * entry and one of the dimensions before the axis, as its steps may wrap around onto each other. */
#ifndef TINYCOMP_KERNELS_SCATTER_TENSOR_SCATTER_H
#define TINYCOMP_KERNELS_SCATTER_TENSOR_SCATTER_H

#include "vocabulary.h"

#include "../gather/index.h"

enum { TENSOR_SCATTER_Y, TENSOR_SCATTER_CACHE, TENSOR_SCATTER_UPDATES, TENSOR_SCATTER_STARTS };

static void TC_NAME(tc_tensor_scatter_prepare)(tc_prepare *prepare) {
  const tc_tensor_scatter_params *p = prepare->params;
  tc_check_indexed(prepare, p->element_size, 8);
  TC_REQUIRE(prepare, p->circular == 0 || p->circular == 1, "circular must be 0 or 1");
  const int64_t room = TC_PRODUCT(prepare, p->batch, p->outer, p->axis, p->inner);
  tc_touch(prepare, TENSOR_SCATTER_Y, room, (int)p->element_size);
  tc_touch(prepare, TENSOR_SCATTER_CACHE, room, (int)p->element_size);
  const int64_t count = TC_PRODUCT(prepare, p->batch, p->outer, p->count, p->inner);
  tc_touch(prepare, TENSOR_SCATTER_UPDATES, count, (int)p->element_size);
  tc_touch(prepare, TENSOR_SCATTER_STARTS, p->batch, 8);
  TC_PRODUCT(prepare, p->inner, p->element_size); /* also where another size is 0 */
  TC_PRODUCT(prepare, p->axis, p->count);
  prepare->units = TC_PRODUCT(prepare, p->batch, p->outer);
  prepare->cost = (double)tc_max(room, count) * (double)p->element_size;
}

/* Where the first step goes, or -1 if the steps pass the end. */
static int64_t tensor_scatter_start(const tc_tensor_scatter_params *p, const int64_t *starts, int64_t batch) {
  const int64_t start = starts ? starts[batch] : 0;
  if (p->circular && p->axis > 0) {
    return (start % p->axis + p->axis) % p->axis;
  }
  return start >= 0 && start <= p->axis - p->count ? start : -1;
}

static void TC_NAME(tc_tensor_scatter)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_tensor_scatter_params *p = call->params;
  const int64_t bytes = p->inner * p->element_size;
  for (int64_t unit = begin; unit < end; unit++) {
    const int64_t start = tensor_scatter_start(p, call->operands[TENSOR_SCATTER_STARTS], unit / p->outer);
    if (start < 0 && p->count > 0) {
      tc_fail(call, "the write passes the end of the cache");
      return;
    }
    char *y = (char *)call->operands[TENSOR_SCATTER_Y] + unit * p->axis * bytes;
    const char *cache = (const char *)call->operands[TENSOR_SCATTER_CACHE] + unit * p->axis * bytes;
    if (y != cache) {
      memcpy(y, cache, (size_t)(p->axis * bytes));
    }
    const char *updates = (const char *)call->operands[TENSOR_SCATTER_UPDATES] + unit * p->count * bytes;
    for (int64_t done = 0; done < p->count;) {
      const int64_t at = (start + done) % p->axis, steps = tc_min(p->count - done, p->axis - at);
      memcpy(y + at * bytes, updates + done * bytes, (size_t)(steps * bytes));
      done += steps;
    }
  }
}

#endif
