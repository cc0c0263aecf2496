/* Pooling of images whose pixels have one channel, as every plane of a row-major tensor is one: vectors of columns.
 *
 * A line of the result is made in two steps: the lines of its windows become one line, with room for the padding on
 * both sides, and then the columns of each window one number. Steps of more than one column are picked at the end. */
#ifndef TINYCOMP_KERNELS_POOL_PLANAR_H
#define TINYCOMP_KERNELS_POOL_PLANAR_H

#include "vocabulary.h"

#include "../common/log.h"
#include "../common/partial.h"
#include "walk.h"

enum { POOL_Y, POOL_X };

/* How many columns the windows of a line span, padding included. */
static int64_t pool_planar_span(const tc_window *w) {
  const int64_t last = tc_max(w->out_width - 1, 0) * w->stride_width;
  return tc_max(last + (w->kernel_width - 1) * w->dilation_width + 1, w->pad_left + w->width);
}

/* Whether images have one channel, and windows do not span so much padding that lines of it would not pay. */
static bool pool_is_planar(const tc_pool2d_f32_params *p) {
  const tc_window window = TC_WINDOW(p);
  return p->channels == 1 && p->x_pixel_stride == 1 && p->y_pixel_stride == 1 &&
         pool_planar_span(&window) / 4 <= p->width + TC_LANES;
}

/* Floats of scratch: two lines, to whose ends whole vectors are written, and a divisor for each column. */
static int64_t pool_planar_floats(const tc_window *w) {
  return 2 * tc_round_up(pool_planar_span(w) + TC_LANES, TC_LANES) + tc_round_up(w->out_width, TC_LANES);
}

TC_INLINE tc_vf pool_join(const bool maximum, tc_vf a, tc_vf b) {
  return maximum ? tc_vf_maximum(a, b) : tc_vf_add(a, b);
}

TC_INLINE void pool_planar_terms(const bool maximum, const int64_t terms, float *to, const float *from, int64_t step,
                                 int64_t count) {
  for (int64_t i = 0; i < count; i += TC_LANES) {
    tc_vf sum = tc_load_up_to(from + i, count - i);
#pragma GCC unroll 3
    for (int64_t t = 1; t < terms; t++) {
      sum = pool_join(maximum, sum, tc_load_up_to(from + t * step + i, count - i));
    }
    tc_store_up_to(to + i, sum, count - i);
  }
}

/* to[i] = the join of `terms` rows that begin at `from` and are `step` apart, for i < count. */
TC_INLINE void pool_planar_join(const bool maximum, float *to, const float *from, int64_t terms, int64_t step,
                                int64_t count) {
  if (terms == 2) {
    pool_planar_terms(maximum, 2, to, from, step, count);
  } else if (terms == 3) {
    pool_planar_terms(maximum, 3, to, from, step, count);
  } else {
    pool_planar_terms(maximum, terms, to, from, step, count);
  }
}

static void pool_planar_fill(float *to, float value, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    to[i] = value;
  }
}

static void pool_planar_pick(float *to, const float *from, int64_t step, int64_t count) {
  if (step == 2) { /* which compilers turn into shuffles of vectors */
    for (int64_t i = 0; i < count; i++) {
      to[i] = from[2 * i];
    }
    return;
  }
  for (int64_t i = 0; i < count; i++) {
    to[i] = from[i * step];
  }
}

/* Lines [begin, end) of the results of all images. */
TC_INLINE void pool_planar_lines(const bool maximum, const tc_call *call, const tc_window *w, pool_pads pads,
                                 int64_t begin, int64_t end) {
  const float *x = call->operands[POOL_X];
  const bool with_pads = ((const tc_pool2d_f32_params *)call->params)->mode == TC_POOL_AVERAGE_WITH_PADS;
  const float nothing = maximum ? -INFINITY : 0.0f;
  const int64_t span = pool_planar_span(w), room = tc_round_up(span + TC_LANES, TC_LANES);
  const int64_t all = tc_max(w->out_width - 1, 0) * w->stride_width + 1; /* results at steps of one column */
  const bool down = w->kernel_width == 1 && w->stride_width == 1 && w->pad_left == 0 && w->out_width == w->width;
  float *line = call->scratch, *across = line + room, *counts = across + room;
  pool_planar_fill(line, nothing, room);
  for (int64_t i = 0; !maximum && i < w->out_width; i++) {
    const int64_t left = i * w->stride_width - w->pad_left;
    const pool_range range = pool_clip(left, w->dilation_width, w->kernel_width, w->width, w->width + pads.right);
    counts[i] = (float)(with_pads ? range.counted : range.last - range.first);
  }
  for (int64_t unit = begin; unit < end; unit++) {
    const int64_t top = unit % w->out_height * w->stride_height - w->pad_top, image = unit / w->out_height;
    const pool_range rows = pool_clip(top, w->dilation_height, w->kernel_height, w->height, w->height + pads.bottom);
    const int64_t terms = rows.last - rows.first;
    float *y = (float *)call->operands[POOL_Y] + unit * w->out_width;
    if (terms > 0) {
      float *joined = down ? y : line + w->pad_left;
      const float *from = x + (image * w->height + top + rows.first * w->dilation_height) * w->width;
      pool_planar_join(maximum, joined, from, terms, w->dilation_height * w->width, w->width);
    } else {
      pool_planar_fill(line, nothing, room);
    }
    if (w->stride_width > 1) {
      pool_planar_join(maximum, across, line, w->kernel_width, w->dilation_width, all);
      pool_planar_pick(y, across, w->stride_width, w->out_width);
    } else if (!down || terms == 0) {
      pool_planar_join(maximum, y, line, w->kernel_width, w->dilation_width, all);
    }
    for (int64_t i = 0; !maximum && i < w->out_width; i += TC_LANES) {
      const int64_t rest = w->out_width - i;
      const tc_vf lines = tc_vf_set1((float)(with_pads ? rows.counted : terms));
      tc_store_up_to(y + i, tc_vf_div(tc_load_up_to(y + i, rest), tc_vf_mul(lines, tc_vf_load(counts + i))), rest);
    }
  }
}

#endif
