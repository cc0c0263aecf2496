/* qdwconv2d: depthwise convolution of 8-bit numbers, a vector of channels at a time. A unit is a band of lines of
 * output pixels; what it reads is copied to scratch with its padding, so that no window ends outside.
 *
 * Numbers of two neighbouring lines of the kernel go into pairs, which are multiplied and added at once. State: the
 * arrays of requantize.h, then the weights as pairs, [pair of lines][column][padded channels]. */
#ifndef TINYCOMP_KERNELS_QUANT8_QDWCONV2D_H
#define TINYCOMP_KERNELS_QUANT8_QDWCONV2D_H

#include "vocabulary.h"

#include "requantize.h"
#include "tile_q8.h"
#include "pack_q8.h"
#include "input_q8.h"
#include "product_q8.h"

enum { QDW_LINES = 4, QDW_PIXELS = Q8_PIXELS };

typedef struct qdw_plan {
  q8_result result;
  tc_window window;
  int64_t padded, pairs;
  int64_t pixels, lines; /* of the copies */
  int64_t pitch;         /* bytes of a copied line */
  int64_t bands;         /* of an image */
} qdw_plan;

static qdw_plan qdw_plan_make(const tc_qdwconv2d_params *p) {
  const tc_window w = TC_WINDOW(p);
  qdw_plan plan = {.result = Q8_RESULT(p),
                   .window = w,
                   .padded = tc_round_up(p->channels, TC_LANES),
                   .pairs = tc_ceil_div(w.kernel_height, 2),
                   .pixels = (w.out_width - 1) * w.stride_width + (w.kernel_width - 1) * w.dilation_width + 1,
                   .lines = (QDW_LINES - 1) * w.stride_height + (w.kernel_height - 1) * w.dilation_height + 1,
                   .bands = tc_ceil_div(w.out_height, QDW_LINES)};
  plan.pitch = plan.pixels * p->channels;
  return plan;
}

static void TC_NAME(tc_qdwconv2d_prepare)(tc_prepare *prepare) {
  const tc_qdwconv2d_params *p = prepare->params;
  const tc_window window = TC_WINDOW(p);
  const q8_result result = Q8_RESULT(p);
  tc_check_window(prepare, &window);
  const int64_t weights = TC_PRODUCT(prepare, p->channels, p->kernel_height, p->kernel_width);
  if (tc_refused(prepare)) {
    return;
  }
  TC_REQUIRE(prepare, p->x_pixel_stride >= p->channels && p->y_pixel_stride >= p->channels,
             "a pixel stride is smaller than the number of channels");
  tc_touch_image(prepare, Q8_X, p->batch, p->height, p->width, p->x_pixel_stride, p->channels, 1);
  tc_touch_image(prepare, Q8_Y, p->batch, p->out_height, p->out_width, p->y_pixel_stride, p->channels,
                 q8_size(&result));
  tc_touch(prepare, Q8_W, weights, q8_weight_size(&result));
  tc_touch(prepare, Q8_BIAS, p->channels, sizeof(int32_t));
  q8_check_result(prepare, &result, Q8_FACTOR, p->channels);
  const int64_t outputs = TC_PRODUCT(prepare, p->batch, p->out_height, p->out_width);
  const qdw_plan plan = qdw_plan_make(p);
  const int64_t words = TC_PRODUCT(prepare, p->channels + TC_LANES, plan.pairs + Q8_ARRAYS, p->kernel_width + 1);
  const int64_t copies = outputs ? TC_PRODUCT(prepare, plan.lines, plan.pixels, p->channels) : 0;
  if (tc_refused(prepare)) {
    return;
  }
  prepare->units = p->batch * plan.bands;
  prepare->cost = prepare->work.integer_operations = 2.0 * (double)outputs * (double)weights;
  prepare->state_bytes = TC_PRODUCT(prepare, words, sizeof(int32_t));
  prepare->scratch_bytes = copies + TC_LANES; /* the last pixel is read in whole vectors */
  TC_SHARE(prepare, p->channels, p->kernel_height, p->kernel_width, p->x_zero_point, p->weight_type, p->rule);
}

static void TC_NAME(tc_qdwconv2d_pack)(const tc_prepare *prepare, void *state) {
  const tc_qdwconv2d_params *p = prepare->params;
  const qdw_plan plan = qdw_plan_make(p);
  const char *bias = prepare->constants[Q8_BIAS], *weights = prepare->constants[Q8_W];
  int32_t *arrays = state;
  int16_t *packed = (int16_t *)(arrays + Q8_ARRAYS * plan.padded);
  for (int64_t c = 0; c < p->channels; c++) {
    uint32_t sum = 0;
    for (int64_t i = 0; i < p->kernel_height; i++) {
      for (int64_t j = 0; j < p->kernel_width; j++) {
        const int64_t at = (c * p->kernel_height + i) * p->kernel_width + j;
        const int32_t weight = q8_weight(weights, q8_weight_size(&plan.result), at);
        const int64_t vector = (i / 2 * p->kernel_width + j) * plan.padded + c - c % TC_LANES;
        packed[2 * vector + tc_pair_place(c % TC_LANES, i % 2)] = (int16_t)weight;
        sum += (uint32_t)weight;
      }
    }
    uint32_t added = 0;
    if (bias) {
      memcpy(&added, bias + c * (int64_t)sizeof(added), sizeof(added));
    }
    arrays[Q8_SUMS * plan.padded + c] = (int32_t)(added - (uint32_t)p->x_zero_point * sum);
  }
  q8_pack_factors(&plan.result, prepare->constants[Q8_FACTOR], p->channels, arrays, plan.padded);
}

/* One line of output pixels. */
typedef struct qdw_line {
  const qdw_plan *plan;
  const uint8_t *x; /* the window of pixel 0 among the copies */
  int64_t channels;
  const int32_t *arrays;
  q8_scale scale;
  char *y;
  int64_t y_pixel;
} qdw_line;

/* Stores the sums of `count` pixels from out_x on, in the vector of channels from c on. */
TC_INLINE void qdw_store(const int count, const qdw_line *line, int64_t out_x, int64_t c, const tc_vi *sum) {
  const q8_result *r = &line->plan->result;
  char *y = line->y + (out_x * line->y_pixel + c) * q8_size(r);
  q8_store_pixels(count, r, &line->scale, sum, c, line->channels - c, y, line->y_pixel);
}

/* The numbers of one column of two lines, or of the last line alone. */
TC_INLINE tc_vi qdw_column(const bool is_pair, const uint8_t *x, int64_t line_step) {
  return is_pair ? tc_vi_pair_bytes(x, x + line_step) : tc_vi_pair_byte(x);
}

/* Pixels whose windows overlap: every column is read once and added to all sums that it belongs to. */
TC_INLINE void qdw_tile(const int pixels, const int size, const int stride, const qdw_line *line, int64_t out_x) {
  const int64_t padded = line->plan->padded, pixel = line->channels, line_step = line->plan->pitch;
  const int32_t *weights = line->arrays + Q8_ARRAYS * padded;
  for (int64_t c = 0; c < line->channels; c += TC_LANES) {
    tc_vi sum[QDW_PIXELS];
#pragma GCC unroll 8
    for (int p = 0; p < pixels; p++) {
      sum[p] = tc_vi_load(line->arrays + Q8_SUMS * padded + c);
    }
#pragma GCC unroll 4
    for (int i = 0; i < size; i += 2) {
      const uint8_t *x = line->x + i * line_step + out_x * stride * pixel + c;
      const int32_t *of_lines = weights + i / 2 * size * padded + c;
#pragma GCC unroll 32
      for (int t = 0; t < (pixels - 1) * stride + size; t++) {
        const tc_vi value = qdw_column(i + 1 < size, x, line_step);
        x += pixel;
        TC_OPAQUE(x); /* one pointer that moves, not as many as there are columns */
#pragma GCC unroll 8
        for (int p = 0; p < pixels; p++) {
          const int j = t - p * stride;
          if (j >= 0 && j < size) {
            sum[p] = tc_vi_dot2(sum[p], value, tc_vi_load(of_lines + j * padded));
          }
        }
      }
    }
    qdw_store(pixels, line, out_x, c, sum);
  }
}

/* Whole tiles; the last one begins early where the line is no multiple of them, and computes some pixels again. */
TC_INLINE void qdw_tiles(const int size, const int stride, const qdw_line *line) {
  const int64_t width = line->plan->window.out_width;
  if (width >= QDW_PIXELS) {
    for (int64_t x = 0; x < width; x += QDW_PIXELS) {
      qdw_tile(QDW_PIXELS, size, stride, line, tc_min(x, width - QDW_PIXELS));
    }
  } else if (width >= QDW_PIXELS / 2) {
    qdw_tile(QDW_PIXELS / 2, size, stride, line, 0);
    if (width == QDW_PIXELS / 2 + 1) {
      qdw_tile(1, size, stride, line, width - 1);
    } else if (width > QDW_PIXELS / 2) {
      qdw_tile(QDW_PIXELS / 2, size, stride, line, width - QDW_PIXELS / 2);
    }
  } else {
    for (int64_t x = 0; x < width; x++) {
      qdw_tile(1, size, stride, line, x);
    }
  }
}

/* The windows that go through tiles: QDW_TILED(size, stride). */
#define QDW_TILED_LIST QDW_TILED(3, 1) QDW_TILED(3, 2) QDW_TILED(5, 1) QDW_TILED(5, 2)

#define QDW_TILED(size, stride)                                                               \
  static __attribute__((noinline)) void qdw_line_##size##_by_##stride(const qdw_line *line) { \
    qdw_tiles(size, stride, line);                                                            \
  }
QDW_TILED_LIST
#undef QDW_TILED

/* Any window, pixel by pixel. */
static void qdw_line_any(const qdw_line *line) {
  const tc_window *w = &line->plan->window;
  const int64_t padded = line->plan->padded, line_step = line->plan->pitch * w->dilation_height;
  const int32_t *weights = line->arrays + Q8_ARRAYS * padded;
  for (int64_t out_x = 0; out_x < w->out_width; out_x++) {
    for (int64_t c = 0; c < line->channels; c += TC_LANES) {
      tc_vi sum = tc_vi_load(line->arrays + Q8_SUMS * padded + c);
      for (int64_t i = 0; i < w->kernel_height; i += 2) {
        const uint8_t *x = line->x + i * line_step + out_x * w->stride_width * line->channels + c;
        const int32_t *of_lines = weights + i / 2 * w->kernel_width * padded + c;
        for (int64_t j = 0; j < w->kernel_width; j++) {
          const uint8_t *column = x + j * w->dilation_width * line->channels;
          const tc_vi value = qdw_column(i + 1 < w->kernel_height, column, line_step);
          sum = tc_vi_dot2(sum, value, tc_vi_load(of_lines + j * padded));
        }
      }
      qdw_store(1, line, out_x, c, &sum);
    }
  }
}

typedef void (*qdw_line_fn)(const qdw_line *line);

static qdw_line_fn qdw_line_for(const tc_window *w) {
  const bool square = w->kernel_height == w->kernel_width && w->stride_height == w->stride_width;
  if (square && w->dilation_height == 1 && w->dilation_width == 1) {
#define QDW_TILED(size, stride)                                   \
  if (w->kernel_width == (size) && w->stride_width == (stride)) { \
    return qdw_line_##size##_by_##stride;                         \
  }
    QDW_TILED_LIST
#undef QDW_TILED
  }
  return qdw_line_any;
}

static void TC_NAME(tc_qdwconv2d)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_qdwconv2d_params *p = call->params;
  const qdw_plan plan = qdw_plan_make(p);
  const tc_window *w = &plan.window;
  const q8_input input = {.window = plan.window,
                          .channels = p->channels,
                          .pixel_stride = p->x_pixel_stride,
                          .zero_point = p->x_zero_point,
                          .form = Q8_QUADS}; /* copied as it is */
  const qdw_line_fn run = qdw_line_for(w);
  qdw_line line = {.plan = &plan,
                   .channels = p->channels,
                   .arrays = call->state,
                   .scale = q8_scale_make(&plan.result, call->state, plan.padded),
                   .y_pixel = p->y_pixel_stride};
  for (int64_t unit = begin; unit < end; unit++) {
    const int64_t image = unit / plan.bands, first = unit % plan.bands * QDW_LINES;
    const int64_t lines = tc_min(w->out_height - first, QDW_LINES), top = first * w->stride_height - w->pad_top;
    const int64_t copied = plan.lines - (QDW_LINES - lines) * w->stride_height;
    char *copies = call->scratch;
    for (int64_t i = 0; i < copied; i++) {
      copies = q8_copy_line(&input, call->operands[Q8_X], image, top + i, -w->pad_left, plan.pixels, copies);
    }
    for (int64_t l = 0; l < lines; l++) {
      line.x = (const uint8_t *)call->scratch + l * w->stride_height * plan.pitch;
      line.y = (char *)call->operands[Q8_Y] +
               (image * w->out_height + first + l) * w->out_width * p->y_pixel_stride * q8_size(&plan.result);
      run(&line);
    }
  }
}

#endif
