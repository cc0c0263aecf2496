/* channel_affine_f32: one factor and one summand per channel of NHWC pixels. A unit is a piece of pixels. */
#ifndef TINYCOMP_KERNELS_NORM_CHANNEL_AFFINE_F32_H
#define TINYCOMP_KERNELS_NORM_CHANNEL_AFFINE_F32_H

#include "vocabulary.h"

#include "../common/math.h"
#include "../common/partial.h"
#include "../common/activation.h"

enum { AFFINE_Y, AFFINE_X, AFFINE_SCALE, AFFINE_SHIFT };

static int64_t affine_piece(const tc_channel_affine_f32_params *p) { return tc_max(4096 / tc_max(p->channels, 1), 1); }

static void TC_NAME(tc_channel_affine_f32_prepare)(tc_prepare *prepare) {
  const tc_channel_affine_f32_params *p = prepare->params;
  const int64_t count = TC_PRODUCT(prepare, p->pixels, p->channels);
  tc_check_activation(prepare, p->activation, p->activation_a, p->activation_b);
  tc_touch(prepare, AFFINE_Y, count, sizeof(float));
  tc_touch(prepare, AFFINE_X, count, sizeof(float));
  tc_touch(prepare, AFFINE_SCALE, p->channels, sizeof(float));
  tc_touch(prepare, AFFINE_SHIFT, p->channels, sizeof(float));
  if (tc_refused(prepare) || count == 0) {
    return;
  }
  prepare->units = tc_ceil_div(p->pixels, affine_piece(p));
  prepare->cost = (double)count * 3;
  prepare->work.flops = (double)count * 2;
}

static void TC_NAME(tc_channel_affine_f32)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_channel_affine_f32_params *p = call->params;
  const tc_epilogue_f32 epilogue = tc_epilogue(p->activation, p->activation_a, p->activation_b);
  const float *scale = call->operands[AFFINE_SCALE], *shift = call->operands[AFFINE_SHIFT];
  const int64_t piece = affine_piece(p);
  for (int64_t pixel = begin * piece; pixel < tc_min(end * piece, p->pixels); pixel++) {
    const float *x = (const float *)call->operands[AFFINE_X] + pixel * p->channels;
    float *y = (float *)call->operands[AFFINE_Y] + pixel * p->channels;
    for (int64_t c = 0; c < p->channels; c += TC_LANES) {
      const int64_t rest = p->channels - c;
      const tc_vf start = shift ? tc_load_up_to(shift + c, rest) : tc_vf_set1(0.0f);
      const tc_vf value = tc_vf_fma(tc_load_up_to(x + c, rest), tc_load_up_to(scale + c, rest), start);
      tc_store_up_to(y + c, tc_clamp(value, epilogue.low, epilogue.high), rest);
    }
    tc_activate_rows(&epilogue, y, 0, 1, p->channels);
  }
}

#endif
