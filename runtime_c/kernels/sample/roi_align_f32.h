/* roi_align_f32: regions of interest, pooled from bilinear samples. A unit is one line of cells of one region. */
#ifndef TINYCOMP_KERNELS_SAMPLE_ROI_ALIGN_F32_H
#define TINYCOMP_KERNELS_SAMPLE_ROI_ALIGN_F32_H

#include "vocabulary.h"

#include "../common/partial.h"

#define ROI_OUTSIDE "batch index out of bounds"
#define ROI_TOO_LARGE "a region has too many samples, or coordinates that are no numbers"

enum { ROI_Y, ROI_X, ROI_REGIONS, ROI_IMAGES };
enum { ROI_MOST_SAMPLES = 1 << 14 };

/* One axis of a region: where its cells begin, their size, and how many samples each has. */
typedef struct roi_axis {
  double start, step;
  int64_t samples;
} roi_axis;

/* The pixels around one sample and their weights, which are 0 outside the image. */
typedef struct roi_pair {
  int64_t low, high;
  float below, above;
} roi_pair;

static void TC_NAME(tc_roi_align_f32_prepare)(tc_prepare *prepare) {
  const tc_roi_align_f32_params *p = prepare->params;
  TC_REQUIRE(prepare, p->x_pixel_stride >= p->channels && p->y_pixel_stride >= p->channels,
             "a pixel stride is smaller than the number of channels");
  TC_REQUIRE(prepare, p->ratio >= 0 && p->ratio <= ROI_MOST_SAMPLES, "%lld samples per cell", (long long)p->ratio);
  tc_touch_image(prepare, ROI_Y, p->rois, p->out_height, p->out_width, p->y_pixel_stride, p->channels, sizeof(float));
  tc_touch_image(prepare, ROI_X, p->batch, p->height, p->width, p->x_pixel_stride, p->channels, sizeof(float));
  tc_touch(prepare, ROI_REGIONS, TC_PRODUCT(prepare, p->rois, 4), sizeof(float));
  tc_touch(prepare, ROI_IMAGES, p->rois, sizeof(int64_t));
  const int64_t cells = TC_PRODUCT(prepare, p->rois, p->out_height, p->out_width);
  const int64_t count = TC_PRODUCT(prepare, cells, p->channels);
  const int64_t there = TC_PRODUCT(prepare, p->batch, p->height, p->width, p->channels);
  if (tc_refused(prepare)) {
    return;
  }
  TC_REQUIRE(prepare, there > 0 || count == 0, "an image without pixels is sampled");
  prepare->units = count ? p->rois * p->out_height : 0;
  const double samples = p->ratio ? (double)p->ratio * (double)p->ratio : 4.0;
  prepare->work.flops = 8.0 * samples * (double)count;
  prepare->cost = prepare->work.flops;
  tc_move(prepare, ROI_X, fmin(4.0 * samples * (double)count, (double)there), sizeof(float));
}

/* Returns false where the axis has too many samples. */
static bool roi_axis_make(const tc_roi_align_f32_params *p, float first, float second, int64_t cells, roi_axis *axis) {
  const float shift = p->half_pixel ? 0.5f : 0.0f;
  const float start = first * p->scale - shift, size = second * p->scale - shift - start;
  const float length = p->half_pixel ? size : fmaxf(size, 1.0f);
  const float step = length / (float)cells;
  axis->start = (double)start;
  axis->step = (double)step;
  const float wanted = p->ratio ? (float)p->ratio : ceilf(step);
  axis->samples = wanted > 0.0f ? (int64_t)fminf(wanted, (float)ROI_MOST_SAMPLES) : 0;
  return wanted <= (float)ROI_MOST_SAMPLES && isfinite(start);
}

static roi_pair roi_sample(const roi_axis *axis, int64_t cell, int64_t sample, int64_t size) {
  const double within = ((double)sample + 0.5) / (double)axis->samples;
  const double at = axis->start + ((double)cell + within) * axis->step, n = (double)size;
  const bool inside = at >= -1.0 && at <= n;
  const double place = fmin(fmax(at, 0.0), n - 1.0);
  roi_pair pair = {.low = (int64_t)place};
  pair.high = tc_min(pair.low + 1, size - 1);
  const double above = place - (double)pair.low;
  pair.below = inside ? (float)(1.0 - above) : 0.0f;
  pair.above = inside ? (float)above : 0.0f;
  return pair;
}

/* Adds one sample to y, or takes the largest of its weighted corners and y. */
TC_INLINE void roi_add(float *y, const float *const corners[4], const float *weights, int64_t channels, bool largest) {
  for (int64_t c = 0; c < channels; c += TC_LANES) {
    tc_vf result = tc_load_up_to(y + c, channels - c);
    for (int i = 0; i < 4; i++) {
      const tc_vf weight = tc_vf_set1(weights[i]), pixel = tc_load_up_to(corners[i] + c, channels - c);
      result = largest ? tc_vf_max(result, tc_vf_mul(weight, pixel)) : tc_vf_fma(weight, pixel, result);
    }
    tc_store_up_to(y + c, result, channels - c);
  }
}

TC_INLINE void roi_fill(float *y, float value, int64_t channels) {
  for (int64_t c = 0; c < channels; c++) {
    y[c] = value;
  }
}

/* One cell of a region. */
static void roi_cell(const tc_roi_align_f32_params *p, float *y, const float *image, const roi_axis axes[2],
                     int64_t line, int64_t column) {
  const int64_t count = axes[0].samples * axes[1].samples, channels = p->channels, stride = p->x_pixel_stride;
  const bool largest = p->largest && count;
  roi_fill(y, largest ? -INFINITY : 0.0f, channels);
  for (int64_t i = 0; i < axes[0].samples; i++) {
    const roi_pair rows = roi_sample(&axes[0], line, i, p->height);
    const float *low = image + rows.low * p->width * stride, *high = image + rows.high * p->width * stride;
    for (int64_t j = 0; j < axes[1].samples; j++) {
      const roi_pair columns = roi_sample(&axes[1], column, j, p->width);
      const float *const corners[4] = {low + columns.low * stride, low + columns.high * stride,
                                       high + columns.low * stride, high + columns.high * stride};
      const float weights[4] = {rows.below * columns.below, rows.below * columns.above, rows.above * columns.below,
                                rows.above * columns.above};
      roi_add(y, corners, weights, channels, largest);
    }
  }
  if (!largest && count > 1) {
    for (int64_t c = 0; c < channels; c++) {
      y[c] /= (float)count;
    }
  }
}

static void TC_NAME(tc_roi_align_f32)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_roi_align_f32_params *p = call->params;
  for (int64_t unit = begin; unit < end; unit++) {
    const int64_t roi = unit / p->out_height, line = unit % p->out_height;
    const float *box = (const float *)call->operands[ROI_REGIONS] + 4 * roi;
    const int64_t index = ((const int64_t *)call->operands[ROI_IMAGES])[roi];
    roi_axis axes[2];
    if (index < 0 || index >= p->batch) {
      tc_fail(call, ROI_OUTSIDE);
      return;
    }
    if (!roi_axis_make(p, box[1], box[3], p->out_height, &axes[0]) ||
        !roi_axis_make(p, box[0], box[2], p->out_width, &axes[1])) {
      tc_fail(call, ROI_TOO_LARGE);
      return;
    }
    const float *image = (const float *)call->operands[ROI_X] + index * p->height * p->width * p->x_pixel_stride;
    float *y = (float *)call->operands[ROI_Y] + unit * p->out_width * p->y_pixel_stride;
    for (int64_t column = 0; column < p->out_width; column++) {
      roi_cell(p, y + column * p->y_pixel_stride, image, axes, line, column);
    }
  }
}

#undef ROI_OUTSIDE
#undef ROI_TOO_LARGE

#endif
