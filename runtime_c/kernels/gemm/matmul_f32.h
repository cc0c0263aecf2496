/* matmul_f32: batched products of two run-time operands. A unit is one block of rows times one panel of one batch;
 * the panel is packed into scratch, and packed again only when the next unit needs another one.
 *
 * Scratch: row pointers, the panel's bias, the packed panel, and the packed rows of A if its columns are not adjacent.
 */
#ifndef TINYCOMP_KERNELS_GEMM_MATMUL_F32_H
#define TINYCOMP_KERNELS_GEMM_MATMUL_F32_H

#include "vocabulary.h"

#include "../common/activation.h"
#include "tile_f32.h"
#include "pack_f32.h"
#include "block_f32.h"
#include "grid.h"

enum { MATMUL_C, MATMUL_A, MATMUL_B, MATMUL_BIAS, MATMUL_RESIDUAL };

enum { MATMUL_BLOCK_ROWS = 192 };

static int64_t matmul_block_rows(const tc_matmul_f32_params *p) {
  return p->block_rows ? p->block_rows : MATMUL_BLOCK_ROWS;
}

static tc_grid matmul_grid(const tc_matmul_f32_params *p) {
  return (tc_grid){.rows = p->m,
                   .columns = p->n,
                   .block_rows = matmul_block_rows(p),
                   .row_blocks = tc_ceil_div(p->m, matmul_block_rows(p)),
                   .panels = tc_ceil_div(p->n, TC_PANEL),
                   .unit_columns = TC_PANEL,
                   .panel_outer = true};
}

static void TC_NAME(tc_matmul_f32_prepare)(tc_prepare *prepare) {
  const tc_matmul_f32_params *p = prepare->params;
  const int64_t macs = TC_PRODUCT(prepare, p->batch0, p->batch1, p->m, p->n, p->k);
  tc_check_grid(prepare, p->block_rows, TC_ORDER_AUTO);
  if (tc_refused(prepare)) {
    return;
  }
  const int64_t block_rows = matmul_block_rows(p), a_rows = p->a_column == 1 ? 0 : block_rows;
  const int64_t floats = TC_PRODUCT(prepare, p->k, TC_PANEL + a_rows, sizeof(float));
#define MATMUL_TOUCH(operand, rows, columns, row, column, batch0_stride, batch1_stride)       \
  tc_touch_matrices(prepare, operand, (const int64_t[]){p->batch0, p->batch1, rows, columns}, \
                    (const int64_t[]){batch0_stride, batch1_stride, row, column}, sizeof(float))
  MATMUL_TOUCH(MATMUL_C, p->m, p->n, p->c_row, 1, p->c_batch0, p->c_batch1);
  MATMUL_TOUCH(MATMUL_A, p->m, p->k, p->a_row, p->a_column, p->a_batch0, p->a_batch1);
  MATMUL_TOUCH(MATMUL_B, p->k, p->n, p->b_row, p->b_column, p->b_batch0, p->b_batch1);
  MATMUL_TOUCH(MATMUL_RESIDUAL, p->m, p->n, p->r_row, 1, p->r_batch0, p->r_batch1);
#undef MATMUL_TOUCH
  tc_touch(prepare, MATMUL_BIAS, p->n, sizeof(float));
  tc_check_activation(prepare, p->activation, p->activation_a, p->activation_b);
  if (tc_refused(prepare)) {
    return;
  }
  const tc_grid grid = matmul_grid(p);
  prepare->units = TC_PRODUCT(prepare, p->batch0, p->batch1, grid.row_blocks * grid.panels);
  prepare->cost = prepare->work.flops = 2.0 * (double)macs;
  prepare->scratch_bytes = floats + block_rows * (int64_t)sizeof(float *) + TC_PANEL * (int64_t)sizeof(float);
}

/* One call's pieces of scratch. */
typedef struct matmul_scratch {
  const float **rows;
  float *bias, *panel, *a;
} matmul_scratch;

static matmul_scratch matmul_scratch_of(const tc_call *call) {
  const tc_matmul_f32_params *p = call->params;
  const float **rows = call->scratch;
  float *bias = (float *)(rows + matmul_block_rows(p));
  return (matmul_scratch){rows, bias, bias + TC_PANEL, bias + TC_PANEL + p->k * TC_PANEL};
}

/* Packs one panel of B, scaled by alpha, and the bias beside it. */
static void matmul_pack_panel(const tc_call *call, const float *b, const tc_place *place) {
  const tc_matmul_f32_params *p = call->params;
  const matmul_scratch scratch = matmul_scratch_of(call);
  const float *bias = call->operands[MATMUL_BIAS];
  for (int64_t j = 0; j < TC_PANEL; j++) {
    scratch.bias[j] = bias && j < place->column_count ? bias[place->column + j] : 0.0f;
  }
  const tc_matrix_f32 matrix = {
      .data = b, .taps = 1, .depth = p->k, .columns = p->n, .depth_stride = p->b_row, .column_stride = p->b_column};
  tc_pack_panel(&matrix, place->column, p->alpha, scratch.panel);
}

/* Points at the rows of A, or at copies of them if their elements are not adjacent. */
static void matmul_point_rows(const tc_call *call, const float *a, const tc_place *place) {
  const tc_matmul_f32_params *p = call->params;
  const matmul_scratch scratch = matmul_scratch_of(call);
  for (int64_t m = 0; m < place->row_count; m++) {
    scratch.rows[m] = p->a_column == 1 ? a + (place->row + m) * p->a_row : scratch.a + m * p->k;
  }
  if (p->a_column == 1) {
    return;
  }
  for (int64_t k = 0; k < p->k; k++) {
    for (int64_t m = 0; m < place->row_count; m++) {
      scratch.a[m * p->k + k] = a[(place->row + m) * p->a_row + k * p->a_column];
    }
  }
}

static void TC_NAME(tc_matmul_f32)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_matmul_f32_params *p = call->params;
  const tc_grid grid = matmul_grid(p);
  const int64_t per_batch = grid.row_blocks * grid.panels;
  const matmul_scratch scratch = matmul_scratch_of(call);
  const float *a = call->operands[MATMUL_A], *b = call->operands[MATMUL_B];
  const float *residual = call->operands[MATMUL_RESIDUAL];
  int64_t packed = -1;
  for (int64_t unit = begin; unit < end; unit++) {
    const int64_t batch = unit / per_batch, outer = batch / p->batch1, inner = batch % p->batch1;
    const tc_place place = tc_grid_place(&grid, unit % per_batch);
    if (packed != unit / grid.row_blocks) {
      packed = unit / grid.row_blocks;
      matmul_pack_panel(call, b + outer * p->b_batch0 + inner * p->b_batch1, &place);
    }
    matmul_point_rows(call, a + outer * p->a_batch0 + inner * p->a_batch1, &place);
    const int64_t r = outer * p->r_batch0 + inner * p->r_batch1 + place.row * p->r_row + place.column;
    const int64_t c = outer * p->c_batch0 + inner * p->c_batch1 + place.row * p->c_row + place.column;
    const tc_block_f32 block = {.rows = scratch.rows,
                                .row_count = place.row_count,
                                .taps = 1,
                                .depth = p->k,
                                .panel = scratch.panel,
                                .columns = place.column_count,
                                .bias = scratch.bias,
                                .residual = residual ? residual + r : NULL,
                                .residual_stride = p->r_row,
                                .c = (float *)call->operands[MATMUL_C] + c,
                                .c_stride = p->c_row,
                                .epilogue = tc_epilogue(p->activation, p->activation_a, p->activation_b)};
    tc_block_run(&block);
  }
}

#endif
