/* qdwconv2d: depthwise convolution of 8-bit numbers, a vector of channels at a time. A unit is a band of lines of
 * output pixels; what it reads is copied to scratch with its padding, so that no window ends outside.
 *
 * Numbers of two neighbouring lines of the kernel go into pairs, which are multiplied and added at once; or lines are
 * taken one by one where the vocabulary has words of its own for taps. State: the arrays of requantize.h, then the
 * weights, of 16 bits: [pair of lines, or line][column][padded channels]. */
#ifndef TINYCOMP_KERNELS_QUANT8_QDWCONV2D_H
#define TINYCOMP_KERNELS_QUANT8_QDWCONV2D_H

#include "vocabulary.h"

#include "requantize.h"
#include "tile_q8.h"
#include "pack_q8.h"
#include "input_q8.h"
#include "product_q8.h"

/* Pixels of a tile, whose sums stay in registers with the weights of a line. */
/* Lines of a band; few of a large image, where the copies of more would fill a fourth of the cache, or of what takes
 * its place. */
enum { QDW_LINES = 4, QDW_FEW_LINES = 2, QDW_PIXELS = TC_LANES == 1 || TC_REGISTERS < 16 ? 4 : Q8_PIXELS };

#if !TC_TAPS
enum { TC_TAP_LINES = 2, TC_MOST_TAPS = INT32_MAX };
typedef tc_vi tc_vt;

TC_INLINE tc_vt tc_vt_start(tc_vi start) { return start; }
TC_INLINE tc_vi tc_vt_end(tc_vt sum, tc_vi start) {
  (void)start;
  return sum;
}
TC_INLINE tc_vt tc_vt_weights(const int16_t *p) { return tc_vi_load(p); }
/* The numbers of one column of two lines, or of the last line alone. */
TC_INLINE tc_vt tc_vt_column(const bool is_pair, const uint8_t *x, ptrdiff_t line_step) {
  return is_pair ? tc_vi_pair_bytes(x, x + line_step) : tc_vi_pair_byte(x);
}
TC_INLINE tc_vt tc_vt_dot(tc_vt sum, tc_vt x, tc_vt weights) { return tc_vi_dot2(sum, x, weights); }
TC_INLINE int64_t tc_tap_place(int64_t lane, int64_t half) { return tc_pair_place(lane, half); }
TC_INLINE tc_vi tc_vi_tap(const bool is_pair, tc_vi sum, const uint8_t *x, ptrdiff_t line_step,
                          const int16_t *weights) {
  return tc_vi_dot2(sum, tc_vt_column(is_pair, x, line_step), tc_vi_load(weights));
}
#endif

typedef struct qdw_plan {
  q8_result result;
  tc_window window;
  int64_t padded;
  int64_t groups;        /* of lines whose weights lie together */
  int64_t pixels, lines; /* of the copies */
  int64_t pitch;         /* bytes of a copied line */
  int64_t band;          /* lines that are computed from the same copies */
  int64_t bands;         /* of an image */
} qdw_plan;

static qdw_plan qdw_plan_make(const tc_qdwconv2d_params *p, int64_t l2_bytes) {
  const tc_window w = TC_WINDOW(p);
  qdw_plan plan = {.result = Q8_RESULT(p),
                   .window = w,
                   .padded = tc_round_up(p->channels, TC_LANES),
                   .groups = tc_ceil_div(w.kernel_height, TC_TAP_LINES),
                   .pixels = (w.out_width - 1) * w.stride_width + (w.kernel_width - 1) * w.dilation_width + 1,
                   .band = QDW_LINES};
  plan.pitch = plan.pixels * p->channels;
  const int64_t reach = (w.kernel_height - 1) * w.dilation_height + 1;
  plan.lines = (QDW_LINES - 1) * w.stride_height + reach;
  if (plan.pitch > l2_bytes / 4 / plan.lines && plan.pitch > l2_bytes / tc_max(w.height, 1)) {
    plan.band = QDW_FEW_LINES;
    plan.lines = (QDW_FEW_LINES - 1) * w.stride_height + reach;
  }
  plan.bands = tc_ceil_div(w.out_height, plan.band);
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
  q8_check_zero_point(prepare, &result, Q8_ZERO);
  const int64_t outputs = TC_PRODUCT(prepare, p->batch, p->out_height, p->out_width);
  const qdw_plan plan = qdw_plan_make(p, prepare->l2_bytes);
  const int64_t words = TC_PRODUCT(prepare, p->channels + TC_LANES, plan.groups + Q8_ARRAYS, p->kernel_width + 1);
  const int64_t copies = outputs ? TC_PRODUCT(prepare, plan.lines, plan.pixels, p->channels) : 0;
  if (tc_refused(prepare)) {
    return;
  }
  prepare->units = p->batch * plan.bands;
  prepare->cost = prepare->work.integer_operations = 2.0 * (double)outputs * (double)weights;
  prepare->state_bytes = TC_PRODUCT(prepare, words, sizeof(int32_t));
  const int64_t arrays = Q8_ARRAYS * plan.padded;
  tc_state_numbers(prepare, 0, arrays, sizeof(int32_t));
  tc_state_numbers(prepare, arrays * (int64_t)sizeof(int32_t), 2 * (words - arrays), sizeof(int16_t));
  const int64_t starts = tc_present(prepare, Q8_ZERO) ? plan.padded * (int64_t)sizeof(int32_t) : 0;
  prepare->scratch_bytes = starts + copies + TC_LANES; /* the last pixel is read in whole vectors */
  TC_SHARE(prepare, p->channels, p->kernel_height, p->kernel_width, p->x_zero_point, p->weight_type, p->type, p->rule);
}

static void TC_NAME(tc_qdwconv2d_pack)(const tc_prepare *prepare, void *state) {
  const tc_qdwconv2d_params *p = prepare->params;
  const qdw_plan plan = qdw_plan_make(p, prepare->l2_bytes);
  const char *bias = prepare->constants[Q8_BIAS], *weights = prepare->constants[Q8_W];
  int32_t *arrays = state;
  int16_t *packed = (int16_t *)(arrays + Q8_ARRAYS * plan.padded);
  for (int64_t c = 0; c < p->channels; c++) {
    uint32_t sum = 0;
    for (int64_t i = 0; i < p->kernel_height; i++) {
      for (int64_t j = 0; j < p->kernel_width; j++) {
        const int64_t at = (c * p->kernel_height + i) * p->kernel_width + j;
        const int32_t weight = q8_weight(weights, q8_weight_size(&plan.result), at);
        const int64_t vector = (i / TC_TAP_LINES * p->kernel_width + j) * plan.padded + c - c % TC_LANES;
        packed[TC_TAP_LINES * vector + tc_tap_place(c % TC_LANES, i % TC_TAP_LINES)] = (int16_t)weight;
        sum += (uint32_t)weight;
      }
    }
    int32_t added = 0;
    if (bias) {
      memcpy(&added, bias + c * (int64_t)sizeof(added), sizeof(added));
    }
    q8_pack_start(&plan.result, added, sum, 0, arrays + c, plan.padded);
  }
  q8_pack_factors(&plan.result, prepare->constants[Q8_FACTOR], p->channels, arrays, plan.padded);
}

/* One line of output pixels. */
typedef struct qdw_line {
  const qdw_plan *plan;
  const uint8_t *x; /* the window of pixel 0 among the copies */
  int64_t channels;
  const int32_t *arrays, *start;
  q8_scale scale;
  char *y;
  int64_t y_pixel;
} qdw_line;

/* Turns the sums of `count` pixels from out_x on, in the vector of channels from c on, into results of any kind. */
static __attribute__((noinline)) void qdw_finish(int count, const qdw_line *line, int64_t out_x, int64_t c,
                                                 const int32_t *sums) {
  const q8_result *r = &line->plan->result;
  const q8_scale from_c = q8_scale_at(&line->scale, c);
  q8_finish_rows(r, &from_c, sums, TC_LANES, line->y + (out_x * line->y_pixel + c) * q8_size(r), line->y_pixel, count,
                 tc_min(line->channels - c, TC_LANES));
}

/* The sums of pixels whose windows overlap, in one vector of channels: every column is read once and added to all sums
 * that it belongs to. Lines of x and of weights are so many bytes and numbers apart, columns likewise. */
TC_INLINE void qdw_sums(const int pixels, const int size, const int stride, const uint8_t *x, ptrdiff_t x_line,
                        ptrdiff_t x_pixel, const int16_t *weights, ptrdiff_t padded, tc_vi start, tc_vi *total) {
  tc_vt sum[QDW_PIXELS];
#pragma GCC unroll 8
  for (int p = 0; p < pixels; p++) {
    sum[p] = tc_vt_start(start);
  }
#pragma GCC unroll 5
  for (int i = 0; i < size; i += TC_TAP_LINES, x += TC_TAP_LINES * x_line) {
    tc_vt weight[5];
#pragma GCC unroll 5
    for (int j = 0; j < size; j++, weights += TC_TAP_LINES * padded) {
      weight[j] = tc_vt_weights(weights);
    }
    TC_OPAQUE(weights);
    const uint8_t *column = x;
#pragma GCC unroll 32
    for (int t = 0; t < (pixels - 1) * stride + size; t++) {
      const tc_vt value = tc_vt_column(i + 1 < size, column, x_line);
      column += x_pixel;
      TC_OPAQUE(column); /* one pointer that moves, not as many as there are columns */
#pragma GCC unroll 8
      for (int p = 0; p < pixels; p++) {
        const int j = t - p * stride;
        if (j >= 0 && j < size) {
          sum[p] = tc_vt_dot(sum[p], value, weight[j]);
        }
      }
    }
    TC_OPAQUE(x);
  }
#pragma GCC unroll 8
  for (int p = 0; p < pixels; p++) {
    total[p] = tc_vt_end(sum[p], start);
  }
}

/* Pixels whose windows overlap, in all channels. */
TC_INLINE void qdw_tile(const int pixels, const int size, const int stride, const bool is_fused, const qdw_line *line,
                        ptrdiff_t out_x) {
  const ptrdiff_t padded = (ptrdiff_t)line->plan->padded, channels = (ptrdiff_t)line->channels;
  const ptrdiff_t x_line = (ptrdiff_t)line->plan->pitch, y_pixel = (ptrdiff_t)line->y_pixel;
  const int16_t *weights = (const int16_t *)(line->arrays + Q8_ARRAYS * padded);
  const int32_t *start = line->start;
  const uint8_t *x = line->x + out_x * stride * channels;
  /* Copies: stores of bytes may change whatever is behind a pointer. */
  const float *factors = line->scale.factors;
  const q8_bytes bytes = line->scale.bytes;
  uint8_t *y = (uint8_t *)line->y + out_x * y_pixel;
  for (ptrdiff_t left = channels; left > 0; left -= TC_LANES) {
    tc_vi sum[QDW_PIXELS];
    qdw_sums(pixels, size, stride, x, x_line, channels, weights, padded, tc_vi_load(start), sum);
    if (is_fused) {
      const tc_vf factor = tc_vf_load(factors);
      uint8_t *to = y;
#pragma GCC unroll 8
      for (int p = 0; p < pixels; p++, to += y_pixel) {
        q8_store(&bytes, q8_by_float(sum[p], factor), left, to);
      }
    } else {
      int32_t sums[QDW_PIXELS * TC_LANES];
#pragma GCC unroll 8
      for (int p = 0; p < pixels; p++) {
        tc_vi_store(sums + p * TC_LANES, sum[p]);
      }
      qdw_finish(pixels, line, out_x, channels - left, sums);
    }
    x += TC_LANES;
    weights += TC_TAP_LINES * TC_LANES;
    start += TC_LANES;
    factors += TC_LANES;
    y += TC_LANES;
  }
}

/* Whole tiles; the last one begins early where the line is no multiple of them, and computes some pixels again, or has
 * one pixel only. */
TC_INLINE void qdw_tiles(const int size, const int stride, const bool is_fused, const qdw_line *line) {
  const ptrdiff_t width = (ptrdiff_t)line->plan->window.out_width;
  const ptrdiff_t pixels = width < QDW_PIXELS ? QDW_PIXELS / 2 : QDW_PIXELS;
  ptrdiff_t x = 0;
  while (width - x > 1 && width >= pixels) {
    x = width - x < pixels ? width - pixels : x;
    if (pixels == QDW_PIXELS) {
      qdw_tile(QDW_PIXELS, size, stride, is_fused, line, x);
    } else {
      qdw_tile(QDW_PIXELS / 2, size, stride, is_fused, line, x);
    }
    x += pixels;
  }
  for (; x < width; x++) {
    qdw_tile(1, size, stride, is_fused, line, x);
  }
}

/* What goes through tiles: QDW_TILED(size, stride, whether results are bytes by the float rule). An exported project
 * names what its model has. */
#ifndef QDW_TILED_LIST
#define QDW_TILED_LIST  \
  QDW_TILED(3, 1, true) \
  QDW_TILED(3, 2, true) \
  QDW_TILED(5, 1, true) \
  QDW_TILED(5, 2, true) QDW_TILED(3, 1, false) QDW_TILED(3, 2, false) QDW_TILED(5, 1, false) QDW_TILED(5, 2, false)
#endif

#define QDW_TILED(size, stride, is_fused)                                                                  \
  static __attribute__((noinline)) void qdw_line_##size##_by_##stride##_##is_fused(const qdw_line *line) { \
    qdw_tiles(size, stride, is_fused, line);                                                               \
  }
QDW_TILED_LIST
#undef QDW_TILED

/* Any window, pixel by pixel. */
static void qdw_line_any(const qdw_line *line) {
  const tc_window *w = &line->plan->window;
  const int64_t padded = line->plan->padded, line_step = line->plan->pitch * w->dilation_height;
  const int16_t *weights = (const int16_t *)(line->arrays + Q8_ARRAYS * padded);
  for (int64_t out_x = 0; out_x < w->out_width; out_x++) {
    for (int64_t c = 0; c < line->channels; c += TC_LANES) {
      tc_vi sum = tc_vi_load(line->start + c);
      for (int64_t i = 0; i < w->kernel_height; i += TC_TAP_LINES) {
        const uint8_t *x = line->x + i * line_step + out_x * w->stride_width * line->channels + c;
        const int16_t *of_lines = weights + TC_TAP_LINES * (i / TC_TAP_LINES * w->kernel_width * padded + c);
        for (int64_t j = 0; j < w->kernel_width; j++) {
          const uint8_t *column = x + j * w->dilation_width * line->channels;
          sum = tc_vi_tap(i + 1 < w->kernel_height, sum, column, line_step, of_lines + TC_TAP_LINES * j * padded);
        }
      }
      int32_t sums[TC_LANES];
      tc_vi_store(sums, sum);
      qdw_finish(1, line, out_x, c, sums);
    }
  }
}

typedef void (*qdw_line_fn)(const qdw_line *line);

static qdw_line_fn qdw_line_for(const tc_window *w, const q8_result *r) {
  const bool is_square = w->kernel_height == w->kernel_width && w->stride_height == w->stride_width;
  const bool is_exact = r->weight_type == TC_TYPE_I8 && w->kernel_height * w->kernel_width <= TC_MOST_TAPS;
  const bool are_bytes = q8_is_bytes(r) && r->rule == TC_REQUANTIZE_FLOAT;
  if (is_exact && is_square && w->dilation_height == 1 && w->dilation_width == 1) {
#define QDW_TILED(size, stride, is_fused)                                                    \
  if (w->kernel_width == (size) && w->stride_width == (stride) && are_bytes == (is_fused)) { \
    return qdw_line_##size##_by_##stride##_##is_fused;                                       \
  }
    QDW_TILED_LIST
#undef QDW_TILED
  }
  (void)are_bytes;
  return qdw_line_any;
}

static void TC_NAME(tc_qdwconv2d)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_qdwconv2d_params *p = call->params;
  const qdw_plan plan = qdw_plan_make(p, call->l2_bytes);
  const tc_window *w = &plan.window;
  const void *zero_point = call->operands[Q8_ZERO];
  int32_t *own = call->scratch;
  char *lines_of_x = (char *)(own + (zero_point ? plan.padded : 0));
  const q8_input input = {.window = plan.window,
                          .channels = p->channels,
                          .pixel_stride = p->x_pixel_stride,
                          .zero_point = q8_zero_point(zero_point, &plan.result),
                          .form = Q8_QUADS}; /* copied as it is */
  const qdw_line_fn run = qdw_line_for(w, &plan.result);
  qdw_line line = {.plan = &plan,
                   .channels = p->channels,
                   .arrays = call->state,
                   .start = q8_start(zero_point, call->state, plan.padded, plan.padded, own),
                   .scale = q8_scale_make(&plan.result, call->state, plan.padded),
                   .y_pixel = p->y_pixel_stride};
  for (int64_t unit = begin; unit < end; unit++) {
    const int64_t image = unit / plan.bands, first = unit % plan.bands * plan.band;
    const int64_t lines = tc_min(w->out_height - first, plan.band), top = first * w->stride_height - w->pad_top;
    const int64_t copied = plan.lines - (plan.band - lines) * w->stride_height;
    char *copies = lines_of_x;
    for (int64_t i = 0; i < copied; i++) {
      copies = q8_copy_line(&input, call->operands[Q8_X], image, top + i, -w->pad_left, plan.pixels, copies);
    }
    for (int64_t l = 0; l < lines; l++) {
      line.x = (const uint8_t *)lines_of_x + l * w->stride_height * plan.pitch;
      line.y = (char *)call->operands[Q8_Y] +
               (image * w->out_height + first + l) * w->out_width * p->y_pixel_stride * q8_size(&plan.result);
      run(&line);
    }
  }
}

#endif
