/* dwconv2d_f32: depthwise convolution, a vector of channels at a time; planar images have a form of their own
 * (planar.h). A unit is a band of two lines of output pixels. State: the padded bias, then for every vector of channels
 * the weights of all kernel positions.
 *
 * The usual windows go through tiles of two lines by four pixels: every input vector is loaded once and added to all
 * the sums that it belongs to, which a single line would load three times for a 3x3 window. What lies outside the image
 * is left out, so every sum sees the positions of its window that are inside, in their order. */
#ifndef TINYCOMP_KERNELS_DWCONV_DWCONV2D_F32_H
#define TINYCOMP_KERNELS_DWCONV_DWCONV2D_F32_H

#include "vocabulary.h"

#include "../common/activation.h"
#include "../gemm/tile_f32.h"
#include "planar.h"

enum { DW_LINES = 2, DW_PIXELS = 4 }; /* of a tile: as many sums as hide the latency of a multiply-add */

/* From the first to the last, which is not included. */
typedef struct dw_range {
  int64_t first, last;
} dw_range;

/* One vector of channels of a band of output lines. */
typedef struct dw_band {
  const tc_window *window;
  dw_range inner; /* the output pixels whose windows do not leave the image on the left or right */
  const float *x; /* the first channel of the image's first pixel */
  int64_t x_pixel, x_line;
  int64_t y;            /* of the first line's window; may be outside */
  int64_t lines;        /* of the output, 1 to DW_LINES */
  const float *weights; /* a vector for each kernel position */
  tc_vf bias;
  int64_t channels; /* in this vector */
  const float *residual;
  int64_t residual_pixel;
  float *out;
  int64_t out_pixel;
  float low, high;
} dw_band;

static void dw_check(tc_prepare *prepare) {
  const tc_dwconv2d_f32_params *p = prepare->params;
  const tc_window window = TC_WINDOW(p);
  tc_check_window(prepare, &window);
  tc_check_activation(prepare, p->activation, p->activation_a, p->activation_b);
  TC_REQUIRE(prepare,
             p->x_pixel_stride >= p->channels && p->y_pixel_stride >= p->channels &&
                 (!tc_present(prepare, DW_RESIDUAL) || p->residual_pixel_stride >= p->channels),
             "a pixel stride is smaller than the number of channels");
  TC_REQUIRE(prepare, (p->planar | 1) == 1, "planar must be 0 or 1");
  TC_REQUIRE(prepare,
             !p->planar || (p->stride_width == 1 && p->x_pixel_stride == p->channels &&
                            p->y_pixel_stride == p->channels && p->residual_pixel_stride == p->channels),
             "planar images have columns that are apart, or channels that are not adjacent");
  tc_touch_image(prepare, DW_X, p->batch, p->height, p->width, p->x_pixel_stride, p->channels, sizeof(float));
  tc_touch_image(prepare, DW_Y, p->batch, p->out_height, p->out_width, p->y_pixel_stride, p->channels, sizeof(float));
  tc_touch_image(prepare, DW_RESIDUAL, p->batch, p->out_height, p->out_width, p->residual_pixel_stride, p->channels,
                 sizeof(float));
  tc_touch(prepare, DW_W, TC_PRODUCT(prepare, p->channels, p->kernel_height, p->kernel_width), sizeof(float));
  tc_touch(prepare, DW_BIAS, p->channels, sizeof(float));
}

static void TC_NAME(tc_dwconv2d_f32_prepare)(tc_prepare *prepare) {
  const tc_dwconv2d_f32_params *p = prepare->params;
  TC_PRODUCT(prepare, p->channels);
  if (!tc_refused(prepare)) {
    dw_check(prepare);
  }
  if (tc_refused(prepare)) {
    return;
  }
  const int64_t taps = p->kernel_height * p->kernel_width, padded = tc_round_up(p->channels, TC_LANES);
  prepare->units = p->batch * tc_ceil_div(p->out_height, DW_LINES);
  prepare->cost = 4.0 * (double)(p->batch * p->out_height) * (double)p->out_width * (double)p->channels * (double)taps;
  prepare->work.flops = prepare->cost / 2;
  tc_state_of(prepare, TC_PRODUCT(prepare, taps + 1, padded, sizeof(float)), sizeof(float));
  TC_SHARE(prepare, p->channels, taps);
  if (p->planar) {
    const tc_window window = TC_WINDOW(p);
    const dw_planar_plan plan = dw_planar_plan_of(&window);
    prepare->units = TC_PRODUCT(prepare, p->batch, p->channels, plan.bands);
    prepare->scratch_bytes = TC_PRODUCT(prepare, plan.rows, plan.line, sizeof(float));
  }
}

static void TC_NAME(tc_dwconv2d_f32_pack)(const tc_prepare *prepare, void *state) {
  const tc_dwconv2d_f32_params *p = prepare->params;
  const float *weights = prepare->constants[DW_W], *bias = prepare->constants[DW_BIAS];
  const int64_t taps = p->kernel_height * p->kernel_width, padded = tc_round_up(p->channels, TC_LANES);
  float *packed = (float *)state + padded;
  for (int64_t c = 0; c < p->channels; c++) {
    ((float *)state)[c] = bias ? bias[c] : 0.0f;
    for (int64_t t = 0; t < taps; t++) {
      packed[(c / TC_LANES * taps + t) * TC_LANES + c % TC_LANES] = weights[c * taps + t];
    }
  }
}

/* Where pixel 0 of one output line goes, and what is added to it. Copied out of the band so that the compiler need not
 * read it again behind every store. */
typedef struct dw_line {
  float *out;
  const float *residual;
  int64_t out_pixel, residual_pixel, channels;
  tc_vf low, high;
} dw_line;

TC_INLINE dw_line dw_line_of(const dw_band *band, int64_t line, int64_t out_x) {
  const int64_t pixel = line * band->window->out_width + out_x;
  return (dw_line){.out = band->out + pixel * band->out_pixel,
                   .residual = band->residual ? band->residual + pixel * band->residual_pixel : NULL,
                   .out_pixel = band->out_pixel,
                   .residual_pixel = band->residual_pixel,
                   .channels = band->channels,
                   .low = tc_vf_set1(band->low),
                   .high = tc_vf_set1(band->high)};
}

/* Adds the residual, clamps and stores `count` neighbouring pixels. */
TC_INLINE void dw_store(const int count, const bool whole, const dw_line line, tc_vf *sum) {
  if (line.residual) {
#pragma GCC unroll 4
    for (int p = 0; p < count; p++) {
      sum[p] = tc_vf_add(sum[p], tc_load_column(line.residual + p * line.residual_pixel, !whole, line.channels));
    }
  }
#pragma GCC unroll 4
  for (int p = 0; p < count; p++) {
    const tc_vf y = tc_vf_min(line.high, tc_vf_max(line.low, sum[p]));
    if (whole) {
      tc_vf_store(line.out + p * line.out_pixel, y);
    } else {
      tc_vf_store_first(line.out + p * line.out_pixel, y, line.channels);
    }
  }
}

/* Which of `count` positions that begin at `start` and are `step` apart lie inside [0, size). */
static inline dw_range dw_inside(int64_t start, int64_t step, int64_t count, int64_t size) {
  const int64_t first = start < 0 ? tc_min(tc_ceil_div(-start, step), count) : 0;
  const int64_t last = start >= size ? 0 : tc_min(tc_ceil_div(size - start, step), count);
  return (dw_range){first, tc_max(first, last)};
}

/* One pixel of any window, anywhere. */
static void dw_any_pixel(const dw_band *band, int64_t line, int64_t out_x) {
  const tc_window *w = band->window;
  const int64_t x = out_x * w->stride_width - w->pad_left, y = band->y + line * w->stride_height;
  const dw_range rows = dw_inside(y, w->dilation_height, w->kernel_height, w->height);
  const dw_range columns = dw_inside(x, w->dilation_width, w->kernel_width, w->width);
  tc_vf sum = band->bias;
  for (int64_t i = rows.first; i < rows.last; i++) {
    const float *from = band->x + (y + i * w->dilation_height) * band->x_line;
    const float *weight = band->weights + i * w->kernel_width * TC_LANES;
    for (int64_t j = columns.first; j < columns.last; j++) {
      const tc_vf value = tc_load_column(from + (x + j * w->dilation_width) * band->x_pixel, true, band->channels);
      sum = tc_vf_fma(value, tc_vf_load(weight + j * TC_LANES), sum);
    }
  }
  dw_store(1, false, dw_line_of(band, line, out_x), &sum);
}

/* What a tile reads, again as a copy. */
typedef struct dw_source {
  const float *weights;
  int64_t x_pixel, x_line, channels;
} dw_source;

/* One line of input, which lies in the windows of the output lines [begin, end), over the positions
 * [inside.first, inside.last) of a tile. weights: those of the line of line 0's window that it is. */
TC_INLINE void dw_tile_line(const int begin, const int end, const int pixels, const int size, const int stride,
                            const bool whole, const bool edge, const dw_source *source, const float *weights,
                            const float *x, dw_range inside, tc_vf sum[DW_LINES][DW_PIXELS]) {
#pragma GCC unroll 16
  for (int t = 0; t < (pixels - 1) * stride + size; t++) {
    if (edge && (t < inside.first || t >= inside.last)) {
      continue;
    }
    const float *from = x + t * source->x_pixel;
    const tc_vf value = tc_vf_keep(whole ? tc_vf_load(from) : tc_vf_load_first(from, source->channels));
#pragma GCC unroll 2
    for (int l = begin; l < end; l++) {
#pragma GCC unroll 4
      for (int p = 0; p < pixels; p++) {
        const int j = t - p * stride;
        if (j >= 0 && j < size) {
          const tc_vf weight = tc_vf_load(weights + (j - l * stride * size) * TC_LANES);
          sum[l][p] = tc_vf_fma(value, weight, sum[l][p]);
        }
      }
    }
  }
}

/* All lines of input of a tile of two lines, which lie in the image, for small windows: nothing is left to decide while
 * it runs. */
TC_INLINE void dw_tile_inside(const int pixels, const int size, const int stride, const bool whole,
                              const dw_source *source, const float *x, tc_vf sum[DW_LINES][DW_PIXELS]) {
#pragma GCC unroll 8
  for (int tap = 0; tap < stride + size; tap++) { /* the windows of two lines overlap */
    const float *weights = source->weights + tap * size * TC_LANES;
    dw_tile_line(tap < size ? 0 : 1, tap < stride ? 1 : 2, pixels, size, stride, whole, false, source, weights,
                 x + tap * source->x_line, (dw_range){0, 0}, sum);
  }
}

/* The lines of input [taps.first, taps.last), counted from the first line of line 0's window, all of which lie in the
 * windows of the output lines [begin, end). */
TC_INLINE void dw_tile_lines(const int begin, const int end, const int pixels, const int size, const int stride,
                             const bool whole, const bool edge, const dw_source *source, const float *x, dw_range taps,
                             dw_range inside, tc_vf sum[DW_LINES][DW_PIXELS]) {
  for (int64_t tap = taps.first; tap < taps.last; tap++) {
    const float *weights = source->weights + tap * size * TC_LANES;
    dw_tile_line(begin, end, pixels, size, stride, whole, edge, source, weights, x + tap * source->x_line, inside, sum);
  }
}

/* A tile of square windows without dilation. With `edge`, the windows may leave the image on the left and right. */
TC_INLINE void dw_tile(const int lines, const int pixels, const int size, const int stride, const bool whole,
                       const bool edge, const dw_band *band, int64_t out_x) {
  const dw_source source = {band->weights, band->x_pixel, band->x_line, band->channels};
  const int64_t left = out_x * stride - band->window->pad_left;
  const dw_range inside = dw_inside(left, 1, (pixels - 1) * stride + size, band->window->width);
  const dw_range taps = dw_inside(band->y, 1, (lines - 1) * stride + size, band->window->height);
  tc_vf sum[DW_LINES][DW_PIXELS];
#pragma GCC unroll 2
  for (int l = 0; l < lines; l++) {
#pragma GCC unroll 4
    for (int p = 0; p < pixels; p++) {
      sum[l][p] = band->bias;
    }
  }
  const float *x = band->x + band->y * source.x_line + left * source.x_pixel;
  if (lines == 1) {
    dw_tile_lines(0, 1, pixels, size, stride, whole, edge, &source, x, taps, inside, sum);
  } else if (size == 3 && !edge && taps.first == 0 && taps.last == stride + size) {
    dw_tile_inside(pixels, size, stride, whole, &source, x, sum);
  } else {
    const dw_range above = {taps.first, tc_min(taps.last, stride)};
    const dw_range both = {tc_max(taps.first, stride), tc_min(taps.last, size)};
    const dw_range below = {tc_max(taps.first, size), taps.last};
    dw_tile_lines(0, 1, pixels, size, stride, whole, edge, &source, x, above, inside, sum);
    dw_tile_lines(0, 2, pixels, size, stride, whole, edge, &source, x, both, inside, sum);
    dw_tile_lines(1, 2, pixels, size, stride, whole, edge, &source, x, below, inside, sum);
  }
#pragma GCC unroll 2
  for (int l = 0; l < lines; l++) {
    dw_store(pixels, whole, dw_line_of(band, l, out_x), sum[l]);
  }
}

/* The output pixels [begin, end) whose windows do not leave the image on the left or right. */
static dw_range dw_inner(const tc_window *w) {
  const int64_t reach = (w->kernel_width - 1) * w->dilation_width;
  const int64_t begin = tc_min(tc_ceil_div(w->pad_left, w->stride_width), w->out_width);
  const int64_t room = w->width - 1 - reach + w->pad_left; /* the last window may start here, counted from the pad */
  const int64_t end = room < 0 ? 0 : tc_min(room / w->stride_width + 1, w->out_width);
  return (dw_range){begin, tc_max(begin, end)};
}

/* All tiles of a band. */
TC_INLINE void dw_tiles(const int lines, const int size, const int stride, const bool whole, const dw_band *band) {
  const int64_t width = band->window->out_width;
  int64_t x = 0;
  for (; x + DW_PIXELS <= width; x += DW_PIXELS) {
    if (x >= band->inner.first && x + DW_PIXELS <= band->inner.last) {
      dw_tile(lines, DW_PIXELS, size, stride, whole, false, band, x);
    } else {
      dw_tile(lines, DW_PIXELS, size, stride, whole, true, band, x);
    }
  }
  if (x + 2 <= width) {
    dw_tile(lines, 2, size, stride, whole, true, band, x);
    x += 2;
  }
  if (x < width) {
    dw_tile(lines, 1, size, stride, whole, true, band, x);
  }
}

/* The windows that go through tiles: DW_TILED(size, stride). */
#define DW_TILED_LIST DW_TILED(3, 1) DW_TILED(3, 2) DW_TILED(5, 1) DW_TILED(5, 2) DW_TILED(7, 1)

#define DW_TILED(size, stride)                                                              \
  static __attribute__((noinline)) void dw_band_##size##_by_##stride(const dw_band *band) { \
    if (band->lines < DW_LINES) {                                                           \
      dw_tiles(1, size, stride, false, band);                                               \
    } else if (band->channels < TC_LANES) {                                                 \
      dw_tiles(DW_LINES, size, stride, false, band);                                        \
    } else {                                                                                \
      dw_tiles(DW_LINES, size, stride, true, band);                                         \
    }                                                                                       \
  }
DW_TILED_LIST
#undef DW_TILED

static void dw_band_any(const dw_band *band) {
  for (int64_t l = 0; l < band->lines; l++) {
    for (int64_t x = 0; x < band->window->out_width; x++) {
      dw_any_pixel(band, l, x);
    }
  }
}

typedef void (*dw_band_fn)(const dw_band *band);

static dw_band_fn dw_band_for(const tc_window *w) {
  const bool square = w->kernel_height == w->kernel_width && w->stride_height == w->stride_width;
  if (square && w->dilation_height == 1 && w->dilation_width == 1) {
#define DW_TILED(size, stride)                                    \
  if (w->kernel_width == (size) && w->stride_width == (stride)) { \
    return dw_band_##size##_by_##stride;                          \
  }
    DW_TILED_LIST
#undef DW_TILED
  }
  return dw_band_any;
}

static void TC_NAME(tc_dwconv2d_f32)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_dwconv2d_f32_params *p = call->params;
  if (p->planar) {
    dw_planar(call, begin, end);
    return;
  }
  const tc_window window = TC_WINDOW(p);
  const dw_range inner = dw_inner(&window);
  const dw_band_fn run = dw_band_for(&window);
  const tc_epilogue_f32 epilogue = tc_epilogue(p->activation, p->activation_a, p->activation_b);
  const float *x = call->operands[DW_X], *residual = call->operands[DW_RESIDUAL], *bias = call->state;
  const int64_t padded = tc_round_up(p->channels, TC_LANES), taps = p->kernel_height * p->kernel_width;
  const int64_t image = p->height * p->width * p->x_pixel_stride;
  const int64_t bands = tc_ceil_div(p->out_height, DW_LINES);
  for (int64_t unit = begin; unit < end; unit++) {
    const int64_t line = unit % bands * DW_LINES, first = (unit / bands * p->out_height + line) * p->out_width;
    float *out = (float *)call->operands[DW_Y] + first * p->y_pixel_stride;
    dw_band band = {.window = &window,
                    .inner = inner,
                    .x_pixel = p->x_pixel_stride,
                    .x_line = p->width * p->x_pixel_stride,
                    .y = line * p->stride_height - p->pad_top,
                    .lines = tc_min(p->out_height - line, DW_LINES),
                    .residual_pixel = p->residual_pixel_stride,
                    .out_pixel = p->y_pixel_stride,
                    .low = epilogue.low,
                    .high = epilogue.high};
    for (int64_t c = 0; c < p->channels; c += TC_LANES) {
      band.x = x + unit / bands * image + c;
      band.bias = tc_vf_load(bias + c);
      band.weights = bias + padded + c * taps;
      band.channels = tc_min(p->channels - c, TC_LANES);
      band.residual = residual ? residual + first * p->residual_pixel_stride + c : NULL;
      band.out = out + c;
      run(&band);
    }
    tc_activate_rows(&epilogue, out, p->y_pixel_stride, band.lines * p->out_width, p->channels);
  }
}

#endif
