/* dwconv2d_f32: depthwise convolution, a vector of channels at a time. A unit is one line of output pixels. State: the
 * padded bias, then the weights as [kernel position][padded channels].
 *
 * Pixels whose window lies inside the image in x go through a fast path of several pixels at once; lines of the window
 * that are above or below the image are left out for the whole output line. */

enum { DW_Y, DW_X, DW_W, DW_BIAS, DW_RESIDUAL };

/* One output line and one vector of channels. */
typedef struct dw_line {
  const tc_window *window;
  const float *x; /* the first channel of the image's first pixel */
  int64_t x_pixel;
  int64_t first_tap, last_tap; /* lines of the window that are inside the image */
  int64_t y;                   /* of the window's first line; may be outside */
  const float *weights;
  int64_t weight_stride; /* padded channels */
  tc_vf bias;
  int64_t channels; /* in this vector */
  const float *residual;
  int64_t residual_pixel;
  float *out;
  int64_t out_pixel;
  float low, high;
} dw_line;

static void dw_check(tc_prepare *prepare) {
  const tc_dwconv2d_f32_params *p = prepare->params;
  const tc_window window = TC_WINDOW(p);
  tc_check_window(prepare, &window);
  tc_check_activation(prepare, p->activation, p->activation_a, p->activation_b);
  TC_REQUIRE(prepare,
             p->x_pixel_stride >= p->channels && p->y_pixel_stride >= p->channels &&
                 (!tc_present(prepare, DW_RESIDUAL) || p->residual_pixel_stride >= p->channels),
             "a pixel stride is smaller than the number of channels");
  tc_touch(prepare, DW_X, tc_image_span(prepare, p->batch, p->height, p->width, p->x_pixel_stride, p->channels),
           sizeof(float));
  tc_touch(prepare, DW_Y, tc_image_span(prepare, p->batch, p->out_height, p->out_width, p->y_pixel_stride, p->channels),
           sizeof(float));
  tc_touch(prepare, DW_RESIDUAL,
           tc_image_span(prepare, p->batch, p->out_height, p->out_width, p->residual_pixel_stride, p->channels),
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
  prepare->units = p->batch * p->out_height;
  prepare->cost = 4.0 * (double)prepare->units * (double)p->out_width * (double)p->channels * (double)taps;
  prepare->state_bytes = TC_PRODUCT(prepare, taps + 1, padded, sizeof(float));
  TC_SHARE(prepare, p->channels, taps);
}

static void TC_NAME(tc_dwconv2d_f32_pack)(const tc_prepare *prepare, void *state) {
  const tc_dwconv2d_f32_params *p = prepare->params;
  const float *weights = prepare->constants[DW_W], *bias = prepare->constants[DW_BIAS];
  const int64_t taps = p->kernel_height * p->kernel_width, padded = tc_round_up(p->channels, TC_LANES);
  float *packed = (float *)state + padded;
  for (int64_t c = 0; c < p->channels; c++) {
    ((float *)state)[c] = bias ? bias[c] : 0.0f;
    for (int64_t t = 0; t < taps; t++) {
      packed[t * padded + c] = weights[c * taps + t];
    }
  }
}

/* Adds the residual, clamps and stores one pixel. */
TC_INLINE void dw_store(const dw_line *line, int64_t out_x, tc_vf sum) {
  if (line->residual) {
    sum = tc_vf_add(sum, tc_load_column(line->residual + out_x * line->residual_pixel, true, line->channels));
  }
  sum = tc_clamp(sum, line->low, line->high);
  float *out = line->out + out_x * line->out_pixel;
  if (line->channels < TC_LANES) {
    tc_vf_store_first(out, sum, line->channels);
  } else {
    tc_vf_store(out, sum);
  }
}

/* One pixel for any window, which may leave the image on either side. */
static void dw_any_pixel(const dw_line *line, int64_t out_x) {
  const tc_window *w = line->window;
  const int64_t x = out_x * w->stride_width - w->pad_left, step = w->dilation_width;
  const int64_t first = x < 0 ? tc_min(tc_ceil_div(-x, step), w->kernel_width) : 0;
  const int64_t last = x >= w->width ? 0 : tc_min(tc_ceil_div(w->width - x, step), w->kernel_width);
  tc_vf sum = line->bias;
  for (int64_t i = line->first_tap; i < line->last_tap; i++) {
    const int64_t row = ((line->y + i * w->dilation_height) * w->width + x) * line->x_pixel;
    const float *weight = line->weights + i * w->kernel_width * line->weight_stride;
    for (int64_t j = first; j < last; j++) {
      const tc_vf value = tc_load_column(line->x + (row + j * step * line->x_pixel), true, line->channels);
      sum = tc_vf_fma(value, tc_vf_load(weight + j * line->weight_stride), sum);
    }
  }
  dw_store(line, out_x, sum);
}

/* Where the input of an inner output pixel starts in one line of the window. */
static inline const float *dw_inner_input(const dw_line *line, int64_t tap_line, int64_t out_x) {
  const tc_window *w = line->window;
  const int64_t x = out_x * w->stride_width - w->pad_left;
  return line->x + ((line->y + tap_line * w->dilation_height) * w->width + x) * line->x_pixel;
}

/* `count` neighbouring inner pixels of a window without dilation in x. Every input vector is loaded once per line of
 * the window and added to all the sums that it belongs to; a sum still sees its positions in their order. */
TC_INLINE void dw_inner_pixels(const int count, const int width, const int stride, const bool whole,
                               const dw_line *line, int64_t out_x) {
  tc_vf sum[8];
#pragma GCC unroll 8
  for (int p = 0; p < count; p++) {
    sum[p] = line->bias;
  }
  for (int64_t i = line->first_tap; i < line->last_tap; i++) {
    const float *x = dw_inner_input(line, i, out_x);
    const float *weights = line->weights + i * width * line->weight_stride;
    tc_vf weight[7];
#pragma GCC unroll 7
    for (int j = 0; j < width; j++) {
      weight[j] = tc_vf_load(weights + j * line->weight_stride);
    }
#pragma GCC unroll 24
    for (int t = 0; t < (count - 1) * stride + width; t++) {
      const tc_vf value = tc_vf_keep(whole ? tc_vf_load(x) : tc_vf_load_first(x, line->channels));
      x += line->x_pixel;
#pragma GCC unroll 8
      for (int p = 0; p < count; p++) {
        const int j = t - p * stride;
        if (j >= 0 && j < width) {
          sum[p] = tc_vf_fma(value, weight[j], sum[p]);
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int p = 0; p < count; p++) {
    dw_store(line, out_x + p, sum[p]);
  }
}

/* The inner pixels [begin, end) of a line. */
TC_INLINE void dw_inner_line(const int count, const int width, const int stride, const bool whole, const dw_line *line,
                             int64_t begin, int64_t end) {
  int64_t x = begin;
  for (; x + count <= end; x += count) {
    dw_inner_pixels(count, width, stride, whole, line, x);
  }
  if (count > 4 && x + 4 <= end) {
    dw_inner_pixels(4, width, stride, whole, line, x);
    x += 4;
  }
  if (x + 2 <= end) {
    dw_inner_pixels(2, width, stride, whole, line, x);
    x += 2;
  }
  for (; x < end; x++) {
    dw_inner_pixels(1, width, stride, whole, line, x);
  }
}

/* The windows with a fast path: DW_FAST(width, stride, pixels at once). */
#define DW_FAST_LIST DW_FAST(3, 1, 8) DW_FAST(3, 2, 4) DW_FAST(5, 1, 8) DW_FAST(5, 2, 4) DW_FAST(7, 1, 8)

#define DW_FAST(width, stride, count)                                                           \
  static void dw_inner_##width##_by_##stride(const dw_line *line, int64_t begin, int64_t end) { \
    if (line->channels == TC_LANES) {                                                           \
      dw_inner_line(count, width, stride, true, line, begin, end);                              \
    } else {                                                                                    \
      dw_inner_line(count, width, stride, false, line, begin, end);                             \
    }                                                                                           \
  }
DW_FAST_LIST
#undef DW_FAST

static void dw_inner_any(const dw_line *line, int64_t begin, int64_t end) {
  for (int64_t x = begin; x < end; x++) {
    dw_any_pixel(line, x);
  }
}

typedef void (*dw_inner_fn)(const dw_line *line, int64_t begin, int64_t end);

static dw_inner_fn dw_inner_for(const tc_window *w) {
#define DW_FAST(width, stride, count)                                                        \
  if (w->kernel_width == (width) && w->stride_width == (stride) && w->dilation_width == 1) { \
    return dw_inner_##width##_by_##stride;                                                   \
  }
  DW_FAST_LIST
#undef DW_FAST
  return dw_inner_any;
}

/* The output pixels [begin, end) whose windows do not leave the image on the left or right. */
static void dw_inner_range(const tc_window *w, int64_t *begin, int64_t *end) {
  const int64_t reach = (w->kernel_width - 1) * w->dilation_width;
  *begin = tc_min(tc_ceil_div(w->pad_left, w->stride_width), w->out_width);
  const int64_t room = w->width - 1 - reach + w->pad_left; /* the last window may start here, counted from the pad */
  *end = room < 0 ? 0 : tc_min(room / w->stride_width + 1, w->out_width);
  *end = tc_max(*end, *begin);
}

static void dw_vector(const dw_line *line) {
  const tc_window *w = line->window;
  int64_t begin, end;
  dw_inner_range(w, &begin, &end);
  for (int64_t x = 0; x < begin; x++) {
    dw_any_pixel(line, x);
  }
  dw_inner_for(w)(line, begin, end);
  for (int64_t x = end; x < w->out_width; x++) {
    dw_any_pixel(line, x);
  }
}

/* Sets the lines of the window that are inside the image. */
static void dw_clip_taps(dw_line *line) {
  const tc_window *w = line->window;
  line->first_tap = line->y < 0 ? tc_min(tc_ceil_div(-line->y, w->dilation_height), w->kernel_height) : 0;
  const int64_t room = w->height - line->y;
  line->last_tap = room <= 0 ? 0 : tc_min(tc_ceil_div(room, w->dilation_height), w->kernel_height);
}

static void TC_NAME(tc_dwconv2d_f32)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_dwconv2d_f32_params *p = call->params;
  const tc_window window = TC_WINDOW(p);
  const tc_epilogue_f32 epilogue = tc_epilogue(p->activation, p->activation_a, p->activation_b);
  const float *x = call->operands[DW_X], *residual = call->operands[DW_RESIDUAL], *bias = call->state;
  const int64_t padded = tc_round_up(p->channels, TC_LANES), image = p->height * p->width * p->x_pixel_stride;
  for (int64_t unit = begin; unit < end; unit++) {
    const int64_t first = unit * p->out_width; /* pixel of the output */
    float *out = (float *)call->operands[DW_Y] + first * p->y_pixel_stride;
    dw_line line = {.window = &window,
                    .x_pixel = p->x_pixel_stride,
                    .y = unit % p->out_height * p->stride_height - p->pad_top,
                    .weight_stride = padded,
                    .residual_pixel = p->residual_pixel_stride,
                    .out_pixel = p->y_pixel_stride,
                    .low = epilogue.low,
                    .high = epilogue.high};
    dw_clip_taps(&line);
    for (int64_t c = 0; c < p->channels; c += TC_LANES) {
      line.x = x + unit / p->out_height * image + c;
      line.bias = tc_vf_load(bias + c);
      line.weights = bias + padded + c;
      line.channels = tc_min(p->channels - c, TC_LANES);
      line.residual = residual ? residual + first * p->residual_pixel_stride + c : NULL;
      line.out = out + c;
      dw_vector(&line);
    }
    tc_activate_rows(&epilogue, out, p->y_pixel_stride, p->out_width, p->channels);
  }
}
