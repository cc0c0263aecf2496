/* qmaxpool2d: the maximum of 8-bit numbers over NHWC windows. A unit is one line of output pixels and a strip of
 * channels. The loops over channels are plain C, which the compiler turns into vectors of bytes. */
#ifndef TINYCOMP_KERNELS_QUANT8_QMAXPOOL2D_H
#define TINYCOMP_KERNELS_QUANT8_QMAXPOOL2D_H

#include "vocabulary.h"

#include "../pool/walk.h"
#include "../pool/pool2d_f32.h"

enum { QMAXPOOL_STRIP = 64 };

static void TC_NAME(tc_qmaxpool2d_prepare)(tc_prepare *prepare) {
  const tc_qmaxpool2d_params *p = prepare->params;
  const tc_window window = TC_WINDOW(p);
  tc_check_window(prepare, &window);
  TC_REQUIRE(prepare, p->x_pixel_stride >= p->channels && p->y_pixel_stride >= p->channels,
             "a pixel stride is smaller than the number of channels");
  tc_touch_image(prepare, POOL_Y, p->batch, p->out_height, p->out_width, p->y_pixel_stride, p->channels, 1);
  tc_touch_image(prepare, POOL_X, p->batch, p->height, p->width, p->x_pixel_stride, p->channels, 1);
  prepare->work.integer_operations =
      TC_COUNT(p->batch, p->out_height, p->out_width, p->channels, p->kernel_height, p->kernel_width);
  const int64_t strips = TC_PRODUCT(prepare, p->channels) ? tc_ceil_div(p->channels, QMAXPOOL_STRIP) : 0;
  prepare->units = TC_PRODUCT(prepare, p->batch, p->out_height, strips);
  prepare->cost = 0.25 * (double)p->kernel_height * (double)p->kernel_width * (double)p->out_width *
                  (double)prepare->units * QMAXPOOL_STRIP;
}

TC_INLINE void qmaxpool_pixel(const int64_t channels, const pool_walk *walk, const uint8_t *first, uint8_t *y) {
  uint8_t most[QMAXPOOL_STRIP] = {0};
  for (int64_t i = 0; i < walk->lines; i++) {
    const uint8_t *x = first + i * walk->line_step;
    for (int64_t j = 0; j < walk->columns; j++, x += walk->column_step) {
      for (int64_t c = 0; c < channels; c++) {
        most[c] = x[c] > most[c] ? x[c] : most[c];
      }
    }
  }
  memcpy(y, most, (size_t)channels);
}

static void qmaxpool_line(const tc_call *call, int64_t line, int64_t channel, int64_t channels) {
  const tc_qmaxpool2d_params *p = call->params;
  const tc_window window = TC_WINDOW(p);
  const uint8_t *x = (const uint8_t *)call->operands[POOL_X] + channel;
  uint8_t *y = (uint8_t *)call->operands[POOL_Y] + line * p->out_width * p->y_pixel_stride + channel;
  pool_walk walk = pool_walk_make(&window, (pool_pads){0, 0}, p->x_pixel_stride, line);
  for (int64_t out_x = 0; out_x < p->out_width; out_x++, y += p->y_pixel_stride) {
    pool_walk_to(&walk, out_x);
    if (channels == QMAXPOOL_STRIP) {
      qmaxpool_pixel(QMAXPOOL_STRIP, &walk, x + walk.at, y);
    } else {
      qmaxpool_pixel(channels, &walk, x + walk.at, y);
    }
  }
}

static void TC_NAME(tc_qmaxpool2d)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_qmaxpool2d_params *p = call->params;
  const int64_t strips = tc_ceil_div(p->channels, QMAXPOOL_STRIP);
  for (int64_t unit = begin; unit < end; unit++) {
    const int64_t channel = unit % strips * QMAXPOOL_STRIP;
    qmaxpool_line(call, unit / strips, channel, tc_min(p->channels - channel, QMAXPOOL_STRIP));
  }
}

#endif
