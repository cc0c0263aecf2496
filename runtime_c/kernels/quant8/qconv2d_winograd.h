/* qconv2d_winograd: 3x3 convolutions of 8-bit numbers by Winograd's F(2x2, 3x3), four ninths of the multiplications of
 * the direct form (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2015).
 *
 * It is exact. Transformed patches are sums of four numbers of 8 bits with signs; filters are transformed with twice
 * the usual matrix, so that nothing is a fraction: sums of up to nine weights. Both fit 16 bits, their products are
 * added as pairs, and what comes back is four times the sum that the direct form computes. On the way sums may wrap
 * around, as long as the result fits.
 *
 * A unit is a block of tiles of 2x2 output pixels times a panel of output channels. State: the arrays of requantize.h,
 * a pixel that holds nothing but the zero point, and the panels, each with its 16 products one after another. Scratch:
 * row pointers, products [product][tile][column], transformed patches [product][tile][channel]. */
#ifndef TINYCOMP_KERNELS_QUANT8_QCONV2D_WINOGRAD_H
#define TINYCOMP_KERNELS_QUANT8_QCONV2D_WINOGRAD_H

#include "vocabulary.h"

#include "../gemm/tile_f32.h"
#include "../gemm/grid.h"
#include "../conv/conv2d_rows.h"
#include "requantize.h"
#include "tile_q8.h"
#include "pack_q8.h"
#include "block_q8.h"
#include "product_q8.h"
#include "qconv2d.h"

enum {
  QWINO_OUT = 2,
  QWINO_IN = QWINO_OUT + 2,
  QWINO_PRODUCTS = QWINO_IN * QWINO_IN,
  QWINO_GAP = 32, /* numbers */
  QWINO_MOST_CHANNELS = (1 << 29) / (255 * 128 * 9)
};

typedef struct qwino_plan {
  q8_result result;
  tc_window window;
  int64_t channels, columns; /* of x and of y */
  int64_t padded, words;
  int64_t tile_rows, tile_columns; /* of one image */
  int64_t tiles, block_tiles, blocks, panels;
  int64_t patch;        /* numbers of a transformed patch for one product */
  int64_t patch_stride; /* from one product to the next */
  int64_t panel_bytes;  /* of a whole panel */
} qwino_plan;

/* As many tiles as the second-level cache holds patches of, beside some of everything else; but not so few that reading
 * the weights, once per block, takes longer than multiplying with them. */
static int64_t qwino_block_tiles(const tc_qconv2d_winograd_params *p, int64_t patch_bytes, int64_t l2_bytes) {
  return p->block_rows ? p->block_rows : tc_max(tc_min(l2_bytes * 7 / 8 / (QWINO_PRODUCTS * patch_bytes), 96), 24);
}

static qwino_plan qwino_plan_make(const tc_qconv2d_winograd_params *p, int64_t l2_bytes) {
  qwino_plan plan = {.result = Q8_RESULT(p),
                     .window = TC_WINDOW(p),
                     .channels = p->channels,
                     .columns = p->out_channels,
                     .padded = tc_round_up(p->out_channels, TC_LANES),
                     .words = q8_words(p->channels, Q8_WIDE),
                     .tile_rows = tc_ceil_div(p->out_height, QWINO_OUT),
                     .tile_columns = tc_ceil_div(p->out_width, QWINO_OUT),
                     .panels = tc_ceil_div(p->out_channels, TC_PANEL),
                     .patch = tc_round_up(tc_max(p->channels, 1), 2 * TC_LANES)};
  plan.tiles = p->batch * plan.tile_rows * plan.tile_columns;
  const int64_t most = qwino_block_tiles(p, plan.patch * 2, l2_bytes);
  plan.blocks = tc_ceil_div(plan.tiles, most);
  plan.block_tiles = plan.blocks ? tc_ceil_div(plan.tiles, plan.blocks) : 1;
  /* A multiple of 4 KB would lead all products of a patch to the same lines of the first-level cache. */
  plan.patch_stride = plan.block_tiles * plan.patch + QWINO_GAP;
  plan.panel_bytes = QWINO_PRODUCTS * plan.words * TC_PANEL * q8_form_word_bytes(Q8_WIDE);
  return plan;
}

static void TC_NAME(tc_qconv2d_winograd_prepare)(tc_prepare *prepare) {
  const tc_qconv2d_winograd_params *p = prepare->params;
  const tc_window window = TC_WINDOW(p);
  const q8_result result = Q8_RESULT(p);
  qconv_check(prepare);
  TC_REQUIRE(prepare, p->algorithm == TC_CONV_AUTO || p->algorithm == TC_CONV_WINOGRAD_2,
             "there is no algorithm %lld here", (long long)p->algorithm);
  tc_check_grid(prepare, p->block_rows, TC_ORDER_AUTO);
  TC_REQUIRE(prepare,
             tc_refused(prepare) || (window.kernel_height == 3 && window.kernel_width == 3 &&
                                     window.stride_height == 1 && window.stride_width == 1 &&
                                     window.dilation_height == 1 && window.dilation_width == 1 && p->groups == 1),
             "only 3x3 windows of stride and dilation 1 in one group");
  TC_REQUIRE(prepare, p->weight_type == TC_TYPE_I8 && p->channels <= QWINO_MOST_CHANNELS,
             "only int8 weights and up to %d channels", (int)QWINO_MOST_CHANNELS);
  if (tc_refused(prepare)) {
    return;
  }
  q8_check_result(prepare, &result, Q8_FACTOR, p->out_channels);
  tc_touch(prepare, Q8_W, p->out_channels * p->channels * 9, 1);
  tc_touch(prepare, Q8_BIAS, p->out_channels, sizeof(int32_t));
  const qwino_plan plan = qwino_plan_make(p, prepare->l2_bytes);
  const int64_t multiplications = TC_PRODUCT(prepare, plan.tiles + 1, QWINO_PRODUCTS, plan.patch, plan.padded);
  const int64_t panels = TC_PRODUCT(prepare, QWINO_PRODUCTS, plan.words, plan.padded, q8_form_word_bytes(Q8_WIDE));
  const int64_t row_bytes = (int64_t)sizeof(char *) + TC_PANEL * (int64_t)sizeof(int32_t) + plan.patch * 2;
  const int64_t block = TC_PRODUCT(prepare, plan.block_tiles, QWINO_PRODUCTS, row_bytes);
  if (tc_refused(prepare)) {
    return;
  }
  prepare->units = plan.blocks * plan.panels;
  prepare->cost = 2.0 * (double)multiplications;
  prepare->work.done = 2.0 * TC_COUNT(QWINO_PRODUCTS, plan.tiles, p->channels, p->out_channels);
  prepare->work.algorithm = TC_CONV_WINOGRAD_2;
  const int64_t arrays = Q8_ARRAYS * plan.padded;
  prepare->state_bytes = arrays * (int64_t)sizeof(int32_t) + plan.patch + panels;
  tc_state_numbers(prepare, 0, arrays, sizeof(int32_t));
  tc_state_numbers(prepare, arrays * (int64_t)sizeof(int32_t) + plan.patch, panels / (int64_t)sizeof(int16_t),
                   sizeof(int16_t));
  const int64_t own = tc_present(prepare, Q8_ZERO) ? plan.padded * (int64_t)sizeof(int32_t) + plan.patch : 0;
  prepare->scratch_bytes = own + block + QWINO_PRODUCTS * QWINO_GAP * 2;
  TC_SHARE(prepare, p->channels, p->out_channels, p->x_zero_point, p->type, p->rule);
}

/* Twice the filter transform of one line of three weights, in both directions four times. */
static void qwino_filter_1d(const int32_t g[3], int32_t t[QWINO_IN]) {
  t[0] = 2 * g[0];
  t[1] = g[0] + g[1] + g[2];
  t[2] = g[0] - g[1] + g[2];
  t[3] = 2 * g[2];
}

/* Writes the transformed 3x3 filter of one input and one output channel to its place in the first product of a panel;
 * products are `stride` numbers apart. */
static void qwino_filter_2d(const int8_t *filter, int16_t *to, int64_t stride) {
  int32_t lines[3][QWINO_IN];
  for (int i = 0; i < 3; i++) {
    const int32_t line[3] = {filter[3 * i], filter[3 * i + 1], filter[3 * i + 2]};
    qwino_filter_1d(line, lines[i]);
  }
  for (int j = 0; j < QWINO_IN; j++) {
    const int32_t column[3] = {lines[0][j], lines[1][j], lines[2][j]};
    int32_t t[QWINO_IN];
    qwino_filter_1d(column, t);
    for (int i = 0; i < QWINO_IN; i++) {
      to[(i * QWINO_IN + j) * stride] = (int16_t)t[i];
    }
  }
}

static void TC_NAME(tc_qconv2d_winograd_pack)(const tc_prepare *prepare, void *state) {
  const tc_qconv2d_winograd_params *p = prepare->params;
  const qwino_plan plan = qwino_plan_make(p, prepare->l2_bytes);
  const int8_t *weights = prepare->constants[Q8_W];
  const char *bias = prepare->constants[Q8_BIAS];
  int32_t *arrays = state;
  char *zeros = (char *)(arrays + Q8_ARRAYS * plan.padded), *panels = zeros + plan.patch;
  for (int64_t o = 0; o < plan.columns; o++) {
    const int64_t first = o / TC_PANEL * TC_PANEL, column = o - first;
    const int64_t width = tc_round_up(tc_min(plan.columns - first, TC_PANEL), TC_LANES);
    int16_t *panel = (int16_t *)(panels + o / TC_PANEL * plan.panel_bytes);
    uint32_t sum = 0;
    for (int64_t c = 0; c < plan.channels; c++) {
      const int8_t *filter = weights + (o * plan.channels + c) * 9;
      const int64_t vector = c / 2 * width + column - column % TC_LANES;
      qwino_filter_2d(filter, panel + 2 * vector + tc_pair_place(column % TC_LANES, c % 2), plan.words * width * 2);
      for (int k = 0; k < 9; k++) {
        sum += (uint32_t)filter[k];
      }
    }
    int32_t added = 0;
    if (bias) {
      memcpy(&added, bias + o * (int64_t)sizeof(added), sizeof(added));
    }
    q8_pack_start(&plan.result, added, sum, 0, arrays + o, plan.padded);
  }
  q8_pack_factors(&plan.result, prepare->constants[Q8_FACTOR], plan.columns, arrays, plan.padded);
  memset(zeros, (int)p->x_zero_point, (size_t)plan.patch);
}

/* What the phases of one block need. */
typedef struct qwino_block {
  const qwino_plan *plan;
  const uint8_t *x, *zeros;
  const int32_t *start;
  q8_scale scale;
  char *y;
  int64_t x_pixel, y_pixel;
  int64_t first_tile, tile_count;
  const char **rows;
  int32_t *products;
  int16_t *patches;
} qwino_block;

/* The image, the first output pixel and the first input pixel of a tile. */
static conv_pixel qwino_tile_at(const qwino_plan *plan, int64_t tile) {
  const int64_t line = tile / plan->tile_columns;
  const int64_t y = line % plan->tile_rows * QWINO_OUT, x = tile % plan->tile_columns * QWINO_OUT;
  return (conv_pixel){line / plan->tile_rows, y, x, y - plan->window.pad_top, x - plan->window.pad_left};
}

/* The pixels of a patch; the zero point stands for those outside the image. */
static void qwino_point(const qwino_block *b, const conv_pixel *tile, const uint8_t *pixels[QWINO_PRODUCTS]) {
  const tc_window *w = &b->plan->window;
  for (int i = 0; i < QWINO_IN; i++) {
    const int64_t y = tile->y + i;
    const uint8_t *line = b->x + ((tile->image * w->height + y) * w->width + tile->x) * b->x_pixel;
    for (int j = 0; j < QWINO_IN; j++) {
      const bool inside = y >= 0 && y < w->height && tile->x + j >= 0 && tile->x + j < w->width;
      pixels[i * QWINO_IN + j] = inside ? line + j * b->x_pixel : b->zeros;
    }
  }
}

TC_INLINE void qwino_input_1d(const tc_vi d[QWINO_IN], tc_vi t[QWINO_IN]) {
  t[0] = tc_vi_sub_pairs(d[0], d[2]);
  t[1] = tc_vi_add_pairs(d[1], d[2]);
  t[2] = tc_vi_sub_pairs(d[2], d[1]);
  t[3] = tc_vi_sub_pairs(d[1], d[3]);
}

/* Transforms a vector of 16-bit numbers of a patch, from channel c of its pixels on. */
TC_INLINE void qwino_input_2d(const uint8_t *const pixels[QWINO_PRODUCTS], int64_t c, int16_t *to, int64_t stride) {
  tc_vi columns[QWINO_IN][QWINO_IN];
#pragma GCC unroll 4
  for (int j = 0; j < QWINO_IN; j++) {
    tc_vi d[QWINO_IN];
#pragma GCC unroll 4
    for (int i = 0; i < QWINO_IN; i++) {
      d[i] = tc_vi_widen_unsigned_bytes(pixels[i * QWINO_IN + j] + c);
    }
    qwino_input_1d(d, columns[j]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < QWINO_IN; i++) {
    const tc_vi line[QWINO_IN] = {columns[0][i], columns[1][i], columns[2][i], columns[3][i]};
    tc_vi t[QWINO_IN];
    qwino_input_1d(line, t);
#pragma GCC unroll 4
    for (int j = 0; j < QWINO_IN; j++) {
      tc_vi_store(to + (i * QWINO_IN + j) * stride, t[j]);
    }
  }
}

static void qwino_transform_input(const qwino_block *b) {
  enum { NUMBERS = 2 * TC_LANES };
  const qwino_plan *plan = b->plan;
  for (int64_t t = 0; t < b->tile_count; t++) {
    const conv_pixel tile = qwino_tile_at(plan, b->first_tile + t);
    const uint8_t *pixels[QWINO_PRODUCTS];
    qwino_point(b, &tile, pixels);
    int16_t *to = b->patches + t * plan->patch;
    int64_t c = 0;
    for (; c + NUMBERS <= plan->channels; c += NUMBERS) {
      qwino_input_2d(pixels, c, to + c, plan->patch_stride);
    }
    if (c < plan->channels) { /* no pixel is read beyond its end */
      uint8_t rest[QWINO_PRODUCTS][NUMBERS] = {{0}};
      for (int i = 0; i < QWINO_PRODUCTS; i++) {
        memcpy(rest[i], pixels[i] + c, (size_t)(plan->channels - c));
        pixels[i] = rest[i];
      }
      qwino_input_2d(pixels, 0, to + c, plan->patch_stride);
    }
  }
  for (int e = 0; e < QWINO_PRODUCTS; e++) {
    for (int64_t t = 0; t < b->tile_count; t++) {
      b->rows[e * plan->block_tiles + t] = (const char *)(b->patches + e * plan->patch_stride + t * plan->patch);
    }
  }
}

/* The products of all patches and one panel of `columns` columns. */
static void qwino_multiply(const qwino_block *b, const char *panel, int64_t columns) {
  static const int32_t nothing[TC_PANEL] = {0};
  const q8_result sums = {.type = TC_TYPE_I32};
  const int64_t width = tc_round_up(columns, TC_LANES);
  q8_block block = {.row_count = b->tile_count,
                    .panels = 1,
                    .taps = 1,
                    .words = b->plan->words,
                    .form = Q8_WIDE,
                    .columns = width,
                    .start = nothing,
                    .result = &sums,
                    .y_stride = TC_PANEL};
  for (int e = 0; e < QWINO_PRODUCTS; e++) {
    block.rows = b->rows + e * b->plan->block_tiles;
    block.panel = panel + e * block.words * width * q8_form_word_bytes(Q8_WIDE);
    block.y = (char *)(b->products + e * b->plan->block_tiles * TC_PANEL);
    q8_block_run(&block);
  }
}

TC_INLINE void qwino_output_1d(const tc_vi m[QWINO_IN], tc_vi y[QWINO_OUT]) {
  y[0] = tc_vi_add(m[0], tc_vi_add(m[1], m[2]));
  y[1] = tc_vi_sub(tc_vi_sub(m[1], m[2]), m[3]);
}

/* The sums of a tile's pixels in one vector of columns, from its products. */
TC_INLINE void qwino_output_2d(const int32_t *products, int64_t stride, tc_vi start,
                               tc_vi sums[QWINO_OUT * QWINO_OUT]) {
  tc_vi columns[QWINO_IN][QWINO_OUT];
#pragma GCC unroll 4
  for (int j = 0; j < QWINO_IN; j++) {
    tc_vi m[QWINO_IN];
#pragma GCC unroll 4
    for (int i = 0; i < QWINO_IN; i++) {
      m[i] = tc_vi_load(products + (i * QWINO_IN + j) * stride);
    }
    qwino_output_1d(m, columns[j]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < QWINO_OUT; i++) {
    const tc_vi line[QWINO_IN] = {columns[0][i], columns[1][i], columns[2][i], columns[3][i]};
    tc_vi y[QWINO_OUT];
    qwino_output_1d(line, y);
#pragma GCC unroll 2
    for (int j = 0; j < QWINO_OUT; j++) {
      sums[i * QWINO_OUT + j] = tc_vi_add(tc_vi_quarter(y[j]), start);
    }
  }
}

/* Turns the products of the columns from `column` on into results. */
static void qwino_transform_output(const qwino_block *b, int64_t column) {
  const qwino_plan *plan = b->plan;
  const tc_window *w = &plan->window;
  const q8_result *r = &plan->result;
  const int64_t columns = tc_min(plan->columns - column, TC_PANEL), size = q8_size(r);
  const int64_t line = w->out_width * b->y_pixel * size;
  for (int64_t t = 0; t < b->tile_count; t++) {
    const conv_pixel tile = qwino_tile_at(plan, b->first_tile + t);
    const int64_t pixel = (tile.image * w->out_height + tile.out_y) * w->out_width + tile.out_x;
    const int64_t height = tc_min(w->out_height - tile.out_y, QWINO_OUT);
    const bool is_wide = tile.out_x + 1 < w->out_width;
    for (int64_t n = 0; n < columns; n += TC_LANES) {
      const int64_t c = column + n;
      tc_vi sums[QWINO_OUT * QWINO_OUT];
      qwino_output_2d(b->products + t * TC_PANEL + n, plan->block_tiles * TC_PANEL, tc_vi_load(b->start + c), sums);
      char *y = b->y + (pixel * b->y_pixel + c) * size;
      for (int64_t i = 0; i < height; i++, y += line) {
        if (is_wide) {
          q8_store_pixels(QWINO_OUT, r, &b->scale, sums + i * QWINO_OUT, c, columns - n, y, b->y_pixel);
        } else {
          q8_store_pixels(1, r, &b->scale, sums + i * QWINO_OUT, c, columns - n, y, b->y_pixel);
        }
      }
    }
  }
}

static void TC_NAME(tc_qconv2d_winograd)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_qconv2d_winograd_params *p = call->params;
  const qwino_plan plan = qwino_plan_make(p, call->l2_bytes);
  const int32_t *arrays = call->state;
  const uint8_t *zeros = (const uint8_t *)(arrays + Q8_ARRAYS * plan.padded);
  const char *panels = (const char *)zeros + plan.patch;
  const void *zero_point = call->operands[Q8_ZERO];
  int32_t *own = call->scratch;
  char *scratch = call->scratch;
  if (zero_point) {
    zeros = memset(own + plan.padded, *(const uint8_t *)zero_point, (size_t)plan.patch);
    scratch += plan.padded * (int64_t)sizeof(*own) + plan.patch;
  }
  qwino_block b = {.plan = &plan,
                   .x = call->operands[Q8_X],
                   .zeros = zeros,
                   .start = q8_start(zero_point, arrays, plan.padded, plan.padded, own),
                   .scale = q8_scale_make(&plan.result, arrays, plan.padded),
                   .y = call->operands[Q8_Y],
                   .x_pixel = p->x_pixel_stride,
                   .y_pixel = p->y_pixel_stride,
                   .rows = (const char **)scratch};
  b.products = (int32_t *)(b.rows + QWINO_PRODUCTS * plan.block_tiles);
  b.patches = (int16_t *)(b.products + QWINO_PRODUCTS * plan.block_tiles * TC_PANEL);
  int64_t transformed = -1; /* the block whose patches are in scratch */
  for (int64_t unit = begin; unit < end; unit++) {
    const int64_t block = unit / plan.panels, panel = unit % plan.panels, column = panel * TC_PANEL;
    b.first_tile = block * plan.block_tiles;
    b.tile_count = tc_min(plan.tiles - b.first_tile, plan.block_tiles);
    if (block != transformed) {
      transformed = block;
      qwino_transform_input(&b);
    }
    qwino_multiply(&b, panels + panel * plan.panel_bytes, tc_min(plan.columns - column, TC_PANEL));
    qwino_transform_output(&b, column);
  }
}

#endif
