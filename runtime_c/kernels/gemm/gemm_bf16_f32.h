/* gemm_bf16_f32: a row-major matrix times a constant one, both rounded to bfloat16. State: the padded bias, then the
 * packed panels. */
#ifndef TINYCOMP_KERNELS_GEMM_GEMM_BF16_F32_H
#define TINYCOMP_KERNELS_GEMM_GEMM_BF16_F32_H

#include "vocabulary.h"

#include "../common/activation.h"
#include "rounded_bf16.h"

enum { GEMM_BF16_C, GEMM_BF16_A, GEMM_BF16_B, GEMM_BF16_BIAS, GEMM_BF16_RESIDUAL };

static bf16_plan gemm_bf16_plan(const tc_gemm_bf16_f32_params *p, int64_t l2_bytes) {
  return bf16_plan_make(p->m, p->n, 1, p->k, p->block_rows, l2_bytes);
}

static void TC_NAME(tc_gemm_bf16_f32_prepare)(tc_prepare *prepare) {
  const tc_gemm_bf16_f32_params *p = prepare->params;
  TC_REQUIRE(prepare, p->trans_b == 0 || p->trans_b == 1, "trans_b must be 0 or 1");
  TC_REQUIRE(prepare, p->type == TC_TYPE_F32 || p->type == TC_TYPE_BF16, "type %lld is neither float32 nor bfloat16",
             (long long)p->type);
  TC_REQUIRE(prepare, p->lda >= p->k && p->ldc >= p->n && (!tc_present(prepare, GEMM_BF16_RESIDUAL) || p->ldr >= p->n),
             "a row stride is shorter than its row");
  tc_check_grid(prepare, p->block_rows, p->panel_order);
  tc_check_activation(prepare, p->activation, p->activation_a, p->activation_b);
  const int64_t macs = TC_PRODUCT(prepare, p->m, p->n, p->k);
  if (tc_refused(prepare)) {
    return;
  }
  tc_touch_rows(prepare, GEMM_BF16_C, p->m, p->ldc, p->n, sizeof(float));
  tc_touch_rows(prepare, GEMM_BF16_A, p->m, p->lda, p->k, sizeof(float));
  tc_touch(prepare, GEMM_BF16_B, TC_PRODUCT(prepare, p->k, p->n),
           p->type == TC_TYPE_F32 ? (int)sizeof(float) : (int)sizeof(uint16_t));
  tc_touch(prepare, GEMM_BF16_BIAS, p->n, sizeof(float));
  tc_touch_rows(prepare, GEMM_BF16_RESIDUAL, p->m, p->ldr, p->n, sizeof(float));
  TC_PRODUCT(prepare, tc_plus(p->k, 2), tc_plus(p->n, TC_LANES), sizeof(float)); /* bounds what follows */
  if (tc_refused(prepare)) {
    return;
  }
  const bf16_plan plan = gemm_bf16_plan(p, prepare->l2_bytes);
  prepare->units = plan.grid.row_blocks * plan.grid.panels;
  prepare->cost = prepare->work.flops = 2.0 * (double)macs;
  tc_state_of(prepare, (plan.words + 1) * tc_round_up(p->n, TC_LANES) * (int64_t)sizeof(float), sizeof(float));
  prepare->scratch_bytes = bf16_scratch_bytes(prepare, &plan);
  TC_SHARE(prepare, p->k, p->n, p->trans_b, p->type);
}

static void TC_NAME(tc_gemm_bf16_f32_pack)(const tc_prepare *prepare, void *state) {
  const tc_gemm_bf16_f32_params *p = prepare->params;
  float *bias = state;
  if (prepare->constants[GEMM_BF16_BIAS] && p->n) {
    memcpy(bias, prepare->constants[GEMM_BF16_BIAS], (size_t)p->n * sizeof(float));
  }
  const void *data = prepare->constants[GEMM_BF16_B];
  const bf16_plan plan = gemm_bf16_plan(p, prepare->l2_bytes);
  const bf16_matrix b = {.floats = {.data = data,
                                    .taps = 1,
                                    .depth = p->k,
                                    .columns = p->n,
                                    .depth_stride = p->trans_b ? 1 : p->n,
                                    .column_stride = p->trans_b ? p->k : 1},
                         .halves = p->type == TC_TYPE_BF16 ? data : NULL};
  bf16_pack_panels(&plan, &b, bias + tc_round_up(p->n, TC_LANES));
}

static void TC_NAME(tc_gemm_bf16_f32)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_gemm_bf16_f32_params *p = call->params;
  const bf16_plan plan = gemm_bf16_plan(p, call->l2_bytes);
  const float *a = call->operands[GEMM_BF16_A], *residual = call->operands[GEMM_BF16_RESIDUAL], *bias = call->state;
  const float *panels = bias + tc_round_up(p->n, TC_LANES);
  const bf16_rows rounded = bf16_rows_at(&plan, call->scratch);
  tc_block_f32 block = {.rows = rounded.rows,
                        .taps = 1,
                        .depth = plan.words,
                        .residual_stride = p->ldr,
                        .c_stride = p->ldc,
                        .epilogue = tc_epilogue(p->activation, p->activation_a, p->activation_b)};
  int64_t row = -1; /* what the rounded rows belong to */
  for (int64_t unit = begin; unit < end; unit++) {
    const tc_place place = tc_grid_place(&plan.grid, unit);
    if (row != place.row) {
      row = place.row;
      bf16_round_rows(&plan, a + row * p->lda, p->lda, place.row_count, rounded.words);
    }
    block.row_count = place.row_count;
    block.columns = place.column_count;
    block.panel = panels + place.column * plan.words;
    block.bias = bias + place.column;
    block.residual = residual ? residual + place.row * p->ldr + place.column : NULL;
    block.c = (float *)call->operands[GEMM_BF16_C] + place.row * p->ldc + place.column;
    bf16_run(&plan, &block);
  }
}

#endif
