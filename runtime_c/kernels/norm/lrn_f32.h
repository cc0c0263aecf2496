/* lrn_f32: local response normalisation across the channels of NHWC pixels. A unit is a piece of pixels.
 *
 * Scratch: the squares of one pixel, with zeros for the channels that windows reach beyond either end. */
#ifndef TINYCOMP_KERNELS_NORM_LRN_F32_H
#define TINYCOMP_KERNELS_NORM_LRN_F32_H

#include "vocabulary.h"

#include "../common/math.h"
#include "../common/log.h"
#include "../common/partial.h"

enum { LRN_Y, LRN_X };

enum { LRN_PIECE = 32 };

static void TC_NAME(tc_lrn_f32_prepare)(tc_prepare *prepare) {
  const tc_lrn_f32_params *p = prepare->params;
  TC_REQUIRE(prepare, p->size > 0 && p->size <= 1 << 20, "a window of %lld channels is out of range",
             (long long)p->size);
  TC_REQUIRE(prepare, isfinite(p->alpha) && isfinite(p->beta) && isfinite(p->bias),
             "alpha, beta or bias is not finite");
  const int64_t count = TC_PRODUCT(prepare, p->pixels, p->channels);
  tc_touch(prepare, LRN_Y, count, sizeof(float));
  tc_touch(prepare, LRN_X, count, sizeof(float));
  if (tc_refused(prepare) || count == 0) {
    return;
  }
  prepare->units = tc_ceil_div(p->pixels, LRN_PIECE);
  prepare->cost = (double)count * (double)(p->size + 30);
  prepare->work.flops = (double)count * (double)(2 * p->size + 4);
  prepare->scratch_bytes = TC_PRODUCT(prepare, p->channels + p->size + TC_LANES, sizeof(float));
}

static void lrn_pixel(const tc_lrn_f32_params *p, float *y, const float *x, float *squares) {
  const int64_t before = (p->size - 1) / 2;
  const tc_vf alpha = tc_vf_set1(p->alpha / (float)p->size), bias = tc_vf_set1(p->bias);
  for (int64_t c = 0; c < p->channels; c++) {
    squares[before + c] = x[c] * x[c];
  }
  for (int64_t c = 0; c < p->channels; c += TC_LANES) {
    const int64_t rest = p->channels - c;
    tc_vf sum = tc_vf_set1(0.0f);
    for (int64_t k = 0; k < p->size; k++) {
      sum = tc_vf_add(sum, tc_load_up_to(squares + c + k, rest));
    }
    const tc_vf logarithm = tc_vf_log(tc_vf_fma(alpha, sum, bias));
    const tc_vf power = tc_vf_exp(tc_vf_mul(logarithm, tc_vf_set1(-p->beta)));
    tc_store_up_to(y + c, tc_vf_mul(tc_load_up_to(x + c, rest), power), rest);
  }
}

static void TC_NAME(tc_lrn_f32)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_lrn_f32_params *p = call->params;
  memset(call->scratch, 0, (size_t)(p->channels + p->size) * sizeof(float));
  for (int64_t pixel = begin * LRN_PIECE; pixel < tc_min(end * LRN_PIECE, p->pixels); pixel++) {
    const int64_t at = pixel * p->channels;
    lrn_pixel(p, (float *)call->operands[LRN_Y] + at, (const float *)call->operands[LRN_X] + at, call->scratch);
  }
}

#endif
