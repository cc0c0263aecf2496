/* conv2d_bf16_f32: convolution as a product of windows and packed weights, both rounded to bfloat16. The windows of a
 * block of pixels are copied as they are rounded. State: the padded bias, the packed panels, then zeros for positions
 * outside the image. */
#ifndef TINYCOMP_KERNELS_CONV_CONV2D_BF16_F32_H
#define TINYCOMP_KERNELS_CONV_CONV2D_BF16_F32_H

#include "vocabulary.h"

#include "../common/activation.h"
#include "../gemm/rounded_bf16.h"
#include "conv2d_f32.h"

/* The product, and how its left factor is found: as conv2d_f32 does, in blocks of the rows of the product. */
typedef struct conv_bf16_plan {
  bf16_plan product;
  conv_plan source;
} conv_bf16_plan;

static conv_bf16_plan conv_bf16_plan_make(const tc_conv2d_bf16_f32_params *p, int64_t l2_bytes) {
  conv_bf16_plan plan = {.source = conv_plan_make(p, l2_bytes)};
  plan.product = bf16_plan_make(plan.source.grid.rows, p->out_channels, plan.source.taps, plan.source.depth,
                                p->block_rows, l2_bytes);
  plan.source.grid = plan.product.grid;
  return plan;
}

/* Scratch for what conv2d_f32 needs to find a block's input. */
static int64_t conv_bf16_source_bytes(const conv_plan *source) {
  const int64_t copied = source->lines ? source->depth * (int64_t)sizeof(float) : 0;
  const int64_t found = source->grid.block_rows * source->taps * ((int64_t)sizeof(float *) + copied);
  return tc_round_up(found + TC_LANES * (int64_t)sizeof(float), BF16_LINE * (int64_t)sizeof(float));
}

static void TC_NAME(tc_conv2d_bf16_f32_prepare)(tc_prepare *prepare) {
  const tc_conv2d_bf16_f32_params *p = prepare->params;
  TC_REQUIRE(prepare, p->algorithm >= TC_CONV_AUTO && p->algorithm <= TC_CONV_LINES, "there is no algorithm %lld here",
             (long long)p->algorithm);
  TC_REQUIRE(prepare, p->groups == 1, "there are %lld groups, not one", (long long)p->groups);
  TC_PRODUCT(prepare, tc_plus(p->channels, 1), tc_plus(p->out_channels, 1)); /* bounds each of them */
  if (!tc_refused(prepare)) {
    conv_check(prepare);
  }
  if (tc_refused(prepare)) {
    return;
  }
  const conv_bf16_plan plan = conv_bf16_plan_make(p, prepare->l2_bytes);
  const int64_t zeros = tc_round_up(tc_max(plan.source.depth, p->channels), TC_LANES);
  const int64_t words = TC_PRODUCT(prepare, plan.product.words + 1, tc_round_up(p->out_channels, TC_LANES));
  prepare->units = TC_PRODUCT(prepare, plan.product.grid.row_blocks, plan.product.grid.panels);
  prepare->cost =
      2.0 * (double)plan.product.grid.rows * (double)(plan.source.taps * plan.source.depth) * (double)p->out_channels;
  tc_state_of(prepare, TC_PRODUCT(prepare, words + zeros, sizeof(float)), sizeof(float));
  TC_SHARE(prepare, p->channels, p->out_channels, p->kernel_height, p->kernel_width, plan.source.taps);
  TC_PRODUCT(prepare, plan.source.grid.block_rows, plan.source.taps, plan.source.depth + 1, sizeof(double));
  if (tc_refused(prepare)) {
    return;
  }
  prepare->scratch_bytes = conv_bf16_source_bytes(&plan.source) + bf16_scratch_bytes(prepare, &plan.product);
}

static void TC_NAME(tc_conv2d_bf16_f32_pack)(const tc_prepare *prepare, void *state) {
  const tc_conv2d_bf16_f32_params *p = prepare->params;
  const conv_bf16_plan plan = conv_bf16_plan_make(p, prepare->l2_bytes);
  float *bias = state;
  if (prepare->constants[CONV_BIAS] && p->out_channels) {
    memcpy(bias, prepare->constants[CONV_BIAS], (size_t)p->out_channels * sizeof(float));
  }
  const int64_t positions = p->kernel_height * p->kernel_width;
  const bf16_matrix b = {.floats = {.data = prepare->constants[CONV_W],
                                    .taps = positions,
                                    .depth = p->channels,
                                    .columns = p->out_channels,
                                    .tap_stride = 1,
                                    .depth_stride = positions,
                                    .column_stride = p->channels * positions}};
  bf16_pack_panels(&plan.product, &b, bias + tc_round_up(p->out_channels, TC_LANES));
}

/* Rounds the windows of a block of pixels. */
static void conv_bf16_round(const tc_call *call, const conv_bf16_plan *plan, const tc_place *place, const float *zeros,
                            float *words) {
  const tc_conv2d_bf16_f32_params *p = call->params;
  if (conv_is_pointwise(&plan->source.window)) {
    const float *x = (const float *)call->operands[CONV_X] + place->row * p->x_pixel_stride;
    bf16_round_rows(&plan->product, x, p->x_pixel_stride, place->row_count, words);
    return;
  }
  conv_prepare_rows(call, &plan->source, place, zeros);
  bf16_round_taps(&plan->product, call->scratch, plan->source.grid.block_rows, place->row_count, words);
}

static void TC_NAME(tc_conv2d_bf16_f32)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_conv2d_bf16_f32_params *p = call->params;
  const conv_bf16_plan plan = conv_bf16_plan_make(p, call->l2_bytes);
  const int64_t words = plan.product.words;
  const float *bias = call->state, *panels = bias + tc_round_up(p->out_channels, TC_LANES);
  const float *zeros = panels + words * tc_round_up(p->out_channels, TC_LANES);
  const float *residual = call->operands[CONV_RESIDUAL];
  const bf16_rows rounded = bf16_rows_at(&plan.product, (char *)call->scratch + conv_bf16_source_bytes(&plan.source));
  tc_block_f32 block = {.rows = rounded.rows,
                        .taps = 1,
                        .depth = words,
                        .residual_stride = p->residual_pixel_stride,
                        .c_stride = p->y_pixel_stride,
                        .epilogue = tc_epilogue(p->activation, p->activation_a, p->activation_b)};
  int64_t row = -1; /* what the rounded rows belong to */
  for (int64_t unit = begin; unit < end; unit++) {
    const tc_place place = tc_grid_place(&plan.product.grid, unit);
    if (row != place.row) {
      row = place.row;
      conv_bf16_round(call, &plan, &place, zeros, rounded.words);
    }
    block.row_count = place.row_count;
    block.columns = place.column_count;
    block.panel = panels + place.column * words;
    block.bias = bias + place.column;
    block.residual = residual ? residual + place.row * p->residual_pixel_stride + place.column : NULL;
    block.c = (float *)call->operands[CONV_Y] + place.row * p->y_pixel_stride + place.column;
    bf16_run(&plan.product, &block);
  }
}

#endif
