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

/* So many lines of the result take the first step before any of them takes the second: what was only just stored
 * arrives late where it is read in other pieces. */
enum { POOL_TOGETHER = 4 };

/* Floats of a line with its padding, behind which whole vectors are read and written. */
static int64_t pool_planar_room(const tc_window *w) {
  return tc_round_up(pool_planar_span(w) + 2 * TC_LANES, TC_LANES);
}

/* Floats of scratch: the lines, one more, and a divisor for each column. */
static int64_t pool_planar_floats(const tc_window *w) {
  return (POOL_TOGETHER + 1) * pool_planar_room(w) + tc_round_up(w->out_width, TC_LANES);
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

/* The windows of a line of which every second one counts, of `terms` neighbouring columns, 2 or 3. */
TC_INLINE void pool_planar_halve(const bool maximum, const int64_t terms, float *to, const float *from, int64_t count) {
  for (int64_t i = 0; i < count; i += TC_LANES) {
    tc_vf first, second, third, fourth;
    tc_vf_load_pairs(from + 2 * i, &first, &second);
    tc_vf sum = pool_join(maximum, first, second);
    if (terms == 3) {
      tc_vf_load_pairs(from + 2 * i + 2, &third, &fourth);
      sum = pool_join(maximum, sum, third);
    }
    tc_store_up_to(to + i, sum, count - i);
  }
}

/* What all lines of a call have in common. */
typedef struct pool_planar {
  const tc_window *window;
  int64_t bottom; /* how far the padding below an image counts */
  int64_t all;    /* results of a line at steps of one column */
  int64_t room;   /* of a line with its padding */
  bool down;      /* whether windows have one column, and lines no padding */
  float nothing;
  float *across, *counts;
} pool_planar;

/* Joins the lines of the windows of one line of the result, into the result itself if they have one column; returns
 * which lines these are. */
TC_INLINE pool_range pool_planar_down(const bool maximum, const pool_planar *p, const float *x, float *y, float *line,
                                      int64_t unit) {
  const tc_window *w = p->window;
  const int64_t top = unit % w->out_height * w->stride_height - w->pad_top, image = unit / w->out_height;
  const pool_range rows = pool_clip(top, w->dilation_height, w->kernel_height, w->height, w->height + p->bottom);
  if (rows.last > rows.first) {
    const float *from = x + (image * w->height + top + rows.first * w->dilation_height) * w->width;
    pool_planar_join(maximum, p->down ? y : line + w->pad_left, from, rows.last - rows.first,
                     w->dilation_height * w->width, w->width);
  } else {
    pool_planar_fill(line, p->nothing, p->room);
  }
  return rows;
}

/* Joins the columns of the windows of one line. */
TC_INLINE void pool_planar_across(const bool maximum, const pool_planar *p, float *y, const float *line) {
  const tc_window *w = p->window;
  if (w->stride_width == 2 && w->dilation_width == 1 && w->kernel_width == 2) {
    pool_planar_halve(maximum, 2, y, line, w->out_width);
  } else if (w->stride_width == 2 && w->dilation_width == 1 && w->kernel_width == 3) {
    pool_planar_halve(maximum, 3, y, line, w->out_width);
  } else if (w->stride_width > 1) {
    pool_planar_join(maximum, p->across, line, w->kernel_width, w->dilation_width, p->all);
    pool_planar_pick(y, p->across, w->stride_width, w->out_width);
  } else {
    pool_planar_join(maximum, y, line, w->kernel_width, w->dilation_width, p->all);
  }
}

/* Lines [begin, end) of the results of all images. */
TC_INLINE void pool_planar_lines(const bool maximum, const tc_call *call, const tc_window *w, pool_pads pads,
                                 int64_t begin, int64_t end) {
  const float *x = call->operands[POOL_X];
  const bool with_pads = ((const tc_pool2d_f32_params *)call->params)->mode == TC_POOL_AVERAGE_WITH_PADS;
  const int64_t room = pool_planar_room(w);
  float *lines = call->scratch;
  const pool_planar p = {
      .window = w,
      .bottom = pads.bottom,
      .all = tc_max(w->out_width - 1, 0) * w->stride_width + 1,
      .room = room,
      .down = w->kernel_width == 1 && w->stride_width == 1 && w->pad_left == 0 && w->out_width == w->width,
      .nothing = maximum ? -INFINITY : 0.0f,
      .across = lines + POOL_TOGETHER * room,
      .counts = lines + (POOL_TOGETHER + 1) * room};
  pool_planar_fill(lines, p.nothing, POOL_TOGETHER * room);
  for (int64_t i = 0; !maximum && i < w->out_width; i++) {
    const int64_t left = i * w->stride_width - w->pad_left;
    const pool_range range = pool_clip(left, w->dilation_width, w->kernel_width, w->width, w->width + pads.right);
    p.counts[i] = (float)(with_pads ? range.counted : range.last - range.first);
  }
  for (int64_t unit = begin; unit < end; unit += POOL_TOGETHER) {
    const int64_t together = tc_min(end - unit, POOL_TOGETHER);
    float *to = (float *)call->operands[POOL_Y] + unit * w->out_width;
    pool_range rows[POOL_TOGETHER];
    for (int64_t i = 0; i < together; i++) {
      rows[i] = pool_planar_down(maximum, &p, x, to + i * w->out_width, lines + i * room, unit + i);
    }
    for (int64_t i = 0; i < together; i++) {
      float *y = to + i * w->out_width;
      const int64_t terms = rows[i].last - rows[i].first;
      if (!p.down || terms == 0) {
        pool_planar_across(maximum, &p, y, lines + i * room);
      }
      for (int64_t c = 0; !maximum && c < w->out_width; c += TC_LANES) {
        const int64_t rest = w->out_width - c;
        const tc_vf divisor = tc_vf_set1((float)(with_pads ? rows[i].counted : terms));
        const tc_vf mean = tc_vf_div(tc_load_up_to(y + c, rest), tc_vf_mul(divisor, tc_vf_load(p.counts + c)));
        tc_store_up_to(y + c, mean, rest);
      }
    }
  }
}

#endif
