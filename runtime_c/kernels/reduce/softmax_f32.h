/* softmax_f32: softmax or its logarithm along an axis. A unit is one row of adjacent elements, or a vector of rows
 * whose elements are `inner` apart. The result may replace the operand. */
#ifndef TINYCOMP_KERNELS_REDUCE_SOFTMAX_F32_H
#define TINYCOMP_KERNELS_REDUCE_SOFTMAX_F32_H

#include "vocabulary.h"

#include "../common/math.h"
#include "../common/log.h"
#include "../common/partial.h"
#include "steps.h"

enum { SOFTMAX_Y, SOFTMAX_X };

/* Rows that are computed together, of so many floats in all, which stay in the first-level cache. */
enum { SOFTMAX_TOGETHER = 8, SOFTMAX_NEAR = 4096 };

static void TC_NAME(tc_softmax_f32_prepare)(tc_prepare *prepare) {
  const tc_softmax_f32_params *p = prepare->params;
  TC_REQUIRE(prepare, p->logarithm == 0 || p->logarithm == 1, "logarithm must be 0 or 1");
  const int64_t count = TC_PRODUCT(prepare, p->outer, p->axis, p->inner);
  tc_touch(prepare, SOFTMAX_Y, count, sizeof(float));
  tc_touch(prepare, SOFTMAX_X, count, sizeof(float));
  if (tc_refused(prepare) || count == 0) {
    return;
  }
  prepare->units = p->outer * (p->inner == 1 ? 1 : tc_ceil_div(p->inner, TC_LANES));
  prepare->cost = (double)count * 20;
  prepare->work.flops = (double)count * 5;
}

/* The largest element. NaN may be lost: it returns with the exponentials. */
static float softmax_most(const float *x, int64_t count) {
  float most = -INFINITY;
  tc_vf sums[2] = {tc_vf_set1(most), tc_vf_set1(most)};
  int64_t i = 0;
  for (; i + 2 * TC_LANES <= count; i += 2 * TC_LANES) {
    sums[0] = tc_vf_max(sums[0], tc_vf_load(x + i));
    sums[1] = tc_vf_max(sums[1], tc_vf_load(x + i + TC_LANES));
  }
  if (count >= TC_LANES) { /* the rest in whole vectors too, which may overlap what was seen */
    sums[0] = tc_vf_max(sums[0], tc_vf_load(x + tc_min(i, count - TC_LANES)));
    sums[1] = tc_vf_max(sums[1], tc_vf_load(x + count - TC_LANES));
    return tc_vf_reduce_max(tc_vf_max(sums[0], sums[1]));
  }
  for (; i < count; i++) {
    most = x[i] > most ? x[i] : most;
  }
  return most;
}

/* y = e^(scale * (x - most)), which must not be above 1, and their sum. */
static float softmax_exponentials(float *y, const float *x, int64_t count, float scale, float most) {
  const tc_exponent exponent = tc_exponent_make(scale);
  const tc_vf shift = tc_vf_set1(most);
  tc_vf sum = tc_vf_set1(0.0f);
  int64_t i = 0;
  for (; i + TC_LANES <= count; i += TC_LANES) {
    const tc_vf e = tc_vf_exp_difference(tc_vf_sub(tc_vf_load(x + i), shift), exponent);
    tc_vf_store(y + i, e);
    sum = tc_vf_add(sum, e);
  }
  if (i < count) {
    const tc_vf e = tc_vf_exp_difference(tc_vf_sub(tc_vf_load_first(x + i, count - i), shift), exponent);
    tc_vf_store_first(y + i, e, count - i);
    sum = tc_vf_add(sum, tc_vf_first(e, count - i));
  }
  return tc_vf_reduce_add(sum);
}

/* The logarithm of the softmax of a row. */
static void softmax_logarithm(float *y, const float *x, int64_t count) {
  const float most = softmax_most(x, count);
  const tc_vf shift = tc_vf_set1(most), rest = tc_vf_set1(logf(reduce_row_EXP(x, count, most, 0.0f)));
  for (int64_t i = 0; i < count; i += TC_LANES) {
    const tc_vf value = tc_vf_sub(tc_load_up_to(x + i, count - i), shift);
    tc_store_up_to(y + i, tc_vf_sub(value, rest), count - i);
  }
}

/* Rows [0, rows) of `count` elements each, step by step for all of them: while one waits for its lanes to be joined,
 * another goes on. */
static void softmax_rows(float *y, const float *x, int64_t rows, int64_t count) {
  float most[SOFTMAX_TOGETHER], sums[SOFTMAX_TOGETHER];
  for (int64_t m = 0; m < rows; m++) {
    most[m] = softmax_most(x + m * count, count);
  }
  for (int64_t m = 0; m < rows; m++) {
    sums[m] = softmax_exponentials(y + m * count, x + m * count, count, 1.0f, most[m]);
  }
  for (int64_t m = 0; m < rows; m++, y += count) {
    const tc_vf factor = tc_vf_set1(1.0f / sums[m]);
    for (int64_t i = 0; i < count; i += TC_LANES) {
      tc_store_up_to(y + i, tc_vf_mul(tc_load_up_to(y + i, count - i), factor), count - i);
    }
  }
}

/* Up to a vector of neighbouring rows. */
static void softmax_columns(float *y, const float *x, const tc_softmax_f32_params *p, int64_t columns) {
  const int64_t count = p->axis, step = p->inner;
  const tc_exponent exponent = tc_exponent_make(1.0f);
  tc_vf most = tc_vf_set1(-INFINITY), sum = tc_vf_set1(0.0f);
  for (int64_t i = 0; i < count; i++) {
    most = tc_vf_maximum(most, tc_load_up_to(x + i * step, columns));
  }
  for (int64_t i = 0; i < count; i++) {
    const tc_vf e = tc_vf_exp_difference(tc_vf_sub(tc_load_up_to(x + i * step, columns), most), exponent);
    sum = tc_vf_add(sum, e);
    if (!p->logarithm) {
      tc_store_up_to(y + i * step, e, columns);
    }
  }
  const tc_vf rest = p->logarithm ? tc_vf_log(sum) : tc_vf_div(tc_vf_set1(1.0f), sum);
  for (int64_t i = 0; i < count; i++) {
    const tc_vf value = tc_load_up_to((p->logarithm ? x : y) + i * step, columns);
    const tc_vf result = p->logarithm ? tc_vf_sub(tc_vf_sub(value, most), rest) : tc_vf_mul(value, rest);
    tc_store_up_to(y + i * step, result, columns);
  }
}

static void TC_NAME(tc_softmax_f32)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_softmax_f32_params *p = call->params;
  const float *x = call->operands[SOFTMAX_X];
  float *y = call->operands[SOFTMAX_Y];
  const int64_t groups = tc_ceil_div(p->inner, TC_LANES);
  if (p->inner == 1 && !p->logarithm) {
    const int64_t together = tc_max(tc_min(SOFTMAX_NEAR / tc_max(p->axis, 1), SOFTMAX_TOGETHER), 1);
    for (int64_t row = begin; row < end; row += together) {
      softmax_rows(y + row * p->axis, x + row * p->axis, tc_min(end - row, together), p->axis);
    }
    return;
  }
  for (int64_t unit = begin; unit < end; unit++) {
    if (p->inner == 1) {
      softmax_logarithm(y + unit * p->axis, x + unit * p->axis, p->axis);
      continue;
    }
    const int64_t column = unit % groups * TC_LANES;
    const int64_t at = unit / groups * p->axis * p->inner + column;
    softmax_columns(y + at, x + at, p, tc_min(p->inner - column, TC_LANES));
  }
}

#endif
