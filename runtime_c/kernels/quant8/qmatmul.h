/* qmatmul: batched products of two run-time matrices of 8-bit numbers, whose zero points are known at run time only. A
 * unit is one block of rows times one panel of one batch. Both are copied to scratch as 16-bit numbers less their zero
 * points; the panel, and the rows where one block holds them all, are copied once for all units that need them.
 *
 * Scratch: sums, the panel's arrays of requantize.h, the packed panel, row pointers, copied rows. */
#ifndef TINYCOMP_KERNELS_QUANT8_QMATMUL_H
#define TINYCOMP_KERNELS_QUANT8_QMATMUL_H

#include "vocabulary.h"

#include "../gemm/tile_f32.h"
#include "requantize.h"
#include "tile_q8.h"
#include "pack_q8.h"
#include "block_q8.h"

enum { QMATMUL_Y, QMATMUL_X, QMATMUL_W, QMATMUL_X_ZERO, QMATMUL_W_ZERO, QMATMUL_FACTOR };

enum { QMATMUL_BLOCK_ROWS = 192 };

typedef struct qmatmul_plan {
  q8_result result;
  int64_t block_rows, row_blocks, panels;
  int64_t words, pitch; /* of a row: words, and bytes from one copy to the next */
} qmatmul_plan;

static qmatmul_plan qmatmul_plan_make(const tc_qmatmul_params *p) {
  const int64_t blocks = tc_max(tc_ceil_div(p->m, QMATMUL_BLOCK_ROWS), 1);
  qmatmul_plan plan = {.result = {.weight_type = TC_TYPE_I16,
                                  .type = p->type,
                                  .rule = p->rule,
                                  .y_zero_point = p->y_zero_point,
                                  .low = p->low,
                                  .high = p->high},
                       .block_rows = tc_max(tc_ceil_div(p->m, blocks), 1),
                       .panels = tc_ceil_div(p->n, TC_PANEL),
                       .words = q8_words(p->k, Q8_WIDE)};
  plan.row_blocks = tc_ceil_div(p->m, plan.block_rows);
  plan.pitch = plan.words * 4 + (plan.words % 1024 ? 0 : 64);
  return plan;
}

static void TC_NAME(tc_qmatmul_prepare)(tc_prepare *prepare) {
  const tc_qmatmul_params *p = prepare->params;
  const int64_t macs = TC_PRODUCT(prepare, p->batch0, p->batch1, p->m, p->n, p->k);
  TC_PRODUCT(prepare, p->m, tc_plus(p->n, TC_PANEL), tc_plus(p->k, 4));
  TC_REQUIRE(
      prepare,
      (p->x_type == TC_TYPE_U8 || p->x_type == TC_TYPE_I8) && (p->w_type == TC_TYPE_U8 || p->w_type == TC_TYPE_I8),
      "types %lld and %lld cannot be multiplied here", (long long)p->x_type, (long long)p->w_type);
  TC_REQUIRE(prepare, p->w_zeros == 1 || p->w_zeros == p->n, "%lld zero points do not fit %lld columns",
             (long long)p->w_zeros, (long long)p->n);
  if (tc_refused(prepare)) {
    return;
  }
  const qmatmul_plan plan = qmatmul_plan_make(p);
  tc_touch_matrices(prepare, QMATMUL_Y, (const int64_t[]){p->batch0, p->batch1, p->m, p->n},
                    (const int64_t[]){p->y_batch0, p->y_batch1, p->y_row, 1}, q8_size(&plan.result));
  tc_touch_matrices(prepare, QMATMUL_X, (const int64_t[]){p->batch0, p->batch1, p->m, p->k},
                    (const int64_t[]){p->x_batch0, p->x_batch1, p->x_row, p->x_column}, 1);
  tc_touch_matrices(prepare, QMATMUL_W, (const int64_t[]){p->batch0, p->batch1, p->k, p->n},
                    (const int64_t[]){p->w_batch0, p->w_batch1, p->w_row, p->w_column}, 1);
  tc_touch(prepare, QMATMUL_X_ZERO, 1, 1);
  tc_touch(prepare, QMATMUL_W_ZERO, p->w_zeros, 1);
  q8_check_result(prepare, &plan.result, QMATMUL_FACTOR, 1);
  if (tc_refused(prepare)) {
    return;
  }
  prepare->units = TC_PRODUCT(prepare, p->batch0, p->batch1, plan.row_blocks, plan.panels);
  prepare->cost = (double)macs;
  prepare->work.integer_operations = 2.0 * (double)macs;
  prepare->scratch_bytes =
      TC_PRODUCT(prepare, TC_PANEL * (int64_t)sizeof(int32_t), plan.block_rows + Q8_ARRAYS + plan.words) +
      TC_PRODUCT(prepare, plan.block_rows, plan.pitch + (int64_t)sizeof(char *)) + 64;
}

/* One 8-bit number of either type. */
TC_INLINE int32_t qmatmul_number(bool is_signed, const void *p, int64_t at) {
  return is_signed ? ((const int8_t *)p)[at] : ((const uint8_t *)p)[at];
}

/* `count` numbers that are `step` apart, less a zero point. */
TC_INLINE void qmatmul_widen(const bool is_signed, const bool adjacent, const void *restrict from, int64_t step,
                             int32_t zero_point, int64_t count, int16_t *restrict to) {
  for (int64_t i = 0; i < count; i++) {
    to[i] = (int16_t)(qmatmul_number(is_signed, from, adjacent ? i : i * step) - zero_point);
  }
}

static void qmatmul_copy_row(bool is_signed, const uint8_t *from, int64_t step, int32_t zero_point, int64_t count,
                             int16_t *to) {
  if (step != 1) {
    qmatmul_widen(is_signed, false, from, step, zero_point, count, to);
  } else if (is_signed) {
    qmatmul_widen(true, true, from, 1, zero_point, count, to);
  } else {
    qmatmul_widen(false, true, from, 1, zero_point, count, to);
  }
}

/* Two lines of up to a panel of columns as words; `second` may be absent. */
TC_INLINE void qmatmul_pack_words(const bool is_signed, const bool adjacent, const uint8_t *restrict first,
                                  const uint8_t *restrict second, int64_t step, const int32_t *restrict zero_points,
                                  int64_t columns, int16_t *restrict to) {
  for (int64_t j = 0; j < columns; j++) {
    const int64_t at = adjacent ? j : j * step, word = j / TC_LANES * 2 * TC_LANES, lane = j % TC_LANES;
    to[word + tc_pair_place(lane, 0)] = (int16_t)(qmatmul_number(is_signed, first, at) - zero_points[j]);
    to[word + tc_pair_place(lane, 1)] = (int16_t)(second ? qmatmul_number(is_signed, second, at) - zero_points[j] : 0);
  }
}

static void qmatmul_pack_panel(const tc_qmatmul_params *p, const uint8_t *w, const int32_t *zero_points,
                               int64_t columns, int16_t *panel) {
  const int64_t width = tc_round_up(columns, TC_LANES);
  const bool is_signed = p->w_type == TC_TYPE_I8, adjacent = p->w_column == 1;
  if (width != columns) {
    memset(panel, 0, (size_t)(tc_ceil_div(p->k, 2) * width) * sizeof(int32_t));
  }
  for (int64_t k = 0; k < p->k; k += 2, panel += 2 * width) {
    const uint8_t *first = w + k * p->w_row, *second = k + 1 < p->k ? first + p->w_row : NULL;
    if (adjacent && is_signed && second) {
      qmatmul_pack_words(true, true, first, second, 1, zero_points, columns, panel);
    } else if (adjacent && second) {
      qmatmul_pack_words(false, true, first, second, 1, zero_points, columns, panel);
    } else {
      qmatmul_pack_words(is_signed, false, first, second, p->w_column, zero_points, columns, panel);
    }
  }
}

/* The arrays of requantize.h for the columns of a panel, whose zero points are returned as well. */
static void qmatmul_panel_arrays(const tc_call *call, const q8_result *result, int64_t column, int64_t columns,
                                 int32_t *arrays, int32_t *zero_points) {
  const tc_qmatmul_params *p = call->params;
  const char *zeros = call->operands[QMATMUL_W_ZERO];
  memset(arrays, 0, Q8_ARRAYS * TC_PANEL * sizeof(*arrays));
  for (int64_t j = 0; j < columns; j++) {
    zero_points[j] = zeros ? qmatmul_number(p->w_type == TC_TYPE_I8, zeros, p->w_zeros == 1 ? 0 : column + j) : 0;
    q8_pack_factors(result, call->operands[QMATMUL_FACTOR], 1, arrays + j, TC_PANEL);
  }
}

static void TC_NAME(tc_qmatmul)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_qmatmul_params *p = call->params;
  const qmatmul_plan plan = qmatmul_plan_make(p);
  const bool x_signed = p->x_type == TC_TYPE_I8;
  const int32_t x_zero =
      call->operands[QMATMUL_X_ZERO] ? qmatmul_number(x_signed, call->operands[QMATMUL_X_ZERO], 0) : 0;
  int32_t zero_points[TC_PANEL], *sums = call->scratch, *arrays = sums + plan.block_rows * TC_PANEL;
  int16_t *panel = (int16_t *)(arrays + Q8_ARRAYS * TC_PANEL);
  const char **rows = (const char **)tc_round_up((int64_t)(panel + plan.words * TC_PANEL * 2), TC_ALIGNMENT);
  char *copies = (char *)(rows + plan.block_rows);
  int64_t packed = -1, copied = -1;
  for (int64_t unit = begin; unit < end; unit++) {
    const int64_t of_panel = unit / plan.row_blocks, batch = of_panel / plan.panels, block = unit % plan.row_blocks;
    const int64_t outer = batch / p->batch1, inner = batch % p->batch1, row = block * plan.block_rows;
    const int64_t column = of_panel % plan.panels * TC_PANEL, columns = tc_min(p->n - column, TC_PANEL);
    const int64_t count = tc_min(p->m - row, plan.block_rows);
    if (packed != of_panel) {
      packed = of_panel;
      const int64_t at = outer * p->w_batch0 + inner * p->w_batch1 + column * p->w_column;
      qmatmul_panel_arrays(call, &plan.result, column, columns, arrays, zero_points);
      qmatmul_pack_panel(p, (const uint8_t *)call->operands[QMATMUL_W] + at, zero_points, columns, panel);
    }
    if (copied != batch * plan.row_blocks + block) {
      copied = batch * plan.row_blocks + block;
      const int64_t at = outer * p->x_batch0 + inner * p->x_batch1 + row * p->x_row;
      for (int64_t m = 0; m < count; m++) {
        rows[m] = copies + m * plan.pitch;
        qmatmul_copy_row(x_signed, (const uint8_t *)call->operands[QMATMUL_X] + at + m * p->x_row, p->x_column, x_zero,
                         p->k, (int16_t *)(copies + m * plan.pitch));
      }
    }
    const int64_t y = outer * p->y_batch0 + inner * p->y_batch1 + row * p->y_row + column;
    q8_block_run(&(q8_block){.rows = rows,
                             .row_stride = plan.block_rows,
                             .row_count = count,
                             .panels = 1,
                             .taps = 1,
                             .words = plan.words,
                             .form = Q8_WIDE,
                             .panel = (const char *)panel,
                             .columns = columns,
                             .start = arrays + Q8_SUMS * TC_PANEL,
                             .result = &plan.result,
                             .scale = q8_scale_make(&plan.result, arrays, TC_PANEL),
                             .sums = sums,
                             .y = (char *)call->operands[QMATMUL_Y] + y * q8_size(&plan.result),
                             .y_stride = p->y_row});
  }
}

#endif
