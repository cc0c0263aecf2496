/* gemm_half_f32: a row-major matrix times a constant one in half precision, which holds its numbers exactly.
 *
 * Few rows are limited by the memory that the constant comes from: its numbers are widened as they are loaded. For more
 * rows each panel is widened to scratch for the f32 micro-kernel.
 *
 * State: the padded bias, then the panels as gemm_f32 has them, in half precision. */
#ifndef TINYCOMP_KERNELS_GEMM_GEMM_HALF_F32_H
#define TINYCOMP_KERNELS_GEMM_GEMM_HALF_F32_H

#include "vocabulary.h"

#include "../common/activation.h"
#include "block_f32.h"
#include "few_rows_f32.h"

enum { HALF_C, HALF_A, HALF_B, HALF_BIAS, HALF_RESIDUAL };
enum { HALF_BLOCK_ROWS = 192, HALF_DEPTH = 512, HALF_PACKED_ROWS = 32 };

/* How the product is cut: blocks of rows, and columns of one panel, or of all that few rows take at once. */
typedef struct half_plan {
  int64_t row_blocks, unit_columns, units;
  int64_t padded; /* columns, in whole vectors */
} half_plan;

static half_plan half_plan_make(const tc_gemm_half_f32_params *p) {
  half_plan plan = {.row_blocks = tc_ceil_div(p->m, HALF_BLOCK_ROWS),
                    .unit_columns = (p->m <= TC_FEW_ROWS ? tc_side_panels[p->m] : 1) * TC_PANEL,
                    .padded = tc_round_up(p->n, TC_LANES)};
  plan.units = plan.row_blocks * tc_ceil_div(p->n, plan.unit_columns);
  return plan;
}

static void TC_NAME(tc_gemm_half_f32_prepare)(tc_prepare *prepare) {
  const tc_gemm_half_f32_params *p = prepare->params;
  TC_REQUIRE(prepare, p->trans_b == 0 || p->trans_b == 1, "trans_b must be 0 or 1");
  TC_REQUIRE(prepare, p->type == TC_TYPE_F16 || p->type == TC_TYPE_BF16, "type %lld is no half precision",
             (long long)p->type);
  TC_REQUIRE(prepare, p->lda >= p->k && p->ldc >= p->n && (!tc_present(prepare, HALF_RESIDUAL) || p->ldr >= p->n),
             "a row stride is shorter than its row");
  tc_check_activation(prepare, p->activation, p->activation_a, p->activation_b);
  const int64_t macs = TC_PRODUCT(prepare, p->m, p->n, p->k);
  if (tc_refused(prepare)) {
    return;
  }
  tc_touch_rows(prepare, HALF_C, p->m, p->ldc, p->n, sizeof(float));
  tc_touch_rows(prepare, HALF_A, p->m, p->lda, p->k, sizeof(float));
  tc_touch(prepare, HALF_B, TC_PRODUCT(prepare, p->k, p->n), sizeof(uint16_t));
  tc_touch(prepare, HALF_BIAS, p->n, sizeof(float));
  tc_touch_rows(prepare, HALF_RESIDUAL, p->m, p->ldr, p->n, sizeof(float));
  const half_plan plan = half_plan_make(p);
  prepare->state_bytes = TC_PRODUCT(prepare, p->k + 2, plan.padded, sizeof(uint16_t));
  tc_state_numbers(prepare, 0, plan.padded, sizeof(float));
  tc_state_numbers(prepare, plan.padded * (int64_t)sizeof(float), p->k * plan.padded, sizeof(uint16_t));
  if (tc_refused(prepare)) {
    return;
  }
  prepare->units = plan.units;
  prepare->cost = prepare->work.flops = 2.0 * (double)macs;
  prepare->scratch_bytes = HALF_DEPTH * TC_PANEL * (int64_t)sizeof(float) + HALF_BLOCK_ROWS * (int64_t)sizeof(float *);
  TC_SHARE(prepare, p->k, p->n, p->trans_b, p->type);
}

static uint16_t *half_panels(const tc_gemm_half_f32_params *p, const void *state) {
  return (uint16_t *)((float *)(uintptr_t)state + tc_round_up(p->n, TC_LANES));
}

/* Packs some depths of a panel: the lines of B are read side by side, some at a time, where its columns are far apart.
 */
static void half_pack_part(const tc_gemm_half_f32_params *p, const uint16_t *b, int64_t column, int64_t begin,
                           int64_t end, uint16_t *panel) {
  const int64_t columns = tc_min(p->n - column, TC_PANEL), width = tc_round_up(columns, TC_LANES);
  for (int64_t j = 0; j < columns; j++) {
    for (int64_t k = begin; k < end; k++) {
      panel[k * width + j] = p->trans_b ? b[(column + j) * p->k + k] : b[k * p->n + column + j];
    }
  }
}

static void TC_NAME(tc_gemm_half_f32_pack)(const tc_prepare *prepare, void *state) {
  const tc_gemm_half_f32_params *p = prepare->params;
  if (prepare->constants[HALF_BIAS] && p->n) {
    memcpy(state, prepare->constants[HALF_BIAS], (size_t)p->n * sizeof(float));
  }
  uint16_t *panels = half_panels(p, state);
  for (int64_t column = 0; column < p->n; column += TC_PANEL) {
    for (int64_t k = 0; k < p->k; k += HALF_PACKED_ROWS) {
      half_pack_part(p, prepare->constants[HALF_B], column, k, tc_min(k + HALF_PACKED_ROWS, p->k),
                     panels + column * p->k);
    }
  }
}

/* Runs a block of one panel, which is widened for the f32 micro-kernel part by part: a part stays in the cache. */
TC_INLINE void half_run_panel(const int format, const tc_block_f32 *block, const uint16_t *panel, float *widened) {
  const int64_t width = tc_round_up(block->columns, TC_LANES);
  int64_t begin = 0;
  do { /* once even for a depth of zero, which leaves bias and residual */
    const int64_t count = tc_min(block->depth - begin, HALF_DEPTH), end = begin + count;
    for (int64_t i = 0; i < count * width; i += TC_LANES) {
      tc_vf_store(widened + i, tc_panel_load(format, panel + begin * width, i));
    }
    tc_block_part(block, &(tc_tile_f32){.rows = block->rows,
                                        .taps = 1,
                                        .depth_begin = begin,
                                        .depth = count,
                                        .panel = widened,
                                        .ahead = (const char *)(panel + end * width),
                                        .bias = begin ? NULL : block->bias,
                                        .residual = begin ? NULL : block->residual,
                                        .c = block->c,
                                        .low = end < block->depth ? -INFINITY : block->epilogue.low,
                                        .high = end < block->depth ? INFINITY : block->epilogue.high});
    begin = end;
  } while (begin < block->depth);
  tc_activate_rows(&block->epilogue, block->c, block->c_stride, block->row_count, block->columns);
}

/* A unit whose columns are not as many as few rows take at once: one panel after another. */
static void half_run_panels(int64_t type, const tc_block_f32 *whole, const uint16_t *panels, float *widened) {
  tc_block_f32 part = *whole;
  for (int64_t column = 0; column < whole->columns; column += TC_PANEL) {
    part.columns = tc_min(whole->columns - column, TC_PANEL);
    if (type == TC_TYPE_F16) {
      half_run_panel(TC_PANEL_F16, &part, panels + column * part.depth, widened);
    } else {
      half_run_panel(TC_PANEL_BF16, &part, panels + column * part.depth, widened);
    }
    part.bias += TC_PANEL;
    part.c += TC_PANEL;
    part.residual += part.residual ? TC_PANEL : 0;
  }
}

static void TC_NAME(tc_gemm_half_f32)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_gemm_half_f32_params *p = call->params;
  const half_plan plan = half_plan_make(p);
  const float *residual = call->operands[HALF_RESIDUAL], *bias = call->state, **rows = call->scratch;
  const uint16_t *panels = half_panels(p, call->state);
  float *widened = (float *)(rows + HALF_BLOCK_ROWS);
  tc_block_f32 block = {.rows = rows,
                        .taps = 1,
                        .depth = p->k,
                        .residual_stride = p->ldr,
                        .c_stride = p->ldc,
                        .epilogue = tc_epilogue(p->activation, p->activation_a, p->activation_b)};
  for (int64_t unit = begin; unit < end; unit++) {
    const int64_t row = unit % plan.row_blocks * HALF_BLOCK_ROWS, column = unit / plan.row_blocks * plan.unit_columns;
    block.row_count = tc_min(p->m - row, HALF_BLOCK_ROWS);
    for (int64_t m = 0; m < block.row_count; m++) {
      rows[m] = (const float *)call->operands[HALF_A] + (row + m) * p->lda;
    }
    block.columns = tc_min(p->n - column, plan.unit_columns);
    block.bias = bias + column;
    block.residual = residual ? residual + row * p->ldr + column : NULL;
    block.c = (float *)call->operands[HALF_C] + row * p->ldc + column;
    if (p->m <= TC_FEW_ROWS && block.columns == plan.unit_columns) {
      tc_few[p->m][p->type == TC_TYPE_F16 ? TC_PANEL_F16 : TC_PANEL_BF16](&block, panels + column * p->k);
      tc_activate_rows(&block.epilogue, block.c, block.c_stride, block.row_count, block.columns);
    } else {
      half_run_panels(p->type, &block, panels + column * p->k, widened);
    }
  }
}

#endif
