/* qresize2d: linear interpolation of NHWC images in integers alone. A unit is one output line. */
#ifndef TINYCOMP_KERNELS_QUANT8_QRESIZE2D_H
#define TINYCOMP_KERNELS_QUANT8_QRESIZE2D_H

#include "vocabulary.h"

#include "requantize.h"

enum { QRESIZE2D_Y, QRESIZE2D_X, QRESIZE2D_LINES, QRESIZE2D_COLUMNS };

enum { QRESIZE2D_PIECE = 256, QRESIZE2D_STEPS = 1 << 11 };

/* One row of a table. */
typedef struct qresize2d_taps {
  int32_t first, second; /* the two positions */
  int32_t weight;        /* of the second one, out of the steps of the axis */
} qresize2d_taps;

static void TC_NAME(tc_qresize2d_prepare)(tc_prepare *prepare) {
  const tc_qresize2d_params *p = prepare->params;
  TC_REQUIRE(prepare, p->line_steps > 0 && p->line_steps <= QRESIZE2D_STEPS, "lines have %lld steps",
             (long long)p->line_steps);
  TC_REQUIRE(prepare, p->column_steps > 0 && p->column_steps <= QRESIZE2D_STEPS, "columns have %lld steps",
             (long long)p->column_steps);
  q8_check_bytes(prepare, TC_TYPE_U8, p->x_zero_point, 0, 255);
  q8_check_bytes(prepare, TC_TYPE_U8, p->y_zero_point, p->low, p->high);
  TC_REQUIRE(prepare, p->multiplier >= 0 && p->multiplier <= INT32_MAX, "the multiplier %lld is out of range",
             (long long)p->multiplier);
  TC_REQUIRE(prepare, p->shift >= -31 && p->shift <= 31, "the shift %lld is out of range", (long long)p->shift);
  TC_REQUIRE(prepare, p->x_pixel_stride >= p->channels && p->y_pixel_stride >= p->channels,
             "a pixel stride is smaller than the number of channels");
  const int64_t count = TC_PRODUCT(prepare, p->batch, p->out_height, p->out_width, p->channels);
  TC_PRODUCT(prepare, p->batch, p->height, p->width, p->channels);
  tc_touch_image(prepare, QRESIZE2D_Y, p->batch, p->out_height, p->out_width, p->y_pixel_stride, p->channels, 1);
  tc_touch_image(prepare, QRESIZE2D_X, p->batch, p->height, p->width, p->x_pixel_stride, p->channels, 1);
  tc_touch(prepare, QRESIZE2D_LINES, TC_PRODUCT(prepare, p->out_height, 3), sizeof(int32_t));
  tc_touch(prepare, QRESIZE2D_COLUMNS, TC_PRODUCT(prepare, p->out_width, 3), sizeof(int32_t));
  if (tc_refused(prepare)) {
    return;
  }
  prepare->units = count ? p->batch * p->out_height : 0;
  prepare->cost = 8.0 * (double)count;
  prepare->work.integer_operations = 12.0 * (double)count; /* six products and what adds them up */
  prepare->scratch_bytes = QRESIZE2D_PIECE * sizeof(int32_t);
}

/* Whether a row of a table names positions of an axis and a weight that is one. */
static bool qresize2d_inside(const qresize2d_taps *t, int64_t size, int64_t steps) {
  return t->first >= 0 && t->first < size && t->second >= 0 && t->second < size && t->weight >= 0 && t->weight <= steps;
}

/* Up to a piece of the channels of one pixel; `of` points at its four neighbours. */
static void qresize2d_pixel(const tc_qresize2d_params *p, uint8_t *y, const uint8_t *const *of, const int32_t *weights,
                            int64_t count, int32_t *sums) {
  const uint8_t *restrict a = of[0], *restrict b = of[1], *restrict c = of[2], *restrict d = of[3];
  const int32_t offset = (int32_t)(p->x_zero_point * p->line_steps * p->column_steps);
  for (int64_t i = 0; i < count; i++) {
    sums[i] = a[i] * weights[0] + b[i] * weights[1] + c[i] * weights[2] + d[i] * weights[3] - offset;
  }
  const tc_vi multiplier = tc_vi_set1((int32_t)p->multiplier), zero = tc_vi_set1((int32_t)p->y_zero_point);
  const tc_vi left = tc_vi_set1((int32_t)tc_max(p->shift, 0)), right = tc_vi_set1((int32_t)tc_max(-p->shift, 0));
  const tc_vi lowest = tc_vi_set1((int32_t)(p->low - p->y_zero_point));
  const tc_vi highest = tc_vi_set1((int32_t)(p->high - p->y_zero_point));
  for (int64_t i = 0; i < count; i += TC_LANES) {
    const tc_vi value = q8_by_fixed_point(q8_load_sums(sums + i, count - i), multiplier, left, right);
    const tc_vi byte = tc_vi_add(tc_vi_min(tc_vi_max(value, lowest), highest), zero);
    tc_vi_store_bytes_first(y + i, byte, tc_min(count - i, TC_LANES));
  }
}

static void TC_NAME(tc_qresize2d)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_qresize2d_params *p = call->params;
  const qresize2d_taps *lines = call->operands[QRESIZE2D_LINES], *columns = call->operands[QRESIZE2D_COLUMNS];
  const int64_t row = p->width * p->x_pixel_stride;
  for (int64_t x = 0; x < p->out_width && begin < end; x++) {
    if (!qresize2d_inside(columns + x, p->width, p->column_steps)) {
      tc_fail(call, "a column in the tables lies outside the image");
      return;
    }
  }
  for (int64_t unit = begin; unit < end; unit++) {
    const qresize2d_taps *line = lines + unit % p->out_height;
    if (!qresize2d_inside(line, p->height, p->line_steps)) {
      tc_fail(call, "a line in the tables lies outside the image");
      return;
    }
    const uint8_t *image = (const uint8_t *)call->operands[QRESIZE2D_X] + unit / p->out_height * p->height * row;
    const uint8_t *above = image + line->first * row, *below = image + line->second * row;
    uint8_t *y = (uint8_t *)call->operands[QRESIZE2D_Y] + unit * p->out_width * p->y_pixel_stride;
    const int32_t lower = line->weight, upper = (int32_t)p->line_steps - lower;
    for (int64_t x = 0; x < p->out_width; x++, y += p->y_pixel_stride) {
      const int64_t left = columns[x].first * p->x_pixel_stride, right = columns[x].second * p->x_pixel_stride;
      const int32_t far = columns[x].weight, near = (int32_t)p->column_steps - far;
      const int32_t weights[4] = {upper * near, upper * far, lower * near, lower * far};
      for (int64_t c = 0; c < p->channels; c += QRESIZE2D_PIECE) {
        const uint8_t *const of[4] = {above + left + c, above + right + c, below + left + c, below + right + c};
        qresize2d_pixel(p, y + c, of, weights, tc_min(p->channels - c, QRESIZE2D_PIECE), call->scratch);
      }
    }
  }
}

#endif
