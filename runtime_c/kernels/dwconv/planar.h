/* Depthwise convolution of planar images, x[batch, channels, height, width], with windows a column apart: vectors of
 * columns. A unit is a band of lines of one plane, whose input is copied to scratch with its padding, so that windows
 * need no bounds. */
#ifndef TINYCOMP_KERNELS_DWCONV_PLANAR_H
#define TINYCOMP_KERNELS_DWCONV_PLANAR_H

#include "vocabulary.h"

#include "../common/activation.h"
#include "../common/partial.h"

enum { DW_Y, DW_X, DW_W, DW_BIAS, DW_RESIDUAL };

enum { DW_PLANAR_FLOATS = 4096, DW_PLANAR_VECTORS = 4 }; /* of a band's lines, as a rule; of a tile */

typedef struct dw_planar_plan {
  int64_t line;  /* floats of a line in scratch: its padding, and a vector behind it */
  int64_t lines; /* of the result in a band */
  int64_t rows;  /* that these read */
  int64_t bands; /* of a plane */
} dw_planar_plan;

static dw_planar_plan dw_planar_plan_of(const tc_window *w) {
  const int64_t span = w->out_width + (w->kernel_width - 1) * w->dilation_width;
  dw_planar_plan plan = {.line = tc_round_up(span + TC_LANES, TC_LANES)};
  plan.lines = tc_max(tc_min(w->out_height, DW_PLANAR_FLOATS / plan.line), 1);
  plan.rows = (plan.lines - 1) * w->stride_height + (w->kernel_height - 1) * w->dilation_height + 1;
  plan.bands = tc_ceil_div(w->out_height, plan.lines);
  return plan;
}

static void dw_planar_copy(float *to, const float *from, int64_t count) {
  for (int64_t i = 0; i < count; i += TC_LANES) {
    tc_store_up_to(to + i, tc_load_up_to(from + i, count - i), count - i);
  }
}

static void dw_planar_clear(float *to, int64_t count) {
  for (int64_t i = 0; i < count; i += TC_LANES) {
    tc_store_up_to(to + i, tc_vf_set1(0.0f), count - i);
  }
}

/* Copies the rows that a band sees; `top` is the first one, which may lie in the padding, as may the others. */
static void dw_planar_rows(float *to, const float *plane, const tc_window *w, const dw_planar_plan *plan, int64_t top) {
  const int64_t left = tc_min(w->pad_left, plan->line), count = tc_min(w->width, plan->line - left);
  for (int64_t row = top; row < top + plan->rows; row++, to += plan->line) {
    if (row < 0 || row >= w->height) {
      dw_planar_clear(to, plan->line);
    } else {
      dw_planar_clear(to, left);
      dw_planar_copy(to + left, plane + row * w->width, count);
      dw_planar_clear(to + left + count, plan->line - left - count);
    }
  }
}

/* One plane's filter and what follows the sums. */
typedef struct dw_planar_filter {
  const float *weights; /* those of neighbouring positions are TC_LANES apart */
  float bias, low, high;
} dw_planar_filter;

/* `vectors` vectors of neighbouring results, the last of which has `lanes` lanes; x: the first of the window of the
 * first one. */
TC_INLINE void dw_planar_tile(const int vectors, float *y, const float *residual, const float *x, const tc_window *w,
                              const dw_planar_filter *filter, int64_t line, int64_t lanes) {
  tc_vf sum[DW_PLANAR_VECTORS];
#pragma GCC unroll 4
  for (int v = 0; v < vectors; v++) {
    sum[v] = tc_vf_set1(filter->bias);
  }
  const float *weight = filter->weights;
  for (int64_t i = 0; i < w->kernel_height; i++, x += w->dilation_height * line) {
    const float *from = x;
    for (int64_t j = 0; j < w->kernel_width; j++, from += w->dilation_width, weight += TC_LANES) {
      const tc_vf factor = tc_vf_set1(*weight);
#pragma GCC unroll 4
      for (int v = 0; v < vectors; v++) {
        sum[v] = tc_vf_fma(tc_vf_load(from + v * TC_LANES), factor, sum[v]);
      }
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < vectors; v++) {
    const int64_t count = v < vectors - 1 ? TC_LANES : lanes;
    if (residual) {
      sum[v] = tc_vf_add(sum[v], tc_load_up_to(residual + v * TC_LANES, count));
    }
    const tc_vf clamped = tc_vf_min(tc_vf_set1(filter->high), tc_vf_max(tc_vf_set1(filter->low), sum[v]));
    tc_store_up_to(y + v * TC_LANES, clamped, count);
  }
}

static void dw_planar_line(float *y, const float *residual, const float *x, const tc_window *w,
                           const dw_planar_filter *filter, int64_t line) {
  for (int64_t c = 0; c < w->out_width; c += DW_PLANAR_VECTORS * TC_LANES) {
    const int64_t rest = tc_min(w->out_width - c, DW_PLANAR_VECTORS * TC_LANES);
    const int64_t vectors = tc_ceil_div(rest, TC_LANES), lanes = rest - (vectors - 1) * TC_LANES;
    const float *own = residual ? residual + c : NULL;
    if (vectors == 4) {
      dw_planar_tile(4, y + c, own, x + c, w, filter, line, lanes);
    } else if (vectors == 3) {
      dw_planar_tile(3, y + c, own, x + c, w, filter, line, lanes);
    } else if (vectors == 2) {
      dw_planar_tile(2, y + c, own, x + c, w, filter, line, lanes);
    } else {
      dw_planar_tile(1, y + c, own, x + c, w, filter, line, lanes);
    }
  }
}

/* Bands [begin, end) of all planes. */
static void dw_planar(const tc_call *call, int64_t begin, int64_t end) {
  const tc_dwconv2d_f32_params *p = call->params;
  const tc_window w = TC_WINDOW(p);
  const dw_planar_plan plan = dw_planar_plan_of(&w);
  const tc_epilogue_f32 epilogue = tc_epilogue(p->activation, p->activation_a, p->activation_b);
  const float *bias = call->state, *residual = call->operands[DW_RESIDUAL];
  const float *packed = bias + tc_round_up(p->channels, TC_LANES);
  const int64_t taps = p->kernel_height * p->kernel_width, result = p->out_height * p->out_width;
  for (int64_t unit = begin; unit < end; unit++) {
    const int64_t plane = unit / plan.bands, first = unit % plan.bands * plan.lines, channel = plane % p->channels;
    const int64_t lines = tc_min(p->out_height - first, plan.lines), at = plane * result + first * p->out_width;
    const dw_planar_filter filter = {packed + channel / TC_LANES * taps * TC_LANES + channel % TC_LANES, bias[channel],
                                     epilogue.low, epilogue.high};
    dw_planar_rows(call->scratch, (const float *)call->operands[DW_X] + plane * p->height * p->width, &w, &plan,
                   first * p->stride_height - p->pad_top);
    float *y = (float *)call->operands[DW_Y] + at;
    for (int64_t i = 0; i < lines; i++) {
      dw_planar_line(y + i * p->out_width, residual ? residual + at + i * p->out_width : NULL,
                     (const float *)call->scratch + i * p->stride_height * plan.line, &w, &filter, plan.line);
    }
    tc_activate_rows(&epilogue, y, lines * p->out_width, 1, lines * p->out_width);
  }
}

#endif
