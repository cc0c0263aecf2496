/* qpool2d: maximum or average of 8-bit numbers over NHWC windows. A unit is one line of output pixels and a strip of
 * channels. The loops over channels are plain C, which the compiler turns into vectors of bytes or words. */

enum { QPOOL_STRIP = 64 };

static void TC_NAME(tc_qpool2d_prepare)(tc_prepare *prepare) {
  const tc_qpool2d_params *p = prepare->params;
  const tc_window window = TC_WINDOW(p);
  const int64_t most = (int64_t)1 << 24, positions = 1 << 23; /* whose sum is below 2^31 */
  tc_check_window(prepare, &window);
  q8_check_bytes(prepare, TC_TYPE_U8, p->y_zero_point, p->low, p->high);
  q8_check_bytes(prepare, TC_TYPE_U8, p->x_zero_point, 0, 255);
  q8_check_rule(prepare, p->rule);
  TC_REQUIRE(prepare, p->mode >= TC_POOL_MAX && p->mode <= TC_POOL_AVERAGE_WITH_PADS, "there is no pooling mode %lld",
             (long long)p->mode);
  TC_REQUIRE(prepare, p->pad_bottom >= 0 && p->pad_bottom <= most && p->pad_right >= 0 && p->pad_right <= most,
             "a pad is out of range");
  TC_REQUIRE(prepare, TC_PRODUCT(prepare, p->kernel_height, p->kernel_width) <= positions,
             "the sums of a window of %lld x %lld do not fit 32 bits", (long long)p->kernel_height,
             (long long)p->kernel_width);
  TC_REQUIRE(prepare, p->divide == 0 || (p->divide == 1 && p->rule == TC_REQUANTIZE_FLOAT),
             "divide must be 0, or 1 with the float rule");
  TC_REQUIRE(prepare, p->multiplier >= 0 && p->multiplier <= INT32_MAX && p->shift >= -31 && p->shift <= 31,
             "a fixed-point factor is out of range");
  TC_REQUIRE(prepare, p->x_pixel_stride >= p->channels && p->y_pixel_stride >= p->channels,
             "a pixel stride is smaller than the number of channels");
  tc_touch(prepare, POOL_Y,
           tc_image_span(prepare, p->batch, p->out_height, p->out_width, p->y_pixel_stride, p->channels), 1);
  tc_touch(prepare, POOL_X, tc_image_span(prepare, p->batch, p->height, p->width, p->x_pixel_stride, p->channels), 1);
  const int64_t strips = TC_PRODUCT(prepare, p->channels) ? tc_ceil_div(p->channels, QPOOL_STRIP) : 0;
  prepare->units = TC_PRODUCT(prepare, p->batch, p->out_height, strips);
  prepare->cost = 0.25 * (double)p->kernel_height * (double)p->kernel_width * (double)p->out_width *
                  (double)prepare->units * QPOOL_STRIP;
}

/* One output pixel and strip. */
typedef struct qpool_pixel {
  const uint8_t *x; /* the first position inside */
  uint8_t *y;
  int64_t lines, columns;         /* of positions inside */
  int64_t line_step, column_step; /* in elements */
  int64_t channels;
  float factor;
} qpool_pixel;

TC_INLINE void qpool_max(const int64_t channels, const qpool_pixel *pixel, int64_t low, int64_t high) {
  uint8_t most[QPOOL_STRIP];
  memset(most, (int)low, sizeof(most));
  for (int64_t i = 0; i < pixel->lines; i++) {
    const uint8_t *x = pixel->x + i * pixel->line_step;
    for (int64_t j = 0; j < pixel->columns; j++, x += pixel->column_step) {
      for (int64_t c = 0; c < channels; c++) {
        most[c] = x[c] > most[c] ? x[c] : most[c];
      }
    }
  }
  const uint8_t bound = (uint8_t)high;
  for (int64_t c = 0; c < channels; c++) {
    pixel->y[c] = most[c] < bound ? most[c] : bound;
  }
}

TC_INLINE void qpool_sum(const int64_t channels, const qpool_pixel *pixel, int32_t start, int32_t *sums) {
  for (int64_t c = 0; c < channels; c++) {
    sums[c] = start;
  }
  for (int64_t i = 0; i < pixel->lines; i++) {
    const uint8_t *x = pixel->x + i * pixel->line_step;
    for (int64_t j = 0; j < pixel->columns; j++, x += pixel->column_step) {
      for (int64_t c = 0; c < channels; c++) {
        sums[c] += x[c];
      }
    }
  }
}

static void qpool_average(const tc_qpool2d_params *p, const qpool_pixel *pixel) {
  const q8_result result = {
      .type = TC_TYPE_U8, .rule = p->rule, .y_zero_point = p->y_zero_point, .low = p->low, .high = p->high};
  const int32_t start = (int32_t)(-p->x_zero_point * pixel->lines * pixel->columns);
  int32_t sums[QPOOL_STRIP], arrays[Q8_ARRAYS * TC_LANES];
  if (pixel->channels == QPOOL_STRIP) {
    qpool_sum(QPOOL_STRIP, pixel, start, sums);
  } else {
    qpool_sum(pixel->channels, pixel, start, sums);
  }
  for (int64_t lane = 0; lane < TC_LANES; lane++) { /* the same for all channels */
    const int32_t pair[2] = {(int32_t)p->multiplier, (int32_t)p->shift};
    const void *factor = p->rule == TC_REQUANTIZE_FLOAT ? (const void *)&pixel->factor : (const void *)pair;
    q8_pack_factors(&result, factor, 1, arrays + lane, TC_LANES);
  }
  const q8_scale scale = q8_scale_make(&result, arrays, TC_LANES);
  for (int64_t c = 0; c < pixel->channels; c += TC_LANES) {
    const int64_t count = tc_min(pixel->channels - c, TC_LANES);
    q8_finish_rows(&result, &scale, sums + c, 0, (char *)pixel->y + c, 0, 1, count);
  }
}

static void qpool_line(const tc_call *call, int64_t line, int64_t channel, int64_t channels) {
  const tc_qpool2d_params *p = call->params;
  const bool with_pads = p->mode == TC_POOL_AVERAGE_WITH_PADS;
  const int64_t top = line % p->out_height * p->stride_height - p->pad_top;
  const pool_range rows = pool_clip(top, p->dilation_height, p->kernel_height, p->height, p->height + p->pad_bottom);
  const uint8_t *image =
      (const uint8_t *)call->operands[POOL_X] + line / p->out_height * p->height * p->width * p->x_pixel_stride;
  for (int64_t out_x = 0; out_x < p->out_width; out_x++) {
    const int64_t left = out_x * p->stride_width - p->pad_left;
    const pool_range columns = pool_clip(left, p->dilation_width, p->kernel_width, p->width, p->width + p->pad_right);
    const int64_t y = top + rows.first * p->dilation_height, x = left + columns.first * p->dilation_width;
    const int64_t lines = rows.last - rows.first, across = columns.last - columns.first;
    const int64_t counted = with_pads ? rows.counted * columns.counted : lines * across;
    const qpool_pixel pixel = {
        .x = (lines && across ? image + (y * p->width + x) * p->x_pixel_stride : image) + channel,
        .y = (uint8_t *)call->operands[POOL_Y] + (line * p->out_width + out_x) * p->y_pixel_stride + channel,
        .lines = across ? lines : 0,
        .columns = across,
        .line_step = lines > 1 ? p->dilation_height * p->width * p->x_pixel_stride : 0,
        .column_step = across > 1 ? p->dilation_width * p->x_pixel_stride : 0,
        .channels = channels,
        .factor = p->divide ? p->factor / (float)counted : p->factor,
    };
    if (p->mode != TC_POOL_MAX) {
      qpool_average(p, &pixel);
    } else if (channels == QPOOL_STRIP) {
      qpool_max(QPOOL_STRIP, &pixel, p->low, p->high);
    } else {
      qpool_max(channels, &pixel, p->low, p->high);
    }
  }
}

static void TC_NAME(tc_qpool2d)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_qpool2d_params *p = call->params;
  const int64_t strips = tc_ceil_div(p->channels, QPOOL_STRIP);
  for (int64_t unit = begin; unit < end; unit++) {
    const int64_t channel = unit % strips * QPOOL_STRIP;
    qpool_line(call, unit / strips, channel, tc_min(p->channels - channel, QPOOL_STRIP));
  }
}
