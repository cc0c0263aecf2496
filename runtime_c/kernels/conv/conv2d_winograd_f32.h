/* conv2d_winograd_f32: 3x3 convolutions of stride 1 by F(2x2, 3x3) and F(4x4, 3x3), four ninths and a quarter of the
 * multiplications of the direct form.
 *
 * A unit is a block of tiles (2x2 or 4x4 output pixels each) times a group of output channels: the input patches of the
 * block are transformed, multiplied with the transformed weights as 16 or 36 small matrix products, and transformed
 * back. State: the padded bias, zeros for pixels outside the image, then per product the packed panels. Scratch: row
 * pointers, transformed patches [product][tile][channel], products [product][tile][column]. */
#ifndef TINYCOMP_KERNELS_CONV_CONV2D_WINOGRAD_F32_H
#define TINYCOMP_KERNELS_CONV_CONV2D_WINOGRAD_F32_H

#include "vocabulary.h"

#include "../common/activation.h"
#include "../gemm/tile_f32.h"
#include "../gemm/pack_f32.h"
#include "../gemm/block_f32.h"
#include "conv2d_rows.h"
#include "conv2d_f32.h"
#include "winograd_tile.h"

enum { WINO_GROUP = 128 }; /* output channels of a unit where there are few blocks */

typedef struct wino_plan {
  int out, products;               /* output pixels a side of a tile, and how many products it takes */
  int64_t tile_rows, tile_columns; /* of one image */
  int64_t tiles, block_tiles, blocks;
  int64_t group, groups; /* output channels of a unit, and how many such groups there are */
  int64_t padded_in, padded_group, padded_out;
  int64_t in_stride, out_stride; /* from one product to the next, in scratch */
  int64_t panel_floats;          /* of one product */
} wino_plan;

/* From one product to the next: a stride that is a multiple of 4 KB would map all of them to the same cache sets. */
static int64_t wino_stride(int64_t floats) { return floats + 16 + (floats % 1024 == 0 ? 48 : 0); }

/* As many tiles as the second-level cache holds transformed patches of, beside some of everything else; but not so few
 * that reading the weights, once per block, takes longer than multiplying with them. */
static int64_t wino_tiles_that_fit(const wino_plan *plan, int64_t l2_bytes) {
  const int64_t patch_bytes = plan->products * plan->padded_in * (int64_t)sizeof(float);
  return tc_max(tc_min(l2_bytes * 7 / 8 / patch_bytes, 48), 24);
}

/* How the output channels are cut into groups: whole panels, and all of them where blocks enough keep threads busy. */
static int64_t wino_group(const tc_conv2d_winograd_f32_params *p, int64_t blocks) {
  const int64_t all = tc_round_up(tc_max(p->out_channels, 1), TC_PANEL);
  const int64_t own = blocks < 8 ? WINO_GROUP : all;
  return tc_min(p->group_channels ? tc_round_up(p->group_channels, TC_PANEL) : own, all);
}

static wino_plan wino_plan_make(const tc_conv2d_winograd_f32_params *p, int64_t l2_bytes) {
  wino_plan plan = {.out = p->algorithm == TC_CONV_WINOGRAD_2 ? 2 : WINO_OUT};
  plan.products = (plan.out + 2) * (plan.out + 2);
  plan.tile_rows = tc_ceil_div(p->out_height, plan.out);
  plan.tile_columns = tc_ceil_div(p->out_width, plan.out);
  plan.padded_in = tc_round_up(tc_max(p->channels, 1), TC_LANES);
  plan.padded_out = tc_round_up(p->out_channels, TC_LANES);
  plan.tiles = p->batch * plan.tile_rows * plan.tile_columns;
  const int64_t most = p->block_rows ? p->block_rows : wino_tiles_that_fit(&plan, l2_bytes);
  plan.blocks = tc_ceil_div(plan.tiles, most);
  plan.block_tiles = plan.blocks ? tc_ceil_div(plan.tiles, plan.blocks) : 1;
  plan.group = wino_group(p, plan.blocks);
  plan.groups = tc_ceil_div(p->out_channels, plan.group);
  plan.padded_group = tc_round_up(tc_min(plan.group, tc_max(p->out_channels, 1)), TC_LANES);
  plan.in_stride = wino_stride(plan.block_tiles * plan.padded_in);
  plan.out_stride = wino_stride(plan.block_tiles * plan.padded_group);
  plan.panel_floats = tc_packed_floats(p->channels, p->out_channels);
  return plan;
}

/* Room for the row pointers in scratch, in whole cache lines. */
static int64_t wino_row_pointers(const wino_plan *plan) {
  return tc_round_up(plan->block_tiles, TC_ALIGNMENT / (int64_t)sizeof(float *));
}

/* States the call with products of so many words along the depth. */
static void wino_prepare(tc_prepare *prepare, int64_t words) {
  const tc_conv2d_winograd_f32_params *p = prepare->params;
  TC_REQUIRE(prepare, p->group_channels >= 0 && p->group_channels <= TC_MAX_BYTES, "a group cannot have %lld channels",
             (long long)p->group_channels);
  TC_PRODUCT(prepare, p->groups, tc_plus(p->channels, 1), tc_plus(p->out_channels, 1)); /* bounds each of them */
  if (!tc_refused(prepare)) {
    conv_check(prepare);
  }
  if (tc_refused(prepare)) {
    return;
  }
  TC_REQUIRE(prepare,
             p->kernel_height == 3 && p->kernel_width == 3 && p->stride_height == 1 && p->stride_width == 1 &&
                 p->dilation_height == 1 && p->dilation_width == 1 && p->groups == 1,
             "only 3x3 windows of stride and dilation 1 in one group");
  TC_PRODUCT(prepare, p->channels + TC_LANES, p->out_channels + TC_PANEL, WINO_PRODUCTS, 64 * sizeof(float));
  if (tc_refused(prepare)) {
    return;
  }
  wino_plan plan = wino_plan_make(p, prepare->l2_bytes);
  plan.panel_floats = tc_packed_floats(words, p->out_channels);
  prepare->units = plan.blocks * plan.groups;
  prepare->cost = 2.0 * (double)plan.tiles * plan.products * (double)p->channels * (double)p->out_channels;
  prepare->work.done = prepare->cost;
  prepare->work.algorithm = plan.out == 2 ? TC_CONV_WINOGRAD_2 : TC_CONV_WINOGRAD_4;
  tc_state_of(prepare, (plan.padded_out + plan.padded_in + plan.products * plan.panel_floats) * (int64_t)sizeof(float),
              sizeof(float));
  TC_SHARE(prepare, p->channels, p->out_channels, plan.out);
  prepare->scratch_bytes = wino_row_pointers(&plan) * (int64_t)sizeof(float *) +
                           plan.products * (plan.in_stride + plan.out_stride) * (int64_t)sizeof(float);
}

static void TC_NAME(tc_conv2d_winograd_f32_prepare)(tc_prepare *prepare) {
  const tc_conv2d_winograd_f32_params *p = prepare->params;
  TC_REQUIRE(prepare,
             p->algorithm == TC_CONV_AUTO || p->algorithm == TC_CONV_WINOGRAD_2 || p->algorithm == TC_CONV_WINOGRAD_4,
             "there is no algorithm %lld here", (long long)p->algorithm);
  wino_prepare(prepare, p->channels);
}

static void TC_NAME(tc_conv2d_winograd_f32_pack)(const tc_prepare *prepare, void *state) {
  const tc_conv2d_winograd_f32_params *p = prepare->params;
  const wino_plan plan = wino_plan_make(p, prepare->l2_bytes);
  const float *weights = prepare->constants[CONV_W], *bias = prepare->constants[CONV_BIAS];
  float *panels = (float *)state + plan.padded_out + plan.padded_in;
  double g[WINO_IN][3];
  wino_filter_matrix(plan.out, g);
  for (int64_t o = 0; o < p->out_channels; o++) {
    ((float *)state)[o] = bias ? bias[o] : 0.0f;
  }
  for (int64_t o = 0; o < p->out_channels; o += TC_LANES) {
    const int64_t first = o / TC_PANEL * TC_PANEL;
    const int64_t width = tc_round_up(tc_min(p->out_channels - first, TC_PANEL), TC_LANES);
    for (int64_t c = 0; c < p->channels; c++) {
      wino_filter_2d(plan.out, g, weights + (o * p->channels + c) * 9, p->channels * 9,
                     tc_min(p->out_channels - o, TC_LANES), panels + first * p->channels + c * width + (o - first),
                     plan.panel_floats);
    }
  }
}

/* Everything that the phases of one unit need. */
typedef struct wino_unit {
  const tc_call *call;
  wino_plan plan;
  tc_window window;
  int64_t first_tile, tile_count;
  int64_t column, column_count; /* output channels */
  const float **rows;
  float *patches, *products;
  int64_t depth;                                   /* of the products: channels, or words of rounded_bf16.h */
  const tc_tile_f32_fn (*tiles)[TC_TILE_MOST + 1]; /* as tc_block_f32 has it */
  tc_epilogue_f32 epilogue;
} wino_unit;

/* The image and the first output pixel of a tile. */
static conv_pixel wino_tile_at(const wino_unit *u, int64_t tile) {
  const int64_t line = tile / u->plan.tile_columns;
  const int64_t y = line % u->plan.tile_rows * u->plan.out, x = tile % u->plan.tile_columns * u->plan.out;
  return (conv_pixel){line / u->plan.tile_rows, y, x, y - u->window.pad_top, x - u->window.pad_left};
}

/* The pixels of a patch; zeros stand for those outside the image. */
TC_INLINE void wino_point(const int in, const tc_window *w, const conv_source *source, const conv_pixel *tile,
                          const float *pixels[WINO_PRODUCTS]) {
  if (tile->y >= 0 && tile->x >= 0 && tile->y + in <= w->height && tile->x + in <= w->width) {
    const float *line = conv_position(w, source, tile->image, tile->y, tile->x);
    for (int i = 0; i < in; i++, line += w->width * source->pixel_stride) {
      for (int j = 0; j < in; j++) {
        pixels[i * in + j] = line + j * source->pixel_stride;
      }
    }
    return;
  }
  for (int i = 0; i < in * in; i++) {
    pixels[i] = conv_position(w, source, tile->image, tile->y + i / in, tile->x + i % in);
  }
}

TC_INLINE void wino_transform_input(const int out, const wino_unit *u) {
  const tc_conv2d_winograd_f32_params *p = u->call->params;
  const float *zeros = (const float *)u->call->state + u->plan.padded_out;
  const conv_source source = {u->call->operands[CONV_X], p->x_pixel_stride, zeros};
  for (int64_t t = 0; t < u->tile_count; t++) {
    const conv_pixel tile = wino_tile_at(u, u->first_tile + t);
    const float *pixels[WINO_PRODUCTS];
    wino_point(out + 2, &u->window, &source, &tile, pixels);
    float *to = u->patches + t * u->plan.padded_in;
    int64_t c = 0;
    for (; c + TC_LANES <= p->channels; c += TC_LANES) {
      wino_input_2d(out, false, pixels, c, TC_LANES, to + c, u->plan.in_stride);
    }
    if (c < p->channels) {
      wino_input_2d(out, true, pixels, c, p->channels - c, to + c, u->plan.in_stride);
    }
  }
}

static void wino_multiply(const wino_unit *u) {
  const float *panels = (const float *)u->call->state + u->plan.padded_out + u->plan.padded_in;
  const float zeros[TC_PANEL] = {0};
  tc_block_f32 block = {.rows = u->rows,
                        .row_count = u->tile_count,
                        .taps = 1,
                        .depth = u->depth,
                        .tiles = u->tiles,
                        .bias = zeros,
                        .c_stride = u->plan.padded_group,
                        .epilogue = tc_epilogue(TC_ACT_NONE, 0, 0)};
  for (int e = 0; e < u->plan.products; e++) {
    for (int64_t t = 0; t < u->tile_count; t++) {
      u->rows[t] = u->patches + e * u->plan.in_stride + t * u->plan.padded_in;
    }
    for (int64_t n = 0; n < u->column_count; n += TC_PANEL) {
      /* Whole vectors: the padding of the panels makes the rest of the products zero. */
      block.columns = tc_round_up(tc_min(u->column_count - n, TC_PANEL), TC_LANES);
      block.panel = panels + e * u->plan.panel_floats + (u->column + n) * u->depth;
      block.c = u->products + e * u->plan.out_stride + n;
      tc_block_run(&block);
    }
  }
}

/* Where the sums of a tile go, and what happens to them on the way. */
typedef struct wino_target {
  float *y;
  const float *residual; /* or NULL */
  int64_t y_pixel, y_line, residual_pixel, residual_line;
  int64_t height, width; /* of the tile inside the image */
  tc_vf low, high;
} wino_target;

static wino_target wino_target_of(const wino_unit *u, const conv_pixel *tile) {
  const tc_conv2d_winograd_f32_params *p = u->call->params;
  const int64_t pixel = (tile->image * p->out_height + tile->out_y) * p->out_width + tile->out_x;
  const float *residual = u->call->operands[CONV_RESIDUAL];
  return (wino_target){
      .y = (float *)u->call->operands[CONV_Y] + pixel * p->y_pixel_stride + u->column,
      .residual = residual ? residual + pixel * p->residual_pixel_stride + u->column : NULL,
      .y_pixel = p->y_pixel_stride,
      .y_line = p->out_width * p->y_pixel_stride,
      .residual_pixel = p->residual_pixel_stride,
      .residual_line = p->out_width * p->residual_pixel_stride,
      .height = tc_min(p->out_height - tile->out_y, u->plan.out),
      .width = tc_min(p->out_width - tile->out_x, u->plan.out),
      .low = tc_vf_set1(u->epilogue.low),
      .high = tc_vf_set1(u->epilogue.high),
  };
}

/* Adds bias and residual to `width` neighbouring sums of one vector of channels, clamps and stores them. */
TC_INLINE void wino_store_line(const int width, const bool partial, const wino_target *to, int64_t line,
                               int64_t channel, int64_t count, tc_vf bias, const tc_vf sums[WINO_OUT]) {
  float *y = to->y + line * to->y_line + channel;
  const float *residual = to->residual ? to->residual + line * to->residual_line + channel : NULL;
#pragma GCC unroll 4
  for (int j = 0; j < width; j++) {
    tc_vf sum = tc_vf_add(sums[j], bias);
    if (residual) {
      sum = tc_vf_add(sum, tc_load_column(residual + j * to->residual_pixel, partial, count));
    }
    sum = tc_vf_min(to->high, tc_vf_max(to->low, sum));
    if (partial) {
      tc_vf_store_first(y + j * to->y_pixel, sum, count);
    } else {
      tc_vf_store(y + j * to->y_pixel, sum);
    }
  }
}

/* A tile that the image holds whole, and a whole vector of its channels, are the usual case. */
TC_INLINE void wino_store(const int out, const wino_target *to, int64_t channel, int64_t count, tc_vf bias,
                          tc_vf lines[WINO_OUT][WINO_IN]) {
  const bool usual = to->width == out && count == TC_LANES;
  for (int64_t i = 0; i < to->height; i++) {
    tc_vf sums[WINO_OUT];
    wino_output_1d(out, lines[i], sums);
    if (usual) {
      wino_store_line(out, false, to, i, channel, count, bias, sums);
      continue;
    }
    for (int64_t j = 0; j < to->width; j++) {
      wino_target pixel = *to;
      pixel.y += j * to->y_pixel;
      pixel.residual += to->residual ? j * to->residual_pixel : 0;
      wino_store_line(1, true, &pixel, i, channel, count, bias, sums + j);
    }
  }
}

TC_INLINE void wino_transform_output(const int out, const wino_unit *u) {
  const float *bias = (const float *)u->call->state + u->column;
  for (int64_t t = 0; t < u->tile_count; t++) {
    const conv_pixel tile = wino_tile_at(u, u->first_tile + t);
    const wino_target to = wino_target_of(u, &tile);
    for (int64_t n = 0; n < u->column_count; n += TC_LANES) {
      tc_vf lines[WINO_OUT][WINO_IN];
      wino_output_columns(out, u->products + t * u->plan.padded_group + n, u->plan.out_stride, lines);
      wino_store(out, &to, n, tc_min(u->column_count - n, TC_LANES), tc_vf_load(bias + n), lines);
    }
    for (int64_t i = 0; i < to.height; i++) { /* the activations that are no clamps */
      tc_activate_rows(&u->epilogue, to.y + i * to.y_line, to.y_pixel, to.width, u->column_count);
    }
  }
}

static void wino_begin(const wino_unit *u) {
  if (u->plan.out == 2) {
    wino_transform_input(2, u);
  } else {
    wino_transform_input(4, u);
  }
}

static void wino_end(const wino_unit *u) {
  if (u->plan.out == 2) {
    wino_transform_output(2, u);
  } else {
    wino_transform_output(4, u);
  }
}

static wino_unit wino_unit_make(const tc_call *call, const wino_plan *plan) {
  const tc_conv2d_winograd_f32_params *p = call->params;
  wino_unit u = {.call = call,
                 .plan = *plan,
                 .window = TC_WINDOW(p),
                 .rows = call->scratch,
                 .depth = p->channels,
                 .epilogue = tc_epilogue(p->activation, p->activation_a, p->activation_b)};
  u.patches = (float *)(u.rows + wino_row_pointers(plan));
  u.products = u.patches + plan->products * plan->in_stride;
  return u;
}

/* Makes u the place of a unit. */
static void wino_seek(wino_unit *u, int64_t unit) {
  const tc_conv2d_winograd_f32_params *p = u->call->params;
  u->first_tile = unit / u->plan.groups * u->plan.block_tiles;
  u->tile_count = tc_min(u->plan.tiles - u->first_tile, u->plan.block_tiles);
  u->column = unit % u->plan.groups * u->plan.group;
  u->column_count = tc_min(p->out_channels - u->column, u->plan.group);
}

static void TC_NAME(tc_conv2d_winograd_f32)(const tc_call *call, int64_t begin, int64_t end) {
  const wino_plan plan = wino_plan_make(call->params, call->l2_bytes);
  wino_unit u = wino_unit_make(call, &plan);
  int64_t block = -1; /* whose patches are in scratch */
  for (int64_t unit = begin; unit < end; unit++) {
    wino_seek(&u, unit);
    if (block != unit / plan.groups) {
      block = unit / plan.groups;
      wino_begin(&u);
    }
    wino_multiply(&u);
    wino_end(&u);
  }
}

#endif
