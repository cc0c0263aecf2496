/* Convolution with few filters, whose channels would leave most of a vector empty: vectors of columns instead. A unit
 * is a strip of columns of a band of lines. Its input is copied to scratch channel by channel, with its padding, so
 * that windows need no bounds; its result is put together there and then copied pixel by pixel. Panels are those of
 * tile_f32.h, from which single weights are read. */
#ifndef TINYCOMP_KERNELS_CONV_CONV2D_COLUMNS_H
#define TINYCOMP_KERNELS_CONV_CONV2D_COLUMNS_H

#include "vocabulary.h"

#include "../common/activation.h"
#include "../copy/transpose.h"

enum {
  CONV_STRIP_FLOATS = 1 << 14, /* of a strip's input, as a rule */
  CONV_STRIP_LEAST = 128,      /* columns */
  CONV_STRIP_MOST = 1024,
  CONV_STRIP_DEEPEST = 256, /* channels of all lines of a window, which are to stay in the cache */
  CONV_STRIP_TAPS = 3,      /* with fewer, copying takes what the vectors save */
  CONV_STRIP_FILTERS = TC_LANES / 2
};

/* The tiles, CONV_STRIP(filters, vectors): as many sums as the registers hold beside the columns and one weight. */
#if TC_REGISTERS == 32
#define CONV_STRIP_FOUR CONV_STRIP(1, 8) CONV_STRIP(2, 8) CONV_STRIP(3, 6) CONV_STRIP(4, 6)
#define CONV_STRIP_LIST CONV_STRIP_FOUR CONV_STRIP(5, 4) CONV_STRIP(6, 4) CONV_STRIP(7, 3) CONV_STRIP(8, 3)
#elif TC_REGISTERS == 16
#define CONV_STRIP_LIST CONV_STRIP(1, 8) CONV_STRIP(2, 4) CONV_STRIP(3, 3) CONV_STRIP(4, 3)
#else
#define CONV_STRIP_LIST CONV_STRIP(1, 4) CONV_STRIP(2, 2)
#endif

static const int64_t conv_strip_vectors[] = {0,
#define CONV_STRIP(filters, vectors) vectors,
                                             CONV_STRIP_LIST
#undef CONV_STRIP
};

typedef struct conv_strips {
  int64_t columns;  /* of a strip of the result */
  int64_t out_line; /* floats of a line of the result in scratch: whole tiles */
  int64_t line;     /* floats of a line of the input in scratch */
  int64_t lines;    /* of the result in a band */
  int64_t rows;     /* that these read */
  int64_t strips, bands;
} conv_strips;

/* Whether a convolution of one group may be computed so, and is wide enough to gain by it. */
static bool conv_fits_strips(const tc_window *w, int64_t channels, int64_t filters) {
  return filters > 0 && filters <= CONV_STRIP_FILTERS && w->stride_width == 1 &&
         (w->kernel_height == 1 || w->dilation_height == 1) && w->kernel_height * w->kernel_width >= CONV_STRIP_TAPS &&
         channels > 0 && channels * w->kernel_height <= CONV_STRIP_DEEPEST &&
         (w->kernel_width - 1) * w->dilation_width <= CONV_STRIP_LEAST && w->out_width >= 4 * TC_LANES;
}

static conv_strips conv_strips_of(const tc_window *w, int64_t channels, int64_t filters) {
  const int64_t tile = conv_strip_vectors[filters] * TC_LANES, reach = (w->kernel_width - 1) * w->dilation_width;
  const int64_t wanted = tc_max(CONV_STRIP_FLOATS / (channels * w->kernel_height), CONV_STRIP_LEAST);
  conv_strips plan = {.strips = tc_ceil_div(w->out_width, tc_min(wanted, CONV_STRIP_MOST))};
  plan.columns = tc_round_up(tc_ceil_div(w->out_width, plan.strips), TC_LANES);
  plan.strips = tc_ceil_div(w->out_width, plan.columns);
  plan.out_line = tc_round_up(plan.columns, tile);
  plan.line = tc_round_up(plan.out_line + reach, TC_LANES);
  const int64_t more = CONV_STRIP_FLOATS / (channels * plan.line) - w->kernel_height; /* rows than one line needs */
  plan.lines = tc_max(tc_min(w->out_height, more / w->stride_height + 1), 1);
  plan.rows = (plan.lines - 1) * w->stride_height + w->kernel_height;
  plan.bands = tc_ceil_div(w->out_height, plan.lines);
  return plan;
}

/* Copies `count` lines of input from `top` on, at the columns that a strip sees from `left` on. Either may lie in the
 * padding. */
static void conv_strip_input(float *to, const float *image, int64_t pixel_stride, const tc_window *w, int64_t channels,
                             const conv_strips *plan, int64_t count, int64_t top, int64_t left) {
  const int64_t first = tc_max(-left, 0), last = tc_min(w->width - left, plan->line);
  for (int64_t y = top; y < top + count; y++, to += channels * plan->line) {
    const bool inside = y >= 0 && y < w->height && first < last;
    if (!inside || first > 0 || last < plan->line) {
      for (int64_t i = 0; i < channels * plan->line; i += TC_LANES) {
        tc_vf_store(to + i, tc_vf_set1(0.0f));
      }
    }
    if (inside) {
      const tc_transpose pixels = {.to = to + first,
                                   .from = image + (y * w->width + left + first) * pixel_stride,
                                   .to_row = plan->line,
                                   .from_row = pixel_stride,
                                   .rows = channels,
                                   .columns = last - first};
      tc_transpose_block(&pixels, sizeof(float));
    }
  }
}

/* A tile of a line of the result. */
typedef struct conv_strip_tile {
  const tc_window *window;
  int64_t channels, line, out_line;
  const float *x; /* the first of the window of the first column */
  const float *panel, *bias;
  bool adds; /* to what is in out */
  float *out;
  float low, high;
} conv_strip_tile;

TC_INLINE void conv_strip_body(const int filters, const int vectors, const conv_strip_tile *t) {
  tc_vf sum[8][8];
#pragma GCC unroll 8
  for (int m = 0; m < filters; m++) {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; v++) {
      sum[m][v] = tc_vf_set1(t->bias[m]);
      if (t->adds) {
        sum[m][v] = tc_vf_add(sum[m][v], tc_vf_load(t->out + m * t->out_line + v * TC_LANES));
      }
    }
  }
  const float *weights = t->panel;
  for (int64_t i = 0; i < t->window->kernel_height; i++) {
    for (int64_t j = 0; j < t->window->kernel_width; j++) {
      const float *x = t->x + i * t->channels * t->line + j * t->window->dilation_width;
      for (int64_t c = 0; c < t->channels; c++, x += t->line, weights += TC_LANES) {
        tc_vf column[8];
#pragma GCC unroll 8
        for (int v = 0; v < vectors; v++) {
          column[v] = tc_vf_keep(tc_vf_load(x + v * TC_LANES));
        }
#pragma GCC unroll 8
        for (int m = 0; m < filters; m++) {
          const tc_vf weight = tc_vf_set1(weights[m]);
#pragma GCC unroll 8
          for (int v = 0; v < vectors; v++) {
            sum[m][v] = tc_vf_fma(column[v], weight, sum[m][v]);
          }
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < filters; m++) {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; v++) {
      const tc_vf clamped = tc_vf_min(tc_vf_set1(t->high), tc_vf_max(tc_vf_set1(t->low), sum[m][v]));
      tc_vf_store(t->out + m * t->out_line + v * TC_LANES, clamped);
    }
  }
}

#define CONV_STRIP(filters, vectors)                                                                    \
  static __attribute__((noinline)) void conv_strip_##filters##x##vectors(const conv_strip_tile *tile) { \
    conv_strip_body(filters, vectors, tile);                                                            \
  }
CONV_STRIP_LIST
#undef CONV_STRIP

static void (*const conv_strip_tiles[])(const conv_strip_tile *tile) = {NULL,
#define CONV_STRIP(filters, vectors) conv_strip_##filters##x##vectors,
                                                                        CONV_STRIP_LIST
#undef CONV_STRIP
};

/* `count` columns of one line of the result: from `first`, a tile at its first column, to y through scratch. */
static void conv_strip_line(const conv_strip_tile *first, const tc_epilogue_f32 *epilogue, int64_t filters,
                            int64_t count, float *y, int64_t y_stride, const float *residual, int64_t residual_stride) {
  conv_strip_tile tile = *first;
  tc_transpose turned = {tile.out, residual, tile.out_line, residual_stride, filters, count};
  if (residual) {
    tc_transpose_block(&turned, sizeof(float));
  }
  const int64_t step = conv_strip_vectors[filters] * TC_LANES;
  for (int64_t column = 0; column < count; column += step) {
    conv_strip_tiles[filters](&tile);
    tile.x += step;
    tile.out += step;
  }
  tc_activate_rows(epilogue, first->out, first->out_line, filters, count);
  turned = (tc_transpose){y, first->out, y_stride, first->out_line, count, filters};
  tc_transpose_block(&turned, sizeof(float));
}

/* What a convolution by strips reads and writes. */
typedef struct conv_strip_operands {
  const float *x, *panel, *bias, *residual;
  float *y;
} conv_strip_operands;

/* Units [begin, end): strips of bands of images. */
static void conv_strips_run(const tc_call *call, const conv_strips *plan, const conv_strip_operands *operands,
                            int64_t begin, int64_t end) {
  const tc_conv2d_f32_params *p = call->params;
  const tc_window w = TC_WINDOW(p);
  const tc_epilogue_f32 epilogue = tc_epilogue(p->activation, p->activation_a, p->activation_b);
  float *input = call->scratch, *result = input + plan->rows * p->channels * plan->line;
  for (int64_t unit = begin; unit < end; unit++) {
    const int64_t column = unit % plan->strips * plan->columns, count = tc_min(w.out_width - column, plan->columns);
    const int64_t image = unit / plan->strips / plan->bands, first = unit / plan->strips % plan->bands * plan->lines;
    const int64_t lines = tc_min(w.out_height - first, plan->lines);
    conv_strip_input(input, operands->x + image * w.height * w.width * p->x_pixel_stride, p->x_pixel_stride, &w,
                     p->channels, plan, (lines - 1) * w.stride_height + w.kernel_height,
                     first * w.stride_height - w.pad_top, column - w.pad_left);
    for (int64_t i = 0; i < lines; i++) {
      const int64_t pixel = (image * w.out_height + first + i) * w.out_width + column;
      const float *residual = operands->residual ? operands->residual + pixel * p->residual_pixel_stride : NULL;
      const conv_strip_tile tile = {.window = &w,
                                    .channels = p->channels,
                                    .line = plan->line,
                                    .out_line = plan->out_line,
                                    .x = input + i * w.stride_height * p->channels * plan->line,
                                    .panel = operands->panel,
                                    .bias = operands->bias,
                                    .adds = residual != NULL,
                                    .out = result,
                                    .low = epilogue.low,
                                    .high = epilogue.high};
      conv_strip_line(&tile, &epilogue, p->out_channels, count, operands->y + pixel * p->y_pixel_stride,
                      p->y_pixel_stride, residual, p->residual_pixel_stride);
    }
  }
}

#endif
