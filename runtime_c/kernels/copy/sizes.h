/* sizes: numbers that follow from the sizes of a run, for kernels that read them as data. One unit. */
#ifndef TINYCOMP_KERNELS_COPY_SIZES_H
#define TINYCOMP_KERNELS_COPY_SIZES_H

#include "vocabulary.h"

static void TC_NAME(tc_sizes_prepare)(tc_prepare *prepare) {
  const tc_sizes_params *p = prepare->params;
  TC_REQUIRE(prepare, p->type == TC_TYPE_I64 || p->type == TC_TYPE_I32, "sizes are int64 or int32");
  TC_REQUIRE(prepare, p->count >= 0 && p->count <= 8, "%lld sizes, not 0 to 8", (long long)p->count);
  tc_touch(prepare, 0, p->count, p->type == TC_TYPE_I64 ? sizeof(int64_t) : sizeof(int32_t));
  prepare->units = p->count > 0;
}

static void TC_NAME(tc_sizes)(const tc_call *call, int64_t begin, int64_t end) {
  (void)begin;
  (void)end;
  const tc_sizes_params *p = call->params;
  const int64_t values[] = {p->value0, p->value1, p->value2, p->value3, p->value4, p->value5, p->value6, p->value7};
  for (int64_t i = 0; i < p->count; i++) {
    if (p->type == TC_TYPE_I64) {
      ((int64_t *)call->operands[0])[i] = values[i];
    } else {
      ((int32_t *)call->operands[0])[i] = (int32_t)values[i];
    }
  }
}

#endif
