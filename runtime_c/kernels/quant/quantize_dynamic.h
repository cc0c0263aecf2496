/* quantize_dynamic: bytes with a scale and a zero point that cover the range of the numbers and zero. Units are pieces;
 * every range of them looks at all numbers first, which takes less time than to wait for another thread. */
#ifndef TINYCOMP_KERNELS_QUANT_QUANTIZE_DYNAMIC_H
#define TINYCOMP_KERNELS_QUANT_QUANTIZE_DYNAMIC_H

#include "vocabulary.h"

#include "../common/partial.h"
#include "quantize_f32.h"

enum { DYNAMIC_Y, DYNAMIC_SCALE, DYNAMIC_ZERO, DYNAMIC_X };

typedef struct quant_step {
  float scale;
  uint8_t zero;
} quant_step;

/* Zero times an infinity or NaN is NaN, and so is the scale. */
static __attribute__((noinline)) quant_step quant_step_of(const float *x, int64_t count) {
  enum { CHAINS = 4 };
  const tc_vf zero = tc_vf_set1(0.0f);
  tc_vf above[CHAINS] = {zero, zero, zero, zero}, below[CHAINS] = {zero, zero, zero, zero}, poison = zero;
  int64_t i = 0;
  for (; i + CHAINS * TC_LANES <= count; i += CHAINS * TC_LANES) {
#pragma GCC unroll 4
    for (int n = 0; n < CHAINS; n++) {
      const tc_vf v = tc_vf_load(x + i + n * TC_LANES);
      above[n] = tc_vf_max(v, above[n]);
      below[n] = tc_vf_max(tc_vf_sub(zero, v), below[n]);
      poison = tc_vf_fma(v, zero, poison);
    }
  }
  for (; i < count; i += TC_LANES) {
    const tc_vf v = tc_load_up_to(x + i, count - i);
    above[0] = tc_vf_max(v, above[0]);
    below[0] = tc_vf_max(tc_vf_sub(zero, v), below[0]);
    poison = tc_vf_fma(v, zero, poison);
  }
  for (int n = 1; n < CHAINS; n++) {
    above[0] = tc_vf_max(above[n], above[0]);
    below[0] = tc_vf_max(below[n], below[0]);
  }
  const float low = tc_vf_reduce_max(below[0]), span = tc_vf_reduce_max(above[0]) + low;
  const float scale = (span == 0.0f ? 1.0f : span / 255.0f) + tc_vf_reduce_add(poison);
  return (quant_step){scale, (uint8_t)quant_number(low, scale, 0, 0, UINT8_MAX)};
}

static void TC_NAME(tc_quantize_dynamic_prepare)(tc_prepare *prepare) {
  const tc_quantize_dynamic_params *p = prepare->params;
  tc_touch(prepare, DYNAMIC_Y, p->count, 1);
  tc_touch(prepare, DYNAMIC_SCALE, 1, sizeof(float));
  tc_touch(prepare, DYNAMIC_ZERO, 1, 1);
  tc_touch(prepare, DYNAMIC_X, p->count, sizeof(float));
  if (tc_refused(prepare)) {
    return;
  }
  prepare->units = tc_max(tc_ceil_div(p->count, QUANT_PIECE), 1);
  prepare->cost = 6.0 * (double)p->count;
  prepare->work.flops = 4.0 * (double)p->count;
}

static void TC_NAME(tc_quantize_dynamic)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_quantize_dynamic_params *p = call->params;
  const float *x = call->operands[DYNAMIC_X];
  const quant_step step = quant_step_of(x, p->count);
  if (begin == 0) {
    *(float *)call->operands[DYNAMIC_SCALE] = step.scale;
    *(uint8_t *)call->operands[DYNAMIC_ZERO] = step.zero;
  }
  const int64_t first = begin * QUANT_PIECE, last = tc_min(end * QUANT_PIECE, p->count);
  quantize_u8_one((uint8_t *)call->operands[DYNAMIC_Y] + first, x + first, &step.scale, &step.zero, last - first);
}

#endif
