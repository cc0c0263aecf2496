/* qconv2d: convolution of 8-bit numbers. */
#ifndef TINYCOMP_KERNELS_QUANT8_QCONV2D_H
#define TINYCOMP_KERNELS_QUANT8_QCONV2D_H

#include "vocabulary.h"

#include "requantize.h"
#include "tile_q8.h"
#include "pack_q8.h"
#include "input_q8.h"
#include "product_q8.h"

static q8_product qconv_product(const tc_qconv2d_params *p, q8_form form) {
  const int64_t channels = p->channels / p->groups, positions = p->kernel_height * p->kernel_width;
  const int64_t columns = p->out_channels / p->groups;
  q8_product product = {.result = Q8_RESULT(p),
                        .groups = p->groups,
                        .group_weights = columns * channels * positions,
                        .y_stride = p->y_pixel_stride,
                        .block_rows = p->block_rows};
  product.input =
      (q8_input){.window = TC_WINDOW(p), .channels = channels, .pixel_stride = p->x_pixel_stride, .form = form};
  product.input.lines = q8_has_lines(&product.input.window, channels, form);
  product.weights = (q8_weights){.size = q8_weight_size(&product.result),
                                 .taps = q8_taps(&product.input),
                                 .outer = positions / q8_taps(&product.input),
                                 .inner = channels,
                                 .columns = columns,
                                 .tap_stride = p->kernel_width,
                                 .outer_stride = 1,
                                 .inner_stride = positions,
                                 .column_stride = channels * positions};
  return product;
}

/* Checks sizes and strides, and states what is touched of both images. */
static void qconv_check(tc_prepare *prepare) {
  const tc_qconv2d_params *p = prepare->params;
  const tc_window window = TC_WINDOW(p);
  const q8_result result = Q8_RESULT(p);
  tc_check_window(prepare, &window);
  TC_PRODUCT(prepare, p->groups, tc_plus(p->channels, 1), tc_plus(p->out_channels, 1)); /* bounds each of them */
  if (tc_refused(prepare)) {
    return;
  }
  TC_REQUIRE(prepare, p->groups > 0 && p->channels % p->groups == 0 && p->out_channels % p->groups == 0,
             "%lld groups do not divide %lld input and %lld output channels", (long long)p->groups,
             (long long)p->channels, (long long)p->out_channels);
  TC_REQUIRE(prepare, p->x_pixel_stride >= p->channels && p->y_pixel_stride >= p->out_channels,
             "a pixel stride is smaller than the number of channels");
  const int64_t weights =
      TC_PRODUCT(prepare, p->out_channels, p->channels / p->groups, p->kernel_height, p->kernel_width);
  prepare->work.integer_operations = 2.0 * TC_COUNT(p->batch, p->out_height, p->out_width, weights);
  prepare->work.algorithm = p->algorithm;
  q8_check_zero_point(prepare, &result, Q8_ZERO);
  tc_touch_image(prepare, Q8_X, p->batch, p->height, p->width, p->x_pixel_stride, p->channels, 1);
  tc_touch_image(prepare, Q8_Y, p->batch, p->out_height, p->out_width, p->y_pixel_stride, p->out_channels,
                 q8_size(&result));
}

static void TC_NAME(tc_qconv2d_prepare)(tc_prepare *prepare) {
  const tc_qconv2d_params *p = prepare->params;
  const q8_result result = Q8_RESULT(p);
  qconv_check(prepare);
  TC_REQUIRE(prepare, p->algorithm == TC_CONV_AUTO || p->algorithm == TC_CONV_DIRECT, "there is no algorithm %lld here",
             (long long)p->algorithm);
  if (tc_refused(prepare)) {
    return;
  }
  const q8_product product = qconv_product(p, q8_form_of(&result));
  q8_product_prepare(prepare, &product);
  TC_SHARE(prepare, p->groups, p->channels, p->out_channels, p->kernel_height, p->kernel_width, product.input.lines,
           p->x_zero_point, p->weight_type, p->type, p->rule);
}

static void TC_NAME(tc_qconv2d_pack)(const tc_prepare *prepare, void *state) {
  const tc_qconv2d_params *p = prepare->params;
  const q8_result result = Q8_RESULT(p);
  q8_product product = qconv_product(p, q8_form_of(&result));
  q8_product_pack(prepare, &product, state);
}

static void TC_NAME(tc_qconv2d)(const tc_call *call, int64_t begin, int64_t end) {
  const q8_product product = qconv_product(call->params, q8_form_in(call->state));
  q8_product_run(call, &product, begin, end);
}

#endif
