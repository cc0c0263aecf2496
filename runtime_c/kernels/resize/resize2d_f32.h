/* resize2d_f32: separable interpolation of NHWC images from tables of positions and weights. A unit is one output line:
 * the input lines are blended into scratch, and its pixels are then blended or picked. */
#ifndef TINYCOMP_KERNELS_RESIZE_RESIZE2D_F32_H
#define TINYCOMP_KERNELS_RESIZE_RESIZE2D_F32_H

#include "vocabulary.h"

#include "../common/partial.h"

#define RESIZE_OUTSIDE "a position in the tables lies outside the image"

enum { RESIZE_Y, RESIZE_X, RESIZE_LINES, RESIZE_COLUMNS, RESIZE_LINE_WEIGHTS, RESIZE_COLUMN_WEIGHTS };

static void resize_check(tc_prepare *prepare) {
  const tc_resize2d_f32_params *p = prepare->params;
  TC_REQUIRE(prepare, tc_present(prepare, RESIZE_LINE_WEIGHTS) == tc_present(prepare, RESIZE_COLUMN_WEIGHTS),
             "one table of weights is given without the other");
  TC_REQUIRE(prepare, p->line_taps > 0 && p->column_taps > 0, "the number of taps is not positive");
  TC_REQUIRE(prepare, tc_present(prepare, RESIZE_LINE_WEIGHTS) || (p->line_taps == 1 && p->column_taps == 1),
             "several taps need weights");
  TC_REQUIRE(prepare, (p->crops | 1) == 1, "crops must be 0 or 1");
  TC_REQUIRE(prepare, p->x_pixel_stride >= p->channels && p->y_pixel_stride >= p->channels,
             "a pixel stride is smaller than the number of channels");
}

static void TC_NAME(tc_resize2d_f32_prepare)(tc_prepare *prepare) {
  const tc_resize2d_f32_params *p = prepare->params;
  resize_check(prepare);
  const int64_t line_entries = TC_PRODUCT(prepare, p->out_height, p->line_taps);
  const int64_t column_entries = TC_PRODUCT(prepare, p->out_width, p->column_taps);
  const int64_t count = TC_PRODUCT(prepare, p->batch, p->out_height, p->out_width, p->channels);
  TC_PRODUCT(prepare, p->batch, p->height, p->width, p->channels);
  tc_touch_image(prepare, RESIZE_Y, p->batch, p->out_height, p->out_width, p->y_pixel_stride, p->channels,
                 sizeof(float));
  tc_touch_image(prepare, RESIZE_X, p->batch, p->height, p->width, p->x_pixel_stride, p->channels, sizeof(float));
  tc_touch(prepare, RESIZE_LINES, line_entries, sizeof(int64_t));
  tc_touch(prepare, RESIZE_COLUMNS, column_entries, sizeof(int64_t));
  tc_touch(prepare, RESIZE_LINE_WEIGHTS, line_entries, sizeof(float));
  tc_touch(prepare, RESIZE_COLUMN_WEIGHTS, column_entries, sizeof(float));
  prepare->scratch_bytes = TC_PRODUCT(prepare, p->width, p->x_pixel_stride, sizeof(float));
  if (tc_refused(prepare)) {
    return;
  }
  prepare->units = count ? p->batch * p->out_height : 0;
  prepare->cost = (double)count * (double)(p->line_taps + p->column_taps);
  const double values = TC_COUNT(count, p->line_taps, p->column_taps);
  const double there = TC_COUNT(p->batch, p->height, p->width, p->channels);
  prepare->work.flops = tc_max(p->line_taps, p->column_taps) > 1 ? 2.0 * values : 0;
  tc_move(prepare, RESIZE_X, fmin(values, there), sizeof(float));
}

/* Whether rows of positions lie inside an axis, or are marked as outside of it where that is allowed. */
static bool resize_inside(const int64_t *positions, int64_t rows, int64_t taps, int64_t size, bool crops) {
  for (int64_t row = 0; row < rows; row++) {
    const int64_t *own = positions + row * taps;
    for (int64_t t = 0; t < taps && !(crops && own[0] == TC_RESIZE_OUTSIDE); t++) {
      if (own[t] < 0 || own[t] >= size) {
        return false;
      }
    }
  }
  return true;
}

static void resize_fill(float *to, float value, int64_t count) {
  for (int64_t i = 0; i < count; i += TC_LANES) {
    tc_store_up_to(to + i, tc_vf_set1(value), count - i);
  }
}

/* to[i] = the sum of weights[t] * (base + positions[t] * step)[i] */
TC_INLINE void resize_blend(float *to, const float *base, const int64_t *positions, const float *weights, int64_t taps,
                            int64_t step, int64_t count) {
  for (int64_t i = 0; i < count; i += TC_LANES) {
    tc_vf sum = tc_vf_set1(0.0f);
    for (int64_t t = 0; t < taps; t++) {
      const tc_vf value = tc_load_up_to(base + positions[t] * step + i, count - i);
      sum = tc_vf_fma(tc_vf_set1(weights[t]), value, sum);
    }
    tc_store_up_to(to + i, sum, count - i);
  }
}

/* The pixels of a line of an image of one channel, each the sum of `taps` others. */
TC_INLINE void resize_blend_plane(const tc_resize2d_f32_params *p, const int64_t taps, float *y, const float *line,
                                  const int64_t *columns, const float *weights) {
  for (int64_t x = 0; x < p->out_width; x++, columns += taps, weights += taps) {
    if (columns[0] < 0) {
      y[x] = p->extrapolation;
      continue;
    }
    float sum = 0.0f;
#pragma GCC unroll 4
    for (int64_t t = 0; t < taps; t++) {
      sum += line[columns[t]] * weights[t];
    }
    y[x] = sum;
  }
}

/* The pixels of a line, out of the blended line. */
static void resize_blend_pixels(const tc_resize2d_f32_params *p, float *y, const float *line, const int64_t *columns,
                                const float *weights) {
  if (p->channels == 1 && p->x_pixel_stride == 1 && p->y_pixel_stride == 1) {
    if (p->column_taps == 2) {
      resize_blend_plane(p, 2, y, line, columns, weights);
    } else if (p->column_taps == 4) {
      resize_blend_plane(p, 4, y, line, columns, weights);
    } else {
      resize_blend_plane(p, p->column_taps, y, line, columns, weights);
    }
    return;
  }
  for (int64_t x = 0; x < p->out_width; x++) {
    const int64_t *own = columns + x * p->column_taps;
    float *to = y + x * p->y_pixel_stride;
    if (own[0] < 0) {
      resize_fill(to, p->extrapolation, p->channels);
    } else {
      resize_blend(to, line, own, weights + x * p->column_taps, p->column_taps, p->x_pixel_stride, p->channels);
    }
  }
}

static void resize_pick(const tc_resize2d_f32_params *p, float *y, const float *line, const int64_t *columns) {
  const int64_t channels = p->channels;
  if (channels == 1 && p->x_pixel_stride == 1 && p->y_pixel_stride == 1) {
    for (int64_t x = 0; x < p->out_width; x++) {
      y[x] = columns[x] < 0 ? p->extrapolation : line[columns[x]];
    }
    return;
  }
  for (int64_t x = 0; x < p->out_width; x++) {
    float *to = y + x * p->y_pixel_stride;
    if (columns[x] < 0) {
      resize_fill(to, p->extrapolation, channels);
      continue;
    }
    const float *from = line + columns[x] * p->x_pixel_stride;
    for (int64_t c = 0; c < channels; c += TC_LANES) {
      tc_store_up_to(to + c, tc_load_up_to(from + c, channels - c), channels - c);
    }
  }
}

static void TC_NAME(tc_resize2d_f32)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_resize2d_f32_params *p = call->params;
  const int64_t *lines = call->operands[RESIZE_LINES], *columns = call->operands[RESIZE_COLUMNS];
  const float *line_weights = call->operands[RESIZE_LINE_WEIGHTS];
  const float *column_weights = call->operands[RESIZE_COLUMN_WEIGHTS];
  const int64_t row = p->width * p->x_pixel_stride, last = (p->width - 1) * p->x_pixel_stride + p->channels;
  float *blended = call->scratch;
  const bool crops = p->crops != 0;
  if (begin < end && !resize_inside(columns, p->out_width, p->column_taps, p->width, crops)) {
    tc_fail(call, RESIZE_OUTSIDE);
    return;
  }
  for (int64_t unit = begin; unit < end; unit++) {
    const int64_t line = unit % p->out_height;
    const float *image = (const float *)call->operands[RESIZE_X] + unit / p->out_height * p->height * row;
    float *y = (float *)call->operands[RESIZE_Y] + unit * p->out_width * p->y_pixel_stride;
    if (!resize_inside(lines + line * p->line_taps, 1, p->line_taps, p->height, crops)) {
      tc_fail(call, RESIZE_OUTSIDE);
      return;
    }
    if (lines[line * p->line_taps] < 0) {
      for (int64_t x = 0; x < p->out_width; x++) {
        resize_fill(y + x * p->y_pixel_stride, p->extrapolation, p->channels);
      }
      continue;
    }
    if (!line_weights) {
      resize_pick(p, y, image + lines[line] * row, columns);
      continue;
    }
    resize_blend(blended, image, lines + line * p->line_taps, line_weights + line * p->line_taps, p->line_taps, row,
                 last);
    resize_blend_pixels(p, y, blended, columns, column_weights);
  }
}

#undef RESIZE_OUTSIDE

#endif
