/* layer_norm_f32: rows, or sums of two, brought to mean 0 and variance 1, or only to root mean square 1. A unit is one
 * row. */
#ifndef TINYCOMP_KERNELS_NORM_LAYER_NORM_F32_H
#define TINYCOMP_KERNELS_NORM_LAYER_NORM_F32_H

#include "vocabulary.h"

#include "../common/partial.h"
#include "../reduce/steps.h"

enum { LAYER_NORM_Y, LAYER_NORM_TOTAL, LAYER_NORM_X, LAYER_NORM_RESIDUAL, LAYER_NORM_SCALE, LAYER_NORM_BIAS };

/* Rows that are computed together, of so many floats in all, which stay in the first-level cache. */
enum { LAYER_NORM_TOGETHER = 8, LAYER_NORM_NEAR = 4096 };

static void TC_NAME(tc_layer_norm_f32_prepare)(tc_prepare *prepare) {
  const tc_layer_norm_f32_params *p = prepare->params;
  TC_REQUIRE(prepare, p->rms == 0 || p->rms == 1, "rms must be 0 or 1");
  TC_REQUIRE(prepare, p->epsilon >= 0, "epsilon is negative or NaN");
  const int64_t count = TC_PRODUCT(prepare, p->rows, p->columns);
  tc_touch(prepare, LAYER_NORM_Y, count, sizeof(float));
  tc_touch(prepare, LAYER_NORM_TOTAL, count, sizeof(float));
  tc_touch(prepare, LAYER_NORM_X, count, sizeof(float));
  tc_touch(prepare, LAYER_NORM_RESIDUAL, count, sizeof(float));
  tc_touch(prepare, LAYER_NORM_SCALE, p->columns, sizeof(float));
  tc_touch(prepare, LAYER_NORM_BIAS, p->columns, sizeof(float));
  prepare->units = count ? p->rows : 0;
  prepare->cost = (double)count * 8;
  prepare->work.flops = (double)count * 7;
}

/* total = x + residual, or x where there is none. */
static void layer_norm_add(float *total, const float *x, const float *residual, int64_t count) {
  for (int64_t i = 0; i < count; i += TC_LANES) {
    const int64_t rest = count - i;
    const tc_vf value = tc_load_up_to(x + i, rest);
    tc_store_up_to(total + i, residual ? tc_vf_add(value, tc_load_up_to(residual + i, rest)) : value, rest);
  }
}

/* y = (x - mean) * factor, times scale and plus bias where there are such. */
TC_INLINE void layer_norm_apply(const bool scaled, const bool biased, float *y, const float *x, const float *scale,
                                const float *bias, int64_t count, float mean, float factor) {
  const tc_vf means = tc_vf_set1(mean), factors = tc_vf_set1(factor);
  for (int64_t i = 0; i < count; i += TC_LANES) {
    const int64_t rest = count - i;
    tc_vf value = tc_vf_mul(tc_vf_sub(tc_load_up_to(x + i, rest), means), factors);
    value = scaled ? tc_vf_mul(value, tc_load_up_to(scale + i, rest)) : value;
    value = biased ? tc_vf_add(value, tc_load_up_to(bias + i, rest)) : value;
    tc_store_up_to(y + i, value, rest);
  }
}

/* The sums of a row of up to a part at once, which saves joining them to nothing. */
#define LAYER_NORM_SUM(kind, row, count, shift) \
  ((count) <= REDUCE_PART ? reduce_part_##kind(row, count, 1, 0, shift) : reduce_row_##kind(row, count, shift, 0.0f))

/* A few rows, step by step for all of them: while one waits for its lanes to be joined and for a root and a quotient,
 * another goes on. */
static void layer_norm_rows(const tc_call *call, int64_t begin, int64_t count) {
  const tc_layer_norm_f32_params *p = call->params;
  const int64_t n = p->columns;
  const float *scale = call->operands[LAYER_NORM_SCALE], *bias = call->operands[LAYER_NORM_BIAS];
  const float *residual = call->operands[LAYER_NORM_RESIDUAL];
  const float *x = (const float *)call->operands[LAYER_NORM_X] + begin * n;
  float *y = (float *)call->operands[LAYER_NORM_Y] + begin * n, *total = call->operands[LAYER_NORM_TOTAL];
  float means[LAYER_NORM_TOGETHER] = {0}, factors[LAYER_NORM_TOGETHER];
  if (residual || total) {
    total = total ? total + begin * n : y;
    layer_norm_add(total, x, residual ? residual + begin * n : NULL, count * n);
    x = total;
  }
  for (int64_t m = 0; m < count && !p->rms; m++) {
    means[m] = LAYER_NORM_SUM(SUM, x + m * n, n, 0.0f) / (float)n;
  }
  for (int64_t m = 0; m < count; m++) {
    const float variance = LAYER_NORM_SUM(SQUARE, x + m * n, n, means[m]) / (float)n;
    factors[m] = 1.0f / sqrtf(variance + p->epsilon);
  }
  for (int64_t m = 0; m < count; m++, x += n, y += n) {
    if (scale && bias) {
      layer_norm_apply(true, true, y, x, scale, bias, n, means[m], factors[m]);
    } else if (scale) {
      layer_norm_apply(true, false, y, x, scale, bias, n, means[m], factors[m]);
    } else if (bias) {
      layer_norm_apply(false, true, y, x, scale, bias, n, means[m], factors[m]);
    } else {
      layer_norm_apply(false, false, y, x, scale, bias, n, means[m], factors[m]);
    }
  }
}

static void TC_NAME(tc_layer_norm_f32)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_layer_norm_f32_params *p = call->params;
  const int64_t together = tc_max(tc_min(LAYER_NORM_NEAR / tc_max(p->columns, 1), LAYER_NORM_TOGETHER), 1);
  for (int64_t row = begin; row < end; row += together) {
    layer_norm_rows(call, row, tc_min(end - row, together));
  }
}

#endif
