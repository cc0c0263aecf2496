/* qgemm: a matrix of 8-bit numbers times a constant one. It is a convolution of one line with windows of one pixel. On
 * one thread, a single row of x has been copied before anything of y is written: exported models let y lie over it. */
#ifndef TINYCOMP_KERNELS_QUANT8_QGEMM_H
#define TINYCOMP_KERNELS_QUANT8_QGEMM_H

#include "vocabulary.h"

#include "requantize.h"
#include "tile_q8.h"
#include "pack_q8.h"
#include "input_q8.h"
#include "product_q8.h"

static q8_product qgemm_product(const tc_qgemm_params *p, q8_form form) {
  q8_product product = {.result = Q8_RESULT(p),
                        .groups = 1,
                        .group_weights = p->k * p->n,
                        .y_stride = p->y_row_stride,
                        .block_rows = p->block_rows};
  product.input = (q8_input){.window = {.batch = 1,
                                        .height = 1,
                                        .width = p->m,
                                        .out_height = 1,
                                        .out_width = p->m,
                                        .kernel_height = 1,
                                        .kernel_width = 1,
                                        .stride_height = 1,
                                        .stride_width = 1,
                                        .dilation_height = 1,
                                        .dilation_width = 1},
                             .channels = p->k,
                             .pixel_stride = p->x_row_stride,
                             .form = form};
  product.weights = (q8_weights){.size = q8_weight_size(&product.result),
                                 .taps = 1,
                                 .outer = 1,
                                 .inner = p->k,
                                 .columns = p->n,
                                 .inner_stride = p->trans_b ? 1 : p->n,
                                 .column_stride = p->trans_b ? p->k : 1};
  return product;
}

static void TC_NAME(tc_qgemm_prepare)(tc_prepare *prepare) {
  const tc_qgemm_params *p = prepare->params;
  TC_REQUIRE(prepare, p->trans_b == 0 || p->trans_b == 1, "trans_b must be 0 or 1");
  TC_REQUIRE(prepare, p->x_row_stride >= p->k && p->y_row_stride >= p->n, "a row stride is shorter than its row");
  prepare->work.integer_operations = 2.0 * (double)TC_PRODUCT(prepare, p->m, p->n, p->k);
  TC_PRODUCT(prepare, p->k, p->n);
  const q8_result result = Q8_RESULT(p);
  q8_check_zero_point(prepare, &result, Q8_ZERO);
  tc_touch_rows(prepare, Q8_X, p->m, p->x_row_stride, p->k, 1);
  tc_touch_rows(prepare, Q8_Y, p->m, p->y_row_stride, p->n, q8_size(&result));
  if (tc_refused(prepare)) {
    return;
  }
  const q8_product product = qgemm_product(p, q8_form_of(&result));
  q8_product_prepare(prepare, &product);
  TC_SHARE(prepare, p->k, p->n, p->trans_b, p->x_zero_point, p->weight_type, p->type, p->rule);
}

static void TC_NAME(tc_qgemm_pack)(const tc_prepare *prepare, void *state) {
  const tc_qgemm_params *p = prepare->params;
  const q8_result result = Q8_RESULT(p);
  q8_product product = qgemm_product(p, q8_form_of(&result));
  q8_product_pack(prepare, &product, state);
}

static void TC_NAME(tc_qgemm)(const tc_call *call, int64_t begin, int64_t end) {
  const q8_product product = qgemm_product(call->params, q8_form_in(call->state));
  q8_product_run(call, &product, begin, end);
}

#endif
