/* pool2d_f32: maximum or average over NHWC windows. A unit is one line of output pixels and a strip of channels, so
 * that pooling a whole image to one pixel has as many units as the image has strips. Images of one channel have a form
 * of their own (planar.h). */
#ifndef TINYCOMP_KERNELS_POOL_POOL2D_F32_H
#define TINYCOMP_KERNELS_POOL_POOL2D_F32_H

#include "vocabulary.h"

#include "../common/log.h"
#include "../common/partial.h"
#include "planar.h"
#include "walk.h"

enum { POOL_VECTORS = 4, POOL_STRIP = POOL_VECTORS * TC_LANES };

static void pool_check(tc_prepare *prepare) {
  const tc_pool2d_f32_params *p = prepare->params;
  const tc_window window = TC_WINDOW(p);
  tc_check_window(prepare, &window);
  TC_REQUIRE(prepare, p->mode >= TC_POOL_MAX && p->mode <= TC_POOL_AVERAGE_WITH_PADS, "there is no pooling mode %lld",
             (long long)p->mode);
  const int64_t most = (int64_t)1 << 24;
  TC_REQUIRE(prepare, p->pad_bottom >= 0 && p->pad_bottom <= most && p->pad_right >= 0 && p->pad_right <= most,
             "a pad is out of range");
  TC_REQUIRE(prepare, p->x_pixel_stride >= p->channels && p->y_pixel_stride >= p->channels,
             "a pixel stride is smaller than the number of channels");
}

static void TC_NAME(tc_pool2d_f32_prepare)(tc_prepare *prepare) {
  const tc_pool2d_f32_params *p = prepare->params;
  pool_check(prepare);
  if (tc_refused(prepare)) {
    return;
  }
  tc_touch_image(prepare, POOL_Y, p->batch, p->out_height, p->out_width, p->y_pixel_stride, p->channels, sizeof(float));
  tc_touch_image(prepare, POOL_X, p->batch, p->height, p->width, p->x_pixel_stride, p->channels, sizeof(float));
  prepare->work.flops = TC_COUNT(p->batch, p->out_height, p->out_width, p->channels, p->kernel_height, p->kernel_width);
  const int64_t strips = TC_PRODUCT(prepare, p->channels) ? tc_ceil_div(p->channels, POOL_STRIP) : 0;
  prepare->units = TC_PRODUCT(prepare, p->batch, p->out_height, strips);
  prepare->cost =
      (double)p->kernel_height * (double)p->kernel_width * (double)p->out_width * (double)prepare->units * POOL_STRIP;
  if (pool_is_planar(p)) {
    const tc_window window = TC_WINDOW(p);
    prepare->cost /= POOL_STRIP;
    prepare->scratch_bytes = TC_PRODUCT(prepare, pool_planar_floats(&window), sizeof(float));
  }
}

/* One output pixel and strip. */
typedef struct pool_pixel {
  const float *x; /* the first position inside */
  float *y;
  const pool_walk *walk;
  float divisor;
} pool_pixel;

/* `vectors` vectors of channels, the last of which has `lanes` lanes. */
TC_INLINE void pool_channels(const int vectors, const bool maximum, const pool_pixel *pixel, int64_t lanes) {
  tc_vf sum[POOL_VECTORS];
#pragma GCC unroll 4
  for (int v = 0; v < vectors; v++) {
    sum[v] = tc_vf_set1(maximum ? -INFINITY : 0.0f);
  }
  for (int64_t i = 0; i < pixel->walk->lines; i++) {
    const float *x = pixel->x + i * pixel->walk->line_step;
    for (int64_t j = 0; j < pixel->walk->columns; j++, x += pixel->walk->column_step) {
#pragma GCC unroll 4
      for (int v = 0; v < vectors; v++) {
        const float *from = x + v * TC_LANES;
        const tc_vf value = v < vectors - 1 ? tc_vf_load(from) : tc_load_up_to(from, lanes);
        sum[v] = maximum ? tc_vf_maximum(sum[v], value) : tc_vf_add(sum[v], value);
      }
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < vectors; v++) {
    const tc_vf y = maximum ? sum[v] : tc_vf_div(sum[v], tc_vf_set1(pixel->divisor));
    tc_store_up_to(pixel->y + v * TC_LANES, y, v < vectors - 1 ? TC_LANES : lanes);
  }
}

TC_INLINE void pool_strip(const bool maximum, const pool_pixel *pixel, int64_t channels) {
  const int64_t vectors = tc_ceil_div(channels, TC_LANES), lanes = channels - (vectors - 1) * TC_LANES;
  if (vectors == 4) {
    pool_channels(4, maximum, pixel, lanes);
  } else if (vectors == 3) {
    pool_channels(3, maximum, pixel, lanes);
  } else if (vectors == 2) {
    pool_channels(2, maximum, pixel, lanes);
  } else {
    pool_channels(1, maximum, pixel, lanes);
  }
}

static void pool_line(const tc_call *call, int64_t line, int64_t channel, int64_t channels) {
  const tc_pool2d_f32_params *p = call->params;
  const tc_window window = TC_WINDOW(p);
  const bool with_pads = p->mode == TC_POOL_AVERAGE_WITH_PADS;
  const float *x = (const float *)call->operands[POOL_X] + channel;
  float *y = (float *)call->operands[POOL_Y] + line * p->out_width * p->y_pixel_stride + channel;
  pool_walk walk = pool_walk_make(&window, (pool_pads){p->pad_bottom, p->pad_right}, p->x_pixel_stride, line);
  for (int64_t out_x = 0; out_x < p->out_width; out_x++) {
    pool_walk_to(&walk, out_x);
    const pool_pixel pixel = {.x = x + walk.at,
                              .y = y + out_x * p->y_pixel_stride,
                              .walk = &walk,
                              .divisor = (float)(with_pads ? walk.counted : walk.lines * walk.columns)};
    if (p->mode == TC_POOL_MAX) {
      pool_strip(true, &pixel, channels);
    } else {
      pool_strip(false, &pixel, channels);
    }
  }
}

static void TC_NAME(tc_pool2d_f32)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_pool2d_f32_params *p = call->params;
  if (pool_is_planar(p)) {
    const tc_window window = TC_WINDOW(p);
    const pool_pads pads = {p->pad_bottom, p->pad_right};
    if (p->mode == TC_POOL_MAX) {
      pool_planar_lines(true, call, &window, pads, begin, end);
    } else {
      pool_planar_lines(false, call, &window, pads, begin, end);
    }
    return;
  }
  const int64_t strips = tc_ceil_div(p->channels, POOL_STRIP);
  for (int64_t unit = begin; unit < end; unit++) {
    const int64_t channel = unit % strips * POOL_STRIP;
    pool_line(call, unit / strips, channel, tc_min(p->channels - channel, POOL_STRIP));
  }
}

#endif
