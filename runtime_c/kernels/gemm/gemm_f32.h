/* gemm_f32: a row-major matrix times a constant one. State: the padded bias, then the packed panels. */
#ifndef TINYCOMP_KERNELS_GEMM_GEMM_F32_H
#define TINYCOMP_KERNELS_GEMM_GEMM_F32_H

#include "vocabulary.h"

#include "../common/activation.h"
#include "pack_f32.h"
#include "block_f32.h"
#include "grid.h"
#include "narrow_f32.h"

enum { GEMM_C, GEMM_A, GEMM_B, GEMM_BIAS, GEMM_RESIDUAL };

static tc_grid gemm_grid(const tc_gemm_f32_params *p, int64_t l2_bytes) {
  const int64_t block_rows = p->block_rows || !tc_is_narrow(p->m, p->k, p->n) ? p->block_rows : TC_NARROW_BLOCK;
  return tc_grid_make(p->m, p->n, p->m * p->k, p->k * p->n, (tc_grid_wish){block_rows, p->panel_order, l2_bytes, 1});
}

static void TC_NAME(tc_gemm_f32_prepare)(tc_prepare *prepare) {
  const tc_gemm_f32_params *p = prepare->params;
  TC_REQUIRE(prepare, p->trans_b == 0 || p->trans_b == 1, "trans_b must be 0 or 1");
  TC_REQUIRE(prepare, p->lda >= p->k && p->ldc >= p->n && (!tc_present(prepare, GEMM_RESIDUAL) || p->ldr >= p->n),
             "a row stride is shorter than its row");
  tc_check_grid(prepare, p->block_rows, p->panel_order);
  tc_check_activation(prepare, p->activation, p->activation_a, p->activation_b);
  const int64_t macs = TC_PRODUCT(prepare, p->m, p->n, p->k);
  if (tc_refused(prepare)) {
    return;
  }
  const int64_t padded = TC_PRODUCT(prepare, p->k + 1, p->n + TC_LANES, sizeof(float));
  tc_touch_rows(prepare, GEMM_C, p->m, p->ldc, p->n, sizeof(float));
  tc_touch_rows(prepare, GEMM_A, p->m, p->lda, p->k, sizeof(float));
  tc_touch(prepare, GEMM_B, TC_PRODUCT(prepare, p->k, p->n), sizeof(float));
  tc_touch(prepare, GEMM_BIAS, p->n, sizeof(float));
  tc_touch_rows(prepare, GEMM_RESIDUAL, p->m, p->ldr, p->n, sizeof(float));
  if (tc_refused(prepare)) {
    return;
  }
  const tc_grid grid = gemm_grid(p, prepare->l2_bytes);
  prepare->units = grid.row_blocks * grid.panels;
  prepare->cost = prepare->work.flops = 2.0 * (double)macs;
  tc_state_of(prepare, padded, sizeof(float));
  TC_SHARE(prepare, p->k, p->n, p->trans_b);
  const int64_t pointers = tc_round_up(grid.block_rows * (int64_t)sizeof(float *), TC_ALIGNMENT);
  prepare->scratch_bytes = pointers + (tc_is_narrow(p->m, p->k, p->n) ? tc_narrow_bytes() : 0);
}

static void TC_NAME(tc_gemm_f32_pack)(const tc_prepare *prepare, void *state) {
  const tc_gemm_f32_params *p = prepare->params;
  float *bias = state;
  if (prepare->constants[GEMM_BIAS] && p->n) {
    memcpy(bias, prepare->constants[GEMM_BIAS], (size_t)p->n * sizeof(float));
  }
  const tc_matrix_f32 b = {.data = prepare->constants[GEMM_B],
                           .taps = 1,
                           .depth = p->k,
                           .columns = p->n,
                           .depth_stride = p->trans_b ? 1 : p->n,
                           .column_stride = p->trans_b ? p->k : 1};
  tc_pack_panels(&b, bias + tc_round_up(p->n, TC_LANES));
}

static void TC_NAME(tc_gemm_f32)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_gemm_f32_params *p = call->params;
  const tc_grid grid = gemm_grid(p, call->l2_bytes);
  const float *a = call->operands[GEMM_A], *residual = call->operands[GEMM_RESIDUAL], *bias = call->state;
  const float *panels = bias + tc_round_up(p->n, TC_LANES), **rows = call->scratch;
  const int64_t pointers = tc_round_up(grid.block_rows * (int64_t)sizeof(float *), TC_ALIGNMENT);
  const bool is_narrow = tc_is_narrow(p->m, p->k, p->n);
  tc_block_f32 block = {.rows = rows,
                        .taps = 1,
                        .depth = p->k,
                        .residual_stride = p->ldr,
                        .c_stride = p->ldc,
                        .epilogue = tc_epilogue(p->activation, p->activation_a, p->activation_b)};
  for (int64_t unit = begin; unit < end; unit++) {
    const tc_place place = tc_grid_place(&grid, unit);
    for (int64_t m = 0; m < place.row_count && !is_narrow; m++) {
      rows[m] = a + (place.row + m) * p->lda;
    }
    block.row_count = place.row_count;
    block.columns = place.column_count;
    block.panel = panels + place.column * p->k;
    block.bias = bias + place.column;
    block.residual = residual ? residual + place.row * p->ldr + place.column : NULL;
    block.c = (float *)call->operands[GEMM_C] + place.row * p->ldc + place.column;
    if (is_narrow) {
      tc_narrow_run(&block, a + place.row * p->lda, p->lda, (float *)((char *)call->scratch + pointers));
    } else {
      tc_grid_run(&grid, &block);
    }
  }
}

#endif
