/* group_norm_f32: groups of channels of an image brought to mean 0 and variance 1; with as many groups as channels,
 * instance normalisation. A unit is one image and a few neighbouring groups, which are read three times.
 *
 * Channels last has in scratch, for every channel of a unit, its mean and its factor. In a planar image a group is one
 * row of adjacent elements, and a unit is one group. */
#ifndef TINYCOMP_KERNELS_NORM_GROUP_NORM_F32_H
#define TINYCOMP_KERNELS_NORM_GROUP_NORM_F32_H

#include "vocabulary.h"

#include "../common/partial.h"
#include "../reduce/steps.h"

enum { GROUP_NORM_Y, GROUP_NORM_X, GROUP_NORM_SCALE, GROUP_NORM_BIAS };

/* Groups that one unit takes: enough for a strip of channels. */
static int64_t group_norm_batch(const tc_group_norm_f32_params *p) {
  const int64_t width = p->channels / p->groups;
  return p->planar ? 1 : tc_min(tc_ceil_div(REDUCE_STRIP, tc_max(width, 1)), p->groups);
}

static void TC_NAME(tc_group_norm_f32_prepare)(tc_prepare *prepare) {
  const tc_group_norm_f32_params *p = prepare->params;
  TC_REQUIRE(prepare, p->groups > 0 && p->channels >= 0 && p->channels % p->groups == 0,
             "%lld channels cannot be divided into %lld groups", (long long)p->channels, (long long)p->groups);
  TC_REQUIRE(prepare, p->epsilon >= 0, "epsilon is negative or NaN");
  TC_REQUIRE(prepare, (p->planar | 1) == 1, "planar must be 0 or 1");
  const int64_t count = TC_PRODUCT(prepare, p->batch, p->pixels, p->channels);
  tc_touch(prepare, GROUP_NORM_Y, count, sizeof(float));
  tc_touch(prepare, GROUP_NORM_X, count, sizeof(float));
  tc_touch(prepare, GROUP_NORM_SCALE, p->channels, sizeof(float));
  tc_touch(prepare, GROUP_NORM_BIAS, p->channels, sizeof(float));
  if (tc_refused(prepare) || count == 0) {
    return;
  }
  const int64_t together = group_norm_batch(p), width = p->channels / p->groups * together;
  prepare->units = p->batch * tc_ceil_div(p->groups, together);
  prepare->cost = (double)count * 8;
  prepare->work.flops = (double)count * 7;
  prepare->scratch_bytes = p->planar ? 0 : TC_PRODUCT(prepare, 2, width, sizeof(float));
}

/* Replaces the sums of every group's channels by their mean over the group. */
static void group_norm_means(float *sums, int64_t channels, int64_t width, int64_t pixels) {
  for (int64_t first = 0; first < channels; first += width) {
    double sum = 0;
    for (int64_t c = 0; c < width; c++) {
      sum += sums[first + c];
    }
    for (int64_t c = 0; c < width; c++) {
      sums[first + c] = (float)(sum / ((double)width * (double)pixels));
    }
  }
}

/* The mean of x, or of (x - shift)^2, over each group. */
static void group_norm_moments(float *moments, const tc_group_norm_f32_params *p, const float *x, int64_t channels,
                               const float *shifts) {
  for (int64_t c = 0; c < channels; c += REDUCE_STRIP) {
    const reduce_span span = {.x = x + c,
                              .planes = 1,
                              .lines = p->pixels,
                              .line_stride = p->channels,
                              .columns = tc_min(channels - c, REDUCE_STRIP)};
    if (shifts) {
      reduce_columns_SQUARE(moments + c, &span, shifts + c);
    } else {
      reduce_columns_SUM(moments + c, &span, NULL);
    }
  }
  group_norm_means(moments, channels, p->channels / p->groups, p->pixels);
}

static void group_norm_apply(const tc_call *call, int64_t image, int64_t channel, int64_t channels) {
  const tc_group_norm_f32_params *p = call->params;
  const float *bias = call->operands[GROUP_NORM_BIAS], *means = call->scratch, *factors = means + channels;
  for (int64_t pixel = 0; pixel < p->pixels; pixel++) {
    const int64_t at = (image * p->pixels + pixel) * p->channels + channel;
    const float *x = (const float *)call->operands[GROUP_NORM_X] + at;
    float *y = (float *)call->operands[GROUP_NORM_Y] + at;
    for (int64_t c = 0; c < channels; c += TC_LANES) {
      const int64_t rest = channels - c;
      const tc_vf shifted = tc_vf_sub(tc_load_up_to(x + c, rest), tc_load_up_to(means + c, rest));
      const tc_vf start = bias ? tc_load_up_to(bias + channel + c, rest) : tc_vf_set1(0.0f);
      tc_store_up_to(y + c, tc_vf_fma(shifted, tc_load_up_to(factors + c, rest), start), rest);
    }
  }
}

/* One group of a planar image. */
static void group_norm_row(const tc_call *call, int64_t image, int64_t group) {
  const tc_group_norm_f32_params *p = call->params;
  const float *scale = call->operands[GROUP_NORM_SCALE], *bias = call->operands[GROUP_NORM_BIAS];
  const int64_t width = p->channels / p->groups, count = width * p->pixels;
  const int64_t at = (image * p->groups + group) * count;
  const float *x = (const float *)call->operands[GROUP_NORM_X] + at;
  float *y = (float *)call->operands[GROUP_NORM_Y] + at;
  const float mean = reduce_row_SUM(x, count, 0.0f, 0.0f) / (float)count;
  const float factor = 1.0f / sqrtf(reduce_row_SQUARE(x, count, mean, 0.0f) / (float)count + p->epsilon);
  const tc_vf means = tc_vf_set1(mean);
  for (int64_t c = group * width; c < (group + 1) * width; c++, x += p->pixels, y += p->pixels) {
    const tc_vf factors = tc_vf_set1(scale ? factor * scale[c] : factor), start = tc_vf_set1(bias ? bias[c] : 0.0f);
    for (int64_t i = 0; i < p->pixels; i += TC_LANES) {
      const int64_t rest = p->pixels - i;
      tc_store_up_to(y + i, tc_vf_fma(tc_vf_sub(tc_load_up_to(x + i, rest), means), factors, start), rest);
    }
  }
}

static void TC_NAME(tc_group_norm_f32)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_group_norm_f32_params *p = call->params;
  const float *scale = call->operands[GROUP_NORM_SCALE];
  const int64_t together = group_norm_batch(p), width = p->channels / p->groups;
  const int64_t batches = tc_ceil_div(p->groups, together);
  for (int64_t unit = begin; unit < end; unit++) {
    const int64_t image = unit / batches, group = unit % batches * together;
    if (p->planar) {
      group_norm_row(call, image, group);
      continue;
    }
    const int64_t channel = group * width, channels = tc_min(p->groups - group, together) * width;
    const float *x = (const float *)call->operands[GROUP_NORM_X] + image * p->pixels * p->channels + channel;
    float *means = call->scratch, *factors = means + channels;
    group_norm_moments(means, p, x, channels, NULL);
    group_norm_moments(factors, p, x, channels, means);
    for (int64_t c = 0; c < channels; c++) {
      factors[c] = (scale ? scale[channel + c] : 1.0f) / sqrtf(factors[c] + p->epsilon);
    }
    group_norm_apply(call, image, channel, channels);
  }
}

#endif
