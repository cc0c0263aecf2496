/* qlstm: the part of a dynamically quantised LSTM that goes from step to step: before each, the hidden states of all
 * rows are quantised with one scale. A unit is one direction. State: the recurrence matrices as a product of 8-bit
 * numbers, a group for each direction.
 *
 * Scratch, in rows of hidden units that are padded to whole vectors: hidden states before and after a step, and cells;
 * the gates of one row, and zeros; then sums and bytes of all directions, and what the product needs. */
#ifndef TINYCOMP_KERNELS_RECURRENT_QLSTM_H
#define TINYCOMP_KERNELS_RECURRENT_QLSTM_H

#include "vocabulary.h"

#include "../quant/quantize_dynamic.h"
#include "../quant8/qgemm.h"
#include "cells.h"

/* The first five are where the product has its result, data, weights, biases and factors. */
enum {
  QLSTM_Y,
  QLSTM_X,
  QLSTM_R,
  QLSTM_R_SUMS,
  QLSTM_R_SCALES,
  QLSTM_LAST_H,
  QLSTM_LAST_C,
  QLSTM_X_SCALE,
  QLSTM_X_ZERO,
  QLSTM_W_SUMS,
  QLSTM_W_SCALES,
  QLSTM_BIAS,
  QLSTM_FIRST_H,
  QLSTM_FIRST_C
};

enum { QLSTM_GATES = 4, QLSTM_STATES = 3 };

static q8_product qlstm_product(const tc_qlstm_params *p, q8_form form) {
  const tc_qgemm_params rows = {.m = p->batch,
                                .n = QLSTM_GATES * p->hidden,
                                .k = p->hidden,
                                .x_row_stride = p->directions * p->hidden,
                                .y_row_stride = p->directions * QLSTM_GATES * p->hidden,
                                .weight_type = p->weight_type,
                                .type = TC_TYPE_I32};
  q8_product product = qgemm_product(&rows, form);
  product.groups = p->directions;
  return product;
}

/* Where in scratch things are, in floats. */
typedef struct qlstm_places {
  int64_t width, gates, zeros, sums, bytes, end;
} qlstm_places;

static qlstm_places qlstm_places_of(const tc_qlstm_params *p) {
  const int64_t width = tc_round_up(p->hidden, TC_LANES), pair = p->batch * p->directions * p->hidden;
  qlstm_places at = {.width = width, .gates = QLSTM_STATES * p->batch * width};
  at.zeros = at.gates + QLSTM_GATES * width;
  at.sums = at.zeros + QLSTM_GATES * width;
  at.bytes = at.sums + QLSTM_GATES * pair;
  at.end = tc_round_up(at.bytes + tc_ceil_div(pair, (int64_t)sizeof(float)), TC_ALIGNMENT / (int64_t)sizeof(float));
  return at;
}

static void TC_NAME(tc_qlstm_prepare)(tc_prepare *prepare) {
  const tc_qlstm_params *p = prepare->params;
  TC_REQUIRE(prepare, p->directions == 1 || p->directions == 2, "there are 1 or 2 directions, not %lld",
             (long long)p->directions);
  TC_REQUIRE(prepare, p->reverse == 0 || p->reverse == 1, "reverse must be 0 or 1");
  const int64_t columns = TC_PRODUCT(prepare, p->directions, QLSTM_GATES, p->hidden);
  const int64_t states = TC_PRODUCT(prepare, p->directions, p->batch, p->hidden);
  TC_PRODUCT(prepare, p->directions, p->batch, tc_plus(p->hidden, TC_LANES), 8 * sizeof(float));
  tc_touch(prepare, QLSTM_Y, TC_PRODUCT(prepare, p->steps, states), sizeof(float));
  tc_touch(prepare, QLSTM_X, TC_PRODUCT(prepare, p->steps, p->batch, columns), sizeof(int32_t));
  for (int i = 0; i < 2; i++) {
    tc_touch(prepare, (int[]){QLSTM_LAST_H, QLSTM_LAST_C}[i], states, sizeof(float));
    tc_touch(prepare, (int[]){QLSTM_FIRST_H, QLSTM_FIRST_C}[i], states, sizeof(float));
  }
  tc_touch(prepare, QLSTM_X_SCALE, 1, sizeof(float));
  tc_touch(prepare, QLSTM_X_ZERO, 1, 1);
  tc_touch(prepare, QLSTM_W_SUMS, columns, sizeof(int32_t));
  tc_touch(prepare, QLSTM_W_SCALES, columns, sizeof(float));
  tc_touch(prepare, QLSTM_BIAS, columns, sizeof(float));
  const int64_t weights = TC_PRODUCT(prepare, columns, p->hidden);
  const double macs = TC_COUNT(p->steps, p->batch, weights);
  if (tc_refused(prepare)) {
    return;
  }
  const q8_result result = {.weight_type = p->weight_type, .type = TC_TYPE_I32};
  const q8_product product = qlstm_product(p, q8_form_of(&result));
  q8_product_prepare(prepare, &product);
  prepare->scratch_bytes += qlstm_places_of(p).end * (int64_t)sizeof(float);
  prepare->units = p->directions;
  prepare->cost = prepare->work.integer_operations = 2.0 * macs;
  TC_SHARE(prepare, p->directions, p->hidden, p->weight_type);
}

static void TC_NAME(tc_qlstm_pack)(const tc_prepare *prepare, void *state) {
  const tc_qlstm_params *p = prepare->params;
  tc_prepare matrices = *prepare;
  matrices.constants[Q8_BIAS] = matrices.constants[Q8_FACTOR] = NULL; /* every step has its own */
  const q8_result result = {.weight_type = p->weight_type, .type = TC_TYPE_I32};
  q8_product product = qlstm_product(p, q8_form_of(&result));
  q8_product_pack(&matrices, &product, state);
}

/* What sums become. */
typedef struct qlstm_scale {
  quant_step step;
  const int32_t *sums; /* of the weights of each column */
  const float *scales;
} qlstm_scale;

/* The gates of one row out of the sums of both products. */
static void qlstm_add(const qlstm_scale *x, const qlstm_scale *h, const float *restrict bias, int64_t columns,
                      const int32_t *restrict of_x, const int32_t *restrict of_h, float *restrict gates) {
  const int32_t *restrict x_sums = x->sums, *restrict h_sums = h->sums;
  const float *restrict x_scales = x->scales, *restrict h_scales = h->scales;
  const int32_t x_zero = x->step.zero, h_zero = h->step.zero;
  const float x_step = x->step.scale, h_step = h->step.scale;
  for (int64_t j = 0; j < columns; j++) {
    const float input = (float)(of_x[j] - x_zero * x_sums[j]) * (x_step * x_scales[j]);
    gates[j] = input + (float)(of_h[j] - h_zero * h_sums[j]) * (h_step * h_scales[j]);
  }
  for (int64_t j = 0; bias && j < columns; j++) {
    gates[j] += bias[j];
  }
}

/* Copies the states of all rows of one direction from an operand, or to it. */
static void qlstm_copy(const tc_call *call, int operand, int64_t direction, float *states, int64_t width, bool out) {
  const tc_qlstm_params *p = call->params;
  float *outside = call->operands[operand];
  for (int64_t m = 0; outside && m < p->batch; m++) {
    float *inner = states + m * width, *outer = outside + (direction * p->batch + m) * p->hidden;
    memcpy(out ? outer : inner, out ? inner : outer, (size_t)p->hidden * sizeof(float));
  }
}

static void qlstm_direction(const tc_call *call, int64_t direction) {
  const tc_qlstm_params *p = call->params;
  const qlstm_places at = qlstm_places_of(p);
  const int64_t columns = QLSTM_GATES * p->hidden, all = p->directions * columns, first = direction * columns;
  float *scratch = call->scratch, *old = scratch, *fresh = old + p->batch * at.width, *c = fresh + p->batch * at.width;
  float *gates = scratch + at.gates, *bias = call->operands[QLSTM_BIAS];
  int32_t *sums = (int32_t *)(scratch + at.sums);
  uint8_t *bytes = (uint8_t *)(scratch + at.bytes);
  const tc_call inner = {.operands = (void *const[]){[Q8_Y] = sums, [Q8_X] = bytes, [Q8_ZERO] = NULL},
                         .state = call->state,
                         .scratch = scratch + at.end,
                         .l2_bytes = call->l2_bytes};
  const q8_product product = qlstm_product(p, q8_form_in(call->state));
  const q8_plan plan = q8_plan_make(&product, call->l2_bytes);
  const int64_t units = plan.cut.blocks * plan.panels;
  const qlstm_scale x = {
      .step = {*(const float *)call->operands[QLSTM_X_SCALE], *(const uint8_t *)call->operands[QLSTM_X_ZERO]},
      .sums = (const int32_t *)call->operands[QLSTM_W_SUMS] + first,
      .scales = (const float *)call->operands[QLSTM_W_SCALES] + first};
  qlstm_scale h = {.sums = (const int32_t *)call->operands[QLSTM_R_SUMS] + first,
                   .scales = (const float *)call->operands[QLSTM_R_SCALES] + first};
  const recurrent_cell cell = {.hidden = p->hidden, .clip = INFINITY};
  memset(scratch, 0, (size_t)at.sums * sizeof(float));
  qlstm_copy(call, QLSTM_FIRST_H, direction, old, at.width, false);
  qlstm_copy(call, QLSTM_FIRST_C, direction, c, at.width, false);
  for (int64_t step = 0; step < p->steps; step++) {
    const int64_t time = p->reverse != direction ? p->steps - 1 - step : step;
    h.step = quant_step_of(old, p->batch * at.width);
    for (int64_t m = 0; m < p->batch; m++) {
      quantize_u8_one(bytes + (m * p->directions + direction) * p->hidden, old + m * at.width, &h.step.scale,
                      &h.step.zero, p->hidden);
    }
    q8_product_run(&inner, &product, direction * units, (direction + 1) * units);
    for (int64_t m = 0; m < p->batch; m++) {
      const int32_t *of_x = (const int32_t *)call->operands[QLSTM_X] + (time * p->batch + m) * all + first;
      qlstm_add(&x, &h, bias ? bias + first : NULL, columns, of_x, sums + m * all + first, gates);
      const recurrent_row row = {.x = gates,
                                 .sums = scratch + at.zeros,
                                 .vectors = at.width / TC_LANES,
                                 .fresh = fresh + m * at.width,
                                 .c = c + m * at.width};
      recurrent_lstm_plain(&cell, &row);
      if (call->operands[QLSTM_Y]) {
        const int64_t to = (time * p->directions + direction) * p->batch + m;
        memcpy((float *)call->operands[QLSTM_Y] + to * p->hidden, row.fresh, (size_t)p->hidden * sizeof(float));
      }
    }
    float *swapped = old;
    old = fresh;
    fresh = swapped;
  }
  qlstm_copy(call, QLSTM_LAST_H, direction, old, at.width, true);
  qlstm_copy(call, QLSTM_LAST_C, direction, c, at.width, true);
}

static void TC_NAME(tc_qlstm)(const tc_call *call, int64_t begin, int64_t end) {
  for (int64_t direction = begin; direction < end; direction++) {
    qlstm_direction(call, direction);
  }
}

#endif
