/* conv2d_f32: convolution as a product of windows and packed weights. State: the padded bias of each group, then the
 * packed panels of each group, then zeros that stand for positions outside the image. */
#ifndef TINYCOMP_KERNELS_CONV_CONV2D_F32_H
#define TINYCOMP_KERNELS_CONV_CONV2D_F32_H

#include "vocabulary.h"

#include "../common/activation.h"
#include "../gemm/pack_f32.h"
#include "../gemm/block_f32.h"
#include "../gemm/grid.h"
#include "conv2d_columns.h"
#include "conv2d_rows.h"

enum { CONV_Y, CONV_X, CONV_W, CONV_BIAS, CONV_RESIDUAL };

/* Figures derived from the parameters. */
typedef struct conv_plan {
  tc_window window;
  bool lines;          /* one tap per kernel line instead of one per kernel position */
  bool patches;        /* lines are so short that the whole window is copied into one tap */
  bool by_columns;     /* vectors hold columns instead of channels */
  conv_strips strips;  /* then */
  int64_t taps, depth; /* as the micro-kernel sees them */
  int64_t columns;     /* output channels per group */
  tc_grid grid;        /* of one group, with blocks chosen for all groups together */
  int64_t bias_floats, panel_floats;
} conv_plan;

/* With fewer channels than this, whole kernel lines are faster in spite of the copies at the borders. */
enum { CONV_FEW_CHANNELS = 32 };

/* With lines shorter than this, copying them together costs less than switching pointers between them. */
enum { CONV_SHORT_LINE = 8 };

/* Whether the values of a kernel line are adjacent in memory. */
static bool conv_has_lines(const tc_conv2d_f32_params *p) {
  return p->groups == 1 && p->dilation_width == 1 && p->x_pixel_stride == p->channels && p->kernel_width > 1;
}

static conv_plan conv_plan_make(const tc_conv2d_f32_params *p, int64_t l2_bytes) {
  conv_plan plan = {.window = TC_WINDOW(p), .columns = p->out_channels / p->groups};
  plan.lines = conv_has_lines(p) &&
               (p->algorithm == TC_CONV_LINES || (p->algorithm == TC_CONV_AUTO && p->channels < CONV_FEW_CHANNELS));
  plan.taps = plan.lines ? p->kernel_height : p->kernel_height * p->kernel_width;
  plan.depth = plan.lines ? p->kernel_width * p->channels : p->channels / p->groups;
  plan.patches = plan.lines && plan.taps > 1 && plan.depth < CONV_SHORT_LINE;
  if (plan.patches) {
    plan.depth *= plan.taps;
    plan.taps = 1;
  }
  const int64_t pixels = p->batch * p->out_height * p->out_width;
  plan.grid = tc_grid_make(pixels, plan.columns, p->batch * p->height * p->width * p->channels,
                           plan.taps * plan.depth * p->out_channels,
                           (tc_grid_wish){p->block_rows, p->panel_order, l2_bytes, p->groups});
  plan.by_columns = p->groups == 1 && (p->algorithm == TC_CONV_AUTO || p->algorithm == TC_CONV_COLUMNS) &&
                    conv_fits_strips(&plan.window, p->channels, p->out_channels);
  if (plan.by_columns) {
    plan.strips = conv_strips_of(&plan.window, p->channels, p->out_channels);
  }
  plan.bias_floats = tc_round_up(plan.columns, TC_LANES);
  plan.panel_floats = tc_packed_floats(plan.taps * plan.depth, plan.columns);
  return plan;
}

static void conv_check(tc_prepare *prepare) {
  const tc_conv2d_f32_params *p = prepare->params;
  const tc_window window = TC_WINDOW(p);
  tc_check_window(prepare, &window);
  tc_check_activation(prepare, p->activation, p->activation_a, p->activation_b);
  TC_REQUIRE(prepare, p->groups > 0 && p->channels % p->groups == 0 && p->out_channels % p->groups == 0,
             "%lld groups do not divide %lld input and %lld output channels", (long long)p->groups,
             (long long)p->channels, (long long)p->out_channels);
  tc_check_grid(prepare, p->block_rows, p->panel_order);
  TC_REQUIRE(prepare,
             p->x_pixel_stride >= p->channels && p->y_pixel_stride >= p->out_channels &&
                 (!tc_present(prepare, CONV_RESIDUAL) || p->residual_pixel_stride >= p->out_channels),
             "a pixel stride is smaller than the number of channels");
  const int64_t weights =
      TC_PRODUCT(prepare, p->out_channels, p->channels / p->groups, p->kernel_height, p->kernel_width);
  tc_touch_image(prepare, CONV_X, p->batch, p->height, p->width, p->x_pixel_stride, p->channels, sizeof(float));
  tc_touch_image(prepare, CONV_Y, p->batch, p->out_height, p->out_width, p->y_pixel_stride, p->out_channels,
                 sizeof(float));
  tc_touch_image(prepare, CONV_RESIDUAL, p->batch, p->out_height, p->out_width, p->residual_pixel_stride,
                 p->out_channels, sizeof(float));
  tc_touch(prepare, CONV_W, weights, sizeof(float));
  tc_touch(prepare, CONV_BIAS, p->out_channels, sizeof(float));
  /* The padded sizes of everything that conv_plan_make multiplies. */
  TC_PRODUCT(prepare, p->out_channels + p->groups * TC_LANES, p->channels / p->groups + 1, p->kernel_height,
             p->kernel_width, sizeof(float));
  prepare->work.flops = 2.0 * TC_COUNT(p->batch, p->out_height, p->out_width, weights);
}

static void TC_NAME(tc_conv2d_f32_prepare)(tc_prepare *prepare) {
  const tc_conv2d_f32_params *p = prepare->params;
  TC_REQUIRE(prepare,
             (p->algorithm >= TC_CONV_AUTO && p->algorithm <= TC_CONV_LINES) || p->algorithm == TC_CONV_COLUMNS,
             "there is no algorithm %lld here", (long long)p->algorithm);
  TC_PRODUCT(prepare, p->groups, tc_plus(p->channels, 1), tc_plus(p->out_channels, 1)); /* bounds each of them */
  if (!tc_refused(prepare)) {
    conv_check(prepare);
  }
  if (tc_refused(prepare)) {
    return;
  }
  const conv_plan plan = conv_plan_make(p, prepare->l2_bytes);
  const int64_t zeros = tc_round_up(tc_max(plan.depth, p->channels), TC_LANES);
  const int64_t floats = p->groups * (plan.bias_floats + plan.panel_floats) + zeros;
  const int64_t copied = plan.lines ? plan.depth * (int64_t)sizeof(float) : 0;
  prepare->units = TC_PRODUCT(prepare, p->groups, plan.grid.row_blocks, plan.grid.panels);
  prepare->cost = 2.0 * (double)plan.grid.rows * (double)(plan.taps * plan.depth) * (double)p->out_channels;
  tc_state_of(prepare, TC_PRODUCT(prepare, floats, sizeof(float)), sizeof(float));
  TC_SHARE(prepare, p->groups, p->channels, p->out_channels, p->kernel_height, p->kernel_width);
  prepare->scratch_bytes = TC_PRODUCT(prepare, plan.grid.block_rows, plan.taps, (int64_t)sizeof(float *) + copied) +
                           TC_LANES * (int64_t)sizeof(float); /* copies end with whole vectors */
  prepare->work.algorithm = p->algorithm == TC_CONV_COLUMNS && !plan.by_columns ? TC_CONV_DIRECT : p->algorithm;
  if (plan.by_columns) {
    prepare->units = TC_PRODUCT(prepare, p->batch, plan.strips.bands, plan.strips.strips);
    prepare->scratch_bytes = TC_PRODUCT(prepare, plan.strips.rows, p->channels, plan.strips.line, sizeof(float)) +
                             TC_PRODUCT(prepare, p->out_channels, plan.strips.out_line, sizeof(float));
  }
}

static void TC_NAME(tc_conv2d_f32_pack)(const tc_prepare *prepare, void *state) {
  const tc_conv2d_f32_params *p = prepare->params;
  const conv_plan plan = conv_plan_make(p, prepare->l2_bytes);
  float *panels = (float *)state + p->groups * plan.bias_floats;
  const int64_t positions = p->kernel_height * p->kernel_width, channels = p->channels / p->groups;
  for (int64_t g = 0; g < p->groups; g++) {
    const float *weights = prepare->constants[CONV_W], *bias = prepare->constants[CONV_BIAS];
    if (bias && plan.columns) {
      memcpy((float *)state + g * plan.bias_floats, bias + g * plan.columns, (size_t)plan.columns * sizeof(float));
    }
    const tc_matrix_f32 matrix = {.data = weights + g * plan.columns * channels * positions,
                                  .taps = positions,
                                  .depth = channels,
                                  .columns = plan.columns,
                                  .tap_stride = 1,
                                  .depth_stride = positions,
                                  .column_stride = channels * positions};
    tc_pack_panels(&matrix, panels + g * plan.panel_floats);
  }
}

/* Makes the pointers in scratch point at the input of a block, in its first group. */
static void conv_prepare_rows(const tc_call *call, const conv_plan *plan, const tc_place *place, const float *zeros) {
  const tc_conv2d_f32_params *p = call->params;
  const float **rows = call->scratch;
  const conv_source source = {call->operands[CONV_X], p->x_pixel_stride, zeros};
  float *copies = (float *)(rows + plan->grid.block_rows * plan->taps);
  if (plan->patches) {
    conv_copy_patches(&plan->window, &source, place->row, place->row_count, rows, copies);
  } else if (plan->lines) {
    conv_point_lines(&plan->window, &source, place->row, place->row_count, rows, plan->grid.block_rows, copies);
  } else {
    conv_point_rows(&plan->window, &source, place->row, place->row_count, rows, plan->grid.block_rows);
  }
}

/* The block and the group of a unit. If rows come first, all groups of a block of rows share its pointers. */
static tc_place conv_place(const tc_grid *grid, int64_t groups, int64_t unit, int64_t *group) {
  if (grid->panel_outer) {
    const int64_t per_group = grid->row_blocks * grid->panels;
    *group = unit / per_group;
    return tc_grid_place(grid, unit % per_group);
  }
  *group = unit / grid->panels % groups;
  return tc_grid_place(grid, unit / (grid->panels * groups) * grid->panels + unit % grid->panels);
}

static void TC_NAME(tc_conv2d_f32)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_conv2d_f32_params *p = call->params;
  const conv_plan plan = conv_plan_make(p, call->l2_bytes);
  const int64_t depth = plan.taps * plan.depth;
  const float *bias = call->state, *panels = bias + p->groups * plan.bias_floats;
  const float *residual = call->operands[CONV_RESIDUAL];
  if (plan.by_columns) {
    const conv_strip_operands operands = {call->operands[CONV_X], panels, bias, residual, call->operands[CONV_Y]};
    conv_strips_run(call, &plan.strips, &operands, begin, end);
    return;
  }
  tc_block_f32 block = {.rows = call->scratch,
                        .row_stride = plan.grid.block_rows,
                        .taps = plan.taps,
                        .depth = plan.depth,
                        .outside = panels + p->groups * plan.panel_floats,
                        .residual_stride = p->residual_pixel_stride,
                        .c_stride = p->y_pixel_stride,
                        .epilogue = tc_epilogue(p->activation, p->activation_a, p->activation_b)};
  int64_t row = -1; /* the first row of the block that the pointers in scratch belong to */
  for (int64_t unit = begin; unit < end; unit++) {
    int64_t group;
    const tc_place place = conv_place(&plan.grid, p->groups, unit, &group);
    if (row != place.row) {
      row = place.row;
      conv_prepare_rows(call, &plan, &place, block.outside);
    }
    const int64_t channel = group * plan.columns + place.column;
    block.first_depth = group * (p->channels / p->groups);
    block.row_count = place.row_count;
    block.columns = place.column_count;
    block.panel = panels + group * plan.panel_floats + place.column * depth;
    block.bias = bias + group * plan.bias_floats + place.column;
    block.residual = residual ? residual + place.row * p->residual_pixel_stride + channel : NULL;
    block.c = (float *)call->operands[CONV_Y] + place.row * p->y_pixel_stride + channel;
    tc_grid_run(&plan.grid, &block);
  }
}

#endif
