/* rotary_f32: pairs of features turned by angles that depend on the position (Su et al., 2021). A unit is one position
 * of one batch entry, with all of its heads. */
#ifndef TINYCOMP_KERNELS_ATTENTION_ROTARY_F32_H
#define TINYCOMP_KERNELS_ATTENTION_ROTARY_F32_H

#include "vocabulary.h"

#include "../common/partial.h"
#include "../gather/index.h"

enum { ROTARY_Y, ROTARY_X, ROTARY_COS, ROTARY_SIN, ROTARY_POSITIONS };

static void TC_NAME(tc_rotary_f32_prepare)(tc_prepare *prepare) {
  const tc_rotary_f32_params *p = prepare->params;
  TC_REQUIRE(prepare, p->turned >= 0 && p->turned <= p->size && p->turned % 2 == 0,
             "%lld of %lld features cannot be turned in pairs", (long long)p->turned, (long long)p->size);
  TC_REQUIRE(prepare, p->interleaved == 0 || p->interleaved == 1, "interleaved must be 0 or 1");
  TC_REQUIRE(prepare, p->table_half == 0 || (p->table_half > 0 && !p->interleaved), "table_half is out of range");
  TC_REQUIRE(prepare, p->position_step == 0 || p->position_step == 1, "position_step must be 0 or 1");
  const int64_t count = TC_PRODUCT(prepare, p->batch, p->heads, p->rows, p->size);
#define ROTARY_TOUCH(operand, letter)                                                          \
  tc_touch_matrices(prepare, operand, (const int64_t[]){p->batch, p->heads, p->rows, p->size}, \
                    (const int64_t[]){p->letter##_batch, p->letter##_head, p->letter##_row, 1}, sizeof(float))
  ROTARY_TOUCH(ROTARY_Y, y);
  ROTARY_TOUCH(ROTARY_X, x);
#undef ROTARY_TOUCH
  const bool chosen = tc_present(prepare, ROTARY_POSITIONS);
  const int64_t halves = p->table_half > 0 ? 2 : 1;
  const int64_t width = tc_span(prepare, halves, p->table_half, p->turned / 2);
  const int64_t rows = tc_span(prepare, chosen ? p->table_rows : p->rows, p->table_row, width);
  const int64_t table = chosen ? rows : tc_span(prepare, p->batch, p->table_batch, rows);
  tc_touch(prepare, ROTARY_COS, table, sizeof(float));
  tc_touch(prepare, ROTARY_SIN, table, sizeof(float));
  const int64_t places = p->position_step ? tc_min(p->rows, 1) : p->rows;
  tc_touch(prepare, ROTARY_POSITIONS,
           tc_span(prepare, p->batch, p->position_batch, tc_span(prepare, places, p->position_step ? 0 : 1, 1)), 8);
  if (tc_refused(prepare)) {
    return;
  }
  const double used = (double)tc_min(TC_PRODUCT(prepare, p->batch, p->rows, width), table);
  tc_move(prepare, ROTARY_COS, used, sizeof(float));
  tc_move(prepare, ROTARY_SIN, used, sizeof(float));
  prepare->units = count ? TC_PRODUCT(prepare, p->batch, p->rows) : 0;
  prepare->cost = (double)count * 4;
  prepare->work.flops = TC_COUNT(p->batch, p->heads, p->rows, p->turned) * 3;
}

/* Turns the pairs (i, i + half); the second half has angles of its own, `apart` further on. */
static void rotary_halves(float *y, const float *x, const float *cosines, const float *sines, int64_t half,
                          int64_t apart) {
  for (int64_t i = 0; i < half; i += TC_LANES) {
    const int64_t rest = half - i;
    const tc_vf low = tc_load_up_to(x + i, rest), high = tc_load_up_to(x + half + i, rest);
    const float *c = cosines + i, *s = sines + i;
    const tc_vf first = tc_vf_sub(tc_vf_mul(tc_load_up_to(c, rest), low), tc_vf_mul(tc_load_up_to(s, rest), high));
    const tc_vf second =
        tc_vf_add(tc_vf_mul(tc_load_up_to(s + apart, rest), low), tc_vf_mul(tc_load_up_to(c + apart, rest), high));
    tc_store_up_to(y + i, first, rest);
    tc_store_up_to(y + half + i, second, rest);
  }
}

/* Turns the pairs (2 i, 2 i + 1). */
static void rotary_neighbours(float *y, const float *x, const float *cosines, const float *sines, int64_t half) {
  for (int64_t i = 0; i < half; i++) {
    const float low = x[2 * i], high = x[2 * i + 1];
    y[2 * i] = cosines[i] * low - sines[i] * high;
    y[2 * i + 1] = sines[i] * low + cosines[i] * high;
  }
}

/* The row of the tables for a position, or -1. */
static int64_t rotary_row(const tc_rotary_f32_params *p, const int64_t *positions, int64_t batch, int64_t row) {
  const int64_t at = batch * p->position_batch + (p->position_step ? 0 : row);
  const int64_t first = tc_index(positions, 8, at, p->table_rows);
  return first < 0 || first + row * p->position_step >= p->table_rows ? -1 : first + row * p->position_step;
}

static void TC_NAME(tc_rotary_f32)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_rotary_f32_params *p = call->params;
  const int64_t *positions = call->operands[ROTARY_POSITIONS];
  for (int64_t unit = begin; unit < end; unit++) {
    const int64_t batch = unit / p->rows, row = unit % p->rows;
    int64_t table = batch * p->table_batch + row * p->table_row;
    if (positions) {
      const int64_t position = rotary_row(p, positions, batch, row);
      if (position < 0) {
        tc_fail(call, "a position lies outside the tables of angles");
        return;
      }
      table = position * p->table_row;
    }
    const float *cosines = (const float *)call->operands[ROTARY_COS] + table;
    const float *sines = (const float *)call->operands[ROTARY_SIN] + table;
    for (int64_t head = 0; head < p->heads; head++) {
      const float *x = (const float *)call->operands[ROTARY_X] + batch * p->x_batch + head * p->x_head + row * p->x_row;
      float *y = (float *)call->operands[ROTARY_Y] + batch * p->y_batch + head * p->y_head + row * p->y_row;
      if (p->interleaved) {
        rotary_neighbours(y, x, cosines, sines, p->turned / 2);
      } else {
        rotary_halves(y, x, cosines, sines, p->turned / 2, p->table_half);
      }
      if (y != x) {
        memcpy(y + p->turned, x + p->turned, (size_t)(p->size - p->turned) * sizeof(float));
      }
    }
  }
}

#endif
