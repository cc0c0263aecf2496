/* conv_transpose2d_f32: transposed convolution by gathering, so that every output is written once and by one thread.
 *
 * Output positions that are equal modulo the stride see the same kernel positions, and each of these falls on one input
 * pixel: such a phase is a convolution of its own, with the micro-kernel of gemm/tile_f32.h. A unit is one output line
 * of one group. State: per group the padded bias, then per group and phase the packed panels, then zeros for positions
 * outside the image. Scratch: row pointers. */
#ifndef TINYCOMP_KERNELS_CONV_TRANSPOSE_CONV_TRANSPOSE2D_F32_H
#define TINYCOMP_KERNELS_CONV_TRANSPOSE_CONV_TRANSPOSE2D_F32_H

#include "vocabulary.h"

#include "../common/activation.h"
#include "../gemm/tile_f32.h"
#include "../gemm/pack_f32.h"
#include "../gemm/block_f32.h"

enum { DECONV_Y, DECONV_X, DECONV_W, DECONV_BIAS };

enum { DECONV_PIXELS = 48 };

/* One dimension: output = input * stride + tap * dilation - pad. */
typedef struct deconv_axis {
  int64_t size, out_size, kernel, stride, dilation, pad;
} deconv_axis;

typedef struct deconv_plan {
  deconv_axis lines, columns;
  int64_t depth, width;              /* input and output channels per group */
  int64_t bias_floats, panel_floats; /* per group */
} deconv_plan;

static deconv_plan deconv_plan_make(const tc_conv_transpose2d_f32_params *p) {
  deconv_plan plan = {
      .lines = {p->height, p->out_height, p->kernel_height, p->stride_height, p->dilation_height, p->pad_top},
      .columns = {p->width, p->out_width, p->kernel_width, p->stride_width, p->dilation_width, p->pad_left},
      .depth = p->channels / p->groups,
      .width = p->out_channels / p->groups};
  plan.bias_floats = tc_round_up(plan.width, TC_LANES);
  plan.panel_floats = p->kernel_height * p->kernel_width * tc_packed_floats(plan.depth, plan.width);
  return plan;
}

/* How many taps belong to phases before this one, and how many to this one. */
static void deconv_count(const deconv_axis *axis, int64_t phase, int64_t *before, int64_t *own) {
  *before = *own = 0;
  for (int64_t tap = 0; tap < axis->kernel; tap++) {
    const int64_t at = tap * axis->dilation % axis->stride;
    *before += at < phase;
    *own += at == phase;
  }
}

/* Where the panels of a phase begin, in kernel positions, and how many positions it has. */
static int64_t deconv_phase(const deconv_plan *plan, int64_t line_phase, int64_t column_phase, int64_t *taps) {
  int64_t lines_before, lines, columns_before, columns;
  deconv_count(&plan->lines, line_phase, &lines_before, &lines);
  deconv_count(&plan->columns, column_phase, &columns_before, &columns);
  *taps = lines * columns;
  return lines_before * plan->columns.kernel + lines * columns_before;
}

static void deconv_check(tc_prepare *prepare) {
  const tc_conv_transpose2d_f32_params *p = prepare->params;
  const tc_window window = TC_WINDOW(p);
  tc_check_window(prepare, &window);
  tc_check_activation(prepare, p->activation, p->activation_a, p->activation_b);
  TC_REQUIRE(prepare, p->groups > 0 && p->channels % p->groups == 0 && p->out_channels % p->groups == 0,
             "%lld groups do not divide %lld input and %lld output channels", (long long)p->groups,
             (long long)p->channels, (long long)p->out_channels);
  TC_REQUIRE(prepare, p->x_pixel_stride >= p->channels && p->y_pixel_stride >= p->out_channels,
             "a pixel stride is smaller than the number of channels");
  tc_touch_image(prepare, DECONV_Y, p->batch, p->out_height, p->out_width, p->y_pixel_stride, p->out_channels,
                 sizeof(float));
  tc_touch_image(prepare, DECONV_X, p->batch, p->height, p->width, p->x_pixel_stride, p->channels, sizeof(float));
  const int64_t per_group = p->out_channels / p->groups;
  tc_touch(prepare, DECONV_W, TC_PRODUCT(prepare, p->channels, per_group, p->kernel_height, p->kernel_width),
           sizeof(float));
  tc_touch(prepare, DECONV_BIAS, p->out_channels, sizeof(float));
  /* The padded sizes of everything that deconv_plan_make multiplies. */
  TC_PRODUCT(prepare, p->out_channels + p->groups * TC_LANES, p->channels / p->groups + 1, p->kernel_height,
             p->kernel_width, sizeof(float));
}

static void TC_NAME(tc_conv_transpose2d_f32_prepare)(tc_prepare *prepare) {
  const tc_conv_transpose2d_f32_params *p = prepare->params;
  TC_PRODUCT(prepare, p->groups, tc_plus(p->channels, 1), tc_plus(p->out_channels, 1)); /* bounds each of them */
  if (!tc_refused(prepare)) {
    deconv_check(prepare);
  }
  if (tc_refused(prepare)) {
    return;
  }
  const deconv_plan plan = deconv_plan_make(p);
  const int64_t taps = p->kernel_height * p->kernel_width;
  const int64_t floats = p->groups * (plan.bias_floats + plan.panel_floats) + tc_round_up(plan.depth, TC_LANES);
  prepare->units = TC_PRODUCT(prepare, p->batch, p->out_height, p->groups);
  prepare->cost = prepare->work.flops =
      2.0 * (double)(p->batch * p->height * p->width) * (double)p->channels * (double)plan.width * (double)taps;
  tc_state_of(prepare, TC_PRODUCT(prepare, floats, sizeof(float)), sizeof(float));
  TC_SHARE(prepare, p->groups, p->channels, p->out_channels, p->kernel_height, p->kernel_width, p->stride_height,
           p->stride_width, p->dilation_height, p->dilation_width);
  prepare->scratch_bytes = TC_PRODUCT(prepare, taps, DECONV_PIXELS, sizeof(float *));
}

/* Packs the panels of one phase of one group. */
static void deconv_pack_phase(const deconv_plan *plan, const float *weights, int64_t line_phase, int64_t column_phase,
                              float *out) {
  const int64_t kernel = plan->lines.kernel * plan->columns.kernel;
  const tc_matrix_f32 b = {.depth = plan->depth, .depth_stride = plan->width * kernel, .column_stride = kernel};
  for (int64_t column = 0; column < plan->width; column += TC_PANEL) {
    const int64_t columns = tc_min(plan->width - column, TC_PANEL);
    for (int64_t tap = 0; tap < kernel; tap++) {
      const int64_t i = tap / plan->columns.kernel, j = tap % plan->columns.kernel;
      if (i * plan->lines.dilation % plan->lines.stride == line_phase &&
          j * plan->columns.dilation % plan->columns.stride == column_phase) {
        tc_pack_tap(&b, weights + column * kernel + tap, columns, 1.0f, out);
        out += plan->depth * tc_round_up(columns, TC_LANES);
      }
    }
  }
}

/* Visits the phases of the taps, of which there may be far fewer than phases; the first tap of a phase stands for it.
 */
static bool deconv_is_first(const deconv_axis *axis, int64_t tap) {
  for (int64_t earlier = 0; earlier < tap; earlier++) {
    if (earlier * axis->dilation % axis->stride == tap * axis->dilation % axis->stride) {
      return false;
    }
  }
  return true;
}

static void TC_NAME(tc_conv_transpose2d_f32_pack)(const tc_prepare *prepare, void *state) {
  const tc_conv_transpose2d_f32_params *p = prepare->params;
  const deconv_plan plan = deconv_plan_make(p);
  const float *bias = prepare->constants[DECONV_BIAS], *weights = prepare->constants[DECONV_W];
  float *panels = (float *)state + p->groups * plan.bias_floats;
  const int64_t kernel = p->kernel_height * p->kernel_width, tap_floats = tc_packed_floats(plan.depth, plan.width);
  for (int64_t g = 0; g < p->groups; g++) {
    if (bias && plan.width) {
      memcpy((float *)state + g * plan.bias_floats, bias + g * plan.width, (size_t)plan.width * sizeof(float));
    }
    for (int64_t tap = 0; tap < kernel; tap++) {
      const int64_t i = tap / p->kernel_width, j = tap % p->kernel_width;
      if (deconv_is_first(&plan.lines, i) && deconv_is_first(&plan.columns, j)) {
        const int64_t line_phase = i * p->dilation_height % p->stride_height;
        const int64_t column_phase = j * p->dilation_width % p->stride_width;
        int64_t taps;
        const int64_t first = deconv_phase(&plan, line_phase, column_phase, &taps);
        deconv_pack_phase(&plan, weights + g * plan.depth * plan.width * kernel, line_phase, column_phase,
                          panels + g * plan.panel_floats + first * tap_floats);
      }
    }
  }
}

/* One unit. */
typedef struct deconv_line {
  const tc_conv_transpose2d_f32_params *p;
  const deconv_plan *plan;
  const float *image, *zeros; /* the group's first channel of the first input pixel */
  const float *bias, *panels; /* of the group */
  float *y;                   /* the group's first channel of the line's first pixel */
  int64_t at, phase;          /* the line's place on the grid of the padded output, and that modulo the stride */
  const float **rows;
} deconv_line;

/* The input position that a tap falls on, or -1. `at` is an output position plus the pad; at - tap * dilation is known
 * to be a multiple of the stride. */
TC_INLINE int64_t deconv_input(const deconv_axis *axis, int64_t at, int64_t tap) {
  const int64_t distance = at - tap * axis->dilation;
  return distance < 0 || distance / axis->stride >= axis->size ? -1 : distance / axis->stride;
}

/* Points at the input of `count` pixels for every tap of the phase. */
static void deconv_point(const deconv_line *line, int64_t column_phase, int64_t first, int64_t count) {
  const deconv_axis *lines = &line->plan->lines, *columns = &line->plan->columns;
  const float **row = line->rows;
  for (int64_t i = 0; i < lines->kernel; i++) {
    if (i * lines->dilation % lines->stride != line->phase) {
      continue;
    }
    const int64_t y = deconv_input(lines, line->at, i);
    for (int64_t j = 0; j < columns->kernel; j++) {
      if (j * columns->dilation % columns->stride != column_phase) {
        continue;
      }
      for (int64_t k = 0; k < count; k++) {
        const int64_t x = y < 0 ? -1 : deconv_input(columns, first + columns->pad + k * columns->stride, j);
        row[k] = x < 0 ? line->zeros : line->image + (y * columns->size + x) * line->p->x_pixel_stride;
      }
      row += DECONV_PIXELS;
    }
  }
}

/* The pixels of one phase, the first of which is `start`. */
static void deconv_run_phase(const deconv_line *line, const tc_epilogue_f32 *epilogue, int64_t start) {
  const deconv_plan *plan = line->plan;
  const int64_t step = plan->columns.stride, phase = (start + plan->columns.pad) % step;
  int64_t taps;
  const int64_t tap_floats = tc_packed_floats(plan->depth, plan->width);
  const float *panels = line->panels + deconv_phase(plan, line->phase, phase, &taps) * tap_floats;
  for (int64_t x = start; x < plan->columns.out_size; x += DECONV_PIXELS * step) {
    const int64_t count = tc_min(tc_ceil_div(plan->columns.out_size - x, step), DECONV_PIXELS);
    deconv_point(line, phase, x, count);
    for (int64_t column = 0; column < plan->width; column += TC_PANEL) {
      const tc_block_f32 block = {.rows = line->rows,
                                  .row_stride = DECONV_PIXELS,
                                  .row_count = count,
                                  .taps = taps,
                                  .depth = plan->depth,
                                  .outside = line->zeros,
                                  .panel = panels + column * taps * plan->depth,
                                  .columns = tc_min(plan->width - column, TC_PANEL),
                                  .bias = line->bias + column,
                                  .c = line->y + x * line->p->y_pixel_stride + column,
                                  .c_stride = step * line->p->y_pixel_stride,
                                  .epilogue = *epilogue};
      tc_block_run(&block);
    }
  }
}

static void TC_NAME(tc_conv_transpose2d_f32)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_conv_transpose2d_f32_params *p = call->params;
  const deconv_plan plan = deconv_plan_make(p);
  const tc_epilogue_f32 epilogue = tc_epilogue(p->activation, p->activation_a, p->activation_b);
  const float *bias = call->state, *panels = bias + p->groups * plan.bias_floats;
  for (int64_t unit = begin; unit < end; unit++) {
    const int64_t group = unit % p->groups, out_line = unit / p->groups;
    const int64_t image = out_line / p->out_height * p->height * p->width, at = out_line % p->out_height + p->pad_top;
    const deconv_line line = {
        .p = p,
        .plan = &plan,
        .image = (const float *)call->operands[DECONV_X] + image * p->x_pixel_stride + group * plan.depth,
        .zeros = panels + p->groups * plan.panel_floats,
        .bias = bias + group * plan.bias_floats,
        .panels = panels + group * plan.panel_floats,
        .y = (float *)call->operands[DECONV_Y] + out_line * p->out_width * p->y_pixel_stride + group * plan.width,
        .at = at,
        .phase = at % p->stride_height,
        .rows = call->scratch};
    for (int64_t start = 0; start < tc_min(p->stride_width, p->out_width); start++) {
      deconv_run_phase(&line, &epilogue, start);
    }
  }
}

#endif
