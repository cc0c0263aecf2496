/* gemm_dequant_f32: a float matrix times a constant one of 8 or 4-bit codes with a scale, and perhaps a zero point, for
 * each column or each block along its depth.
 *
 * Few rows are limited by the memory that the codes come from: they are widened as they are loaded, and scales and zero
 * points are applied to the sum of a block. For more rows each panel is dequantised to scratch for the f32
 * micro-kernel.
 *
 * State: the padded bias, then for each panel its scales and zero points [block][columns], then its codes less the
 * middle of their range: bytes [depth][columns], or two numbers of the depth in a byte, the first one below. */
#ifndef TINYCOMP_KERNELS_QUANT8_GEMM_DEQUANT_F32_H
#define TINYCOMP_KERNELS_QUANT8_GEMM_DEQUANT_F32_H

#include "vocabulary.h"

#include "../common/math.h"
#include "../common/partial.h"
#include "../common/activation.h"
#include "../gemm/tile_f32.h"
#include "../gemm/block_f32.h"
#include "qmatmul.h"

enum { DEQUANT_Y, DEQUANT_X, DEQUANT_W, DEQUANT_SCALES, DEQUANT_ZEROS, DEQUANT_BIAS };

enum {
  DEQUANT_VECTORS = 4,
  DEQUANT_COLUMNS = DEQUANT_VECTORS * TC_LANES,
  DEQUANT_FEW_ROWS = 4,
  DEQUANT_BLOCK_ROWS = 192
};

typedef struct dequant_plan {
  bool nibbles, few_rows;
  int64_t block, blocks; /* numbers of the depth; how many blocks */
  int64_t depth;         /* rounded up to an even number */
  int64_t panels, panel_bytes;
  int64_t row_blocks;
} dequant_plan;

static dequant_plan dequant_plan_make(const tc_gemm_dequant_f32_params *p) {
  dequant_plan plan = {.nibbles = p->bits == 4,
                       .few_rows = p->m <= DEQUANT_FEW_ROWS,
                       .block = p->block && p->block < p->k ? p->block : tc_max(p->k, 1),
                       .depth = tc_round_up(p->k, 2),
                       .panels = tc_ceil_div(p->n, DEQUANT_COLUMNS)};
  plan.blocks = tc_ceil_div(p->k, plan.block);
  plan.panel_bytes = tc_round_up(
      DEQUANT_COLUMNS * (2 * plan.blocks * (int64_t)sizeof(float) + plan.depth / (plan.nibbles ? 2 : 1)), TC_ALIGNMENT);
  plan.row_blocks = plan.few_rows ? tc_min(p->m, 1) : tc_ceil_div(p->m, DEQUANT_BLOCK_ROWS);
  return plan;
}

static void TC_NAME(tc_gemm_dequant_f32_prepare)(tc_prepare *prepare) {
  const tc_gemm_dequant_f32_params *p = prepare->params;
  TC_REQUIRE(prepare, p->bits == 8 || p->bits == 4, "no codes have %lld bits", (long long)p->bits);
  TC_REQUIRE(prepare, p->code_type == TC_TYPE_U8 || p->code_type == TC_TYPE_I8, "no codes are of type %lld",
             (long long)p->code_type);
  TC_REQUIRE(prepare, p->block >= 0 && (p->block % 2 == 0 || p->block >= p->k), "a block of %lld is odd",
             (long long)p->block);
  TC_REQUIRE(prepare, p->lda >= p->k && p->ldc >= p->n, "a row stride is shorter than its row");
  tc_check_activation(prepare, p->activation, p->activation_a, p->activation_b);
  const int64_t macs = TC_PRODUCT(prepare, p->m, p->n, p->k), codes = TC_PRODUCT(prepare, p->n, p->k);
  const int64_t padded =
      TC_PRODUCT(prepare, tc_plus(p->n, DEQUANT_COLUMNS), tc_plus(p->k, 2), 9); /* blocks may be of one number */
  if (tc_refused(prepare)) {
    return;
  }
  const dequant_plan plan = dequant_plan_make(p);
  tc_touch_rows(prepare, DEQUANT_Y, p->m, p->ldc, p->n, sizeof(float));
  tc_touch_rows(prepare, DEQUANT_X, p->m, p->lda, p->k, sizeof(float));
  tc_touch(prepare, DEQUANT_W, codes, 1);
  tc_move(prepare, DEQUANT_W, (double)(codes * p->bits / 8), 1);
  tc_touch(prepare, DEQUANT_SCALES, TC_PRODUCT(prepare, p->n, plan.blocks), sizeof(float));
  tc_touch(prepare, DEQUANT_ZEROS, TC_PRODUCT(prepare, p->n, plan.blocks), 1);
  tc_touch(prepare, DEQUANT_BIAS, p->n, sizeof(float));
  if (tc_refused(prepare)) {
    return;
  }
  prepare->units = plan.panels * plan.row_blocks;
  prepare->cost = tc_max(2, p->m) * (double)padded + (double)macs;
  prepare->work.flops = 2.0 * (double)macs;
  prepare->state_bytes = TC_PRODUCT(prepare, plan.panels, plan.panel_bytes + DEQUANT_COLUMNS * (int64_t)sizeof(float));
  const int64_t bias = plan.panels * DEQUANT_COLUMNS;
  tc_state_numbers(prepare, 0, bias, sizeof(float));
  tc_state_repeats(prepare, bias * (int64_t)sizeof(float), 2 * plan.blocks * DEQUANT_COLUMNS, sizeof(float),
                   plan.panels, plan.panel_bytes);
  prepare->scratch_bytes = plan.few_rows ? (p->m + 1) * (plan.depth + plan.blocks) * (int64_t)sizeof(float)
                                         : TC_PRODUCT(prepare, p->k, TC_PANEL, sizeof(float)) +
                                               DEQUANT_BLOCK_ROWS * (int64_t)sizeof(float *);
  TC_SHARE(prepare, p->n, p->k, p->bits, p->block, p->code_type);
}

/* A panel's parts. */
typedef struct dequant_panel {
  float *scales, *zeros;
  int8_t *codes;
} dequant_panel;

static dequant_panel dequant_panel_at(const dequant_plan *plan, const void *state, int64_t panel) {
  char *panels = (char *)state + plan->panels * DEQUANT_COLUMNS * (int64_t)sizeof(float);
  float *scales = (float *)(panels + panel * plan->panel_bytes);
  float *zeros = scales + plan->blocks * DEQUANT_COLUMNS;
  return (dequant_panel){scales, zeros, (int8_t *)(zeros + plan->blocks * DEQUANT_COLUMNS)};
}

static void dequant_pack_column(const tc_prepare *prepare, const dequant_plan *plan, int64_t column, void *state) {
  const tc_gemm_dequant_f32_params *p = prepare->params;
  const dequant_panel panel = dequant_panel_at(plan, state, column / DEQUANT_COLUMNS);
  const uint8_t *codes = (const uint8_t *)prepare->constants[DEQUANT_W] + column * p->k;
  const char *scales = prepare->constants[DEQUANT_SCALES];
  const uint8_t *zeros = prepare->constants[DEQUANT_ZEROS];
  const bool is_signed = p->code_type == TC_TYPE_I8;
  const int32_t middle = is_signed ? 0 : plan->nibbles ? 8 : 128;
  const int64_t j = column % DEQUANT_COLUMNS;
  for (int64_t b = 0; b < plan->blocks; b++) {
    const int64_t at = column * plan->blocks + b;
    memcpy(&panel.scales[b * DEQUANT_COLUMNS + j], scales + at * (int64_t)sizeof(float), sizeof(float));
    panel.zeros[b * DEQUANT_COLUMNS + j] = (float)((zeros ? qmatmul_number(is_signed, zeros, at) : 0) - middle);
  }
  for (int64_t k = 0; k < p->k; k++) {
    const int32_t code = qmatmul_number(is_signed, codes, k) - middle;
    if (plan->nibbles) {
      int8_t *pair = &panel.codes[k / 2 * DEQUANT_COLUMNS + j];
      *pair = (int8_t)(uint8_t)((uint32_t)(uint8_t)*pair | ((uint32_t)code & 15) << (k % 2 * 4));
    } else {
      panel.codes[k * DEQUANT_COLUMNS + j] = (int8_t)code;
    }
  }
}

static void TC_NAME(tc_gemm_dequant_f32_pack)(const tc_prepare *prepare, void *state) {
  const tc_gemm_dequant_f32_params *p = prepare->params;
  const dequant_plan plan = dequant_plan_make(p);
  if (prepare->constants[DEQUANT_BIAS] && p->n) {
    memcpy(state, prepare->constants[DEQUANT_BIAS], (size_t)p->n * sizeof(float));
  }
  for (int64_t column = 0; column < p->n; column++) {
    dequant_pack_column(prepare, &plan, column, state);
  }
}

/* The codes of vector v of a panel at depths k and k + 1, k being even. */
TC_INLINE void dequant_codes(const bool nibbles, const int8_t *codes, int64_t k, int v, tc_vf pair[2]) {
  if (nibbles) {
    const tc_vi both = tc_vi_load_signed_bytes(codes + k / 2 * DEQUANT_COLUMNS + v * TC_LANES);
    pair[0] = tc_vi_to_float(tc_vi_low_nibble(both));
    pair[1] = tc_vi_to_float(tc_vi_high_nibble(both));
  } else {
    const int8_t *at = codes + k * DEQUANT_COLUMNS + v * TC_LANES;
    pair[0] = tc_vi_to_float(tc_vi_load_signed_bytes(at));
    pair[1] = tc_vi_to_float(tc_vi_load_signed_bytes(at + DEQUANT_COLUMNS));
  }
}

/* One row by one panel: x with a zero behind an odd depth, and the sums of x over each block. */
TC_INLINE void dequant_row(const bool nibbles, const dequant_plan *plan, const dequant_panel *panel, const float *x,
                           const float *x_sums, const float *bias, const tc_epilogue_f32 *epilogue, float *y,
                           int64_t columns) {
  tc_vf total[DEQUANT_VECTORS];
#pragma GCC unroll 4
  for (int v = 0; v < DEQUANT_VECTORS; v++) {
    total[v] = tc_vf_load(bias + v * TC_LANES);
  }
  for (int64_t b = 0; b < plan->blocks; b++) {
    const int64_t end = tc_min((b + 1) * plan->block, plan->depth);
    tc_vf sum[DEQUANT_VECTORS][2];
#pragma GCC unroll 4
    for (int v = 0; v < DEQUANT_VECTORS; v++) {
      sum[v][0] = sum[v][1] = tc_vf_set1(0.0f);
    }
    for (int64_t k = b * plan->block; k < end; k += 2) {
      const tc_vf first = tc_vf_set1(x[k]), second = tc_vf_set1(x[k + 1]);
#pragma GCC unroll 4
      for (int v = 0; v < DEQUANT_VECTORS; v++) {
        tc_vf pair[2];
        dequant_codes(nibbles, panel->codes, k, v, pair);
        sum[v][0] = tc_vf_fma(first, pair[0], sum[v][0]);
        sum[v][1] = tc_vf_fma(second, pair[1], sum[v][1]);
      }
    }
    const tc_vf x_sum = tc_vf_set1(x_sums[b]);
#pragma GCC unroll 4
    for (int v = 0; v < DEQUANT_VECTORS; v++) {
      const int64_t at = b * DEQUANT_COLUMNS + v * TC_LANES;
      const tc_vf all = tc_vf_add(sum[v][0], sum[v][1]);
      const tc_vf shifted = tc_vf_sub(all, tc_vf_mul(x_sum, tc_vf_load(panel->zeros + at)));
      total[v] = tc_vf_fma(shifted, tc_vf_load(panel->scales + at), total[v]);
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < DEQUANT_VECTORS; v++) {
    if (columns > v * TC_LANES) {
      tc_store_up_to(y + v * TC_LANES, tc_clamp(total[v], epilogue->low, epilogue->high), columns - v * TC_LANES);
    }
  }
}

static void dequant_few_rows(const tc_call *call, const dequant_plan *plan, int64_t begin, int64_t end) {
  const tc_gemm_dequant_f32_params *p = call->params;
  const tc_epilogue_f32 epilogue = tc_epilogue(p->activation, p->activation_a, p->activation_b);
  float *copies = call->scratch, *sums = copies + p->m * plan->depth;
  for (int64_t m = 0; m < p->m; m++) {
    float *x = copies + m * plan->depth;
    memcpy(x, (const float *)call->operands[DEQUANT_X] + m * p->lda, (size_t)p->k * sizeof(float));
    memset(x + p->k, 0, (size_t)(plan->depth - p->k) * sizeof(float));
    for (int64_t b = 0; b < plan->blocks; b++) {
      float sum = 0.0f;
      for (int64_t k = b * plan->block; k < tc_min((b + 1) * plan->block, p->k); k++) {
        sum += x[k];
      }
      sums[m * plan->blocks + b] = sum;
    }
  }
  for (int64_t unit = begin; unit < end; unit++) {
    const int64_t column = unit * DEQUANT_COLUMNS, columns = tc_min(p->n - column, DEQUANT_COLUMNS);
    const dequant_panel panel = dequant_panel_at(plan, call->state, unit);
    const float *bias = (const float *)call->state + column;
    float *y = (float *)call->operands[DEQUANT_Y] + column;
    for (int64_t m = 0; m < p->m; m++) {
      const float *x = copies + m * plan->depth, *x_sums = sums + m * plan->blocks;
      if (plan->nibbles) {
        dequant_row(true, plan, &panel, x, x_sums, bias, &epilogue, y + m * p->ldc, columns);
      } else {
        dequant_row(false, plan, &panel, x, x_sums, bias, &epilogue, y + m * p->ldc, columns);
      }
    }
    tc_activate_rows(&epilogue, y, p->ldc, p->m, columns);
  }
}

/* Writes the numbers of `vectors` vectors of a panel, from `first` on, as the f32 micro-kernel wants them. */
TC_INLINE void dequant_to_panel(const bool nibbles, const dequant_plan *plan, const dequant_panel *panel, int64_t depth,
                                int first, int vectors, float *out) {
  for (int64_t b = 0; b < plan->blocks; b++) {
    const int64_t end = tc_min((b + 1) * plan->block, depth);
    for (int v = 0; v < vectors; v++) {
      const int64_t at = b * DEQUANT_COLUMNS + (first + v) * TC_LANES;
      const tc_vf scale = tc_vf_load(panel->scales + at), zero = tc_vf_load(panel->zeros + at);
      for (int64_t k = b * plan->block; k < end; k += 2) {
        float *to = out + (k * vectors + v) * TC_LANES;
        tc_vf pair[2];
        dequant_codes(nibbles, panel->codes, k, first + v, pair);
        tc_vf_store(to, tc_vf_mul(tc_vf_sub(pair[0], zero), scale));
        if (k + 1 < depth) {
          tc_vf_store(to + vectors * TC_LANES, tc_vf_mul(tc_vf_sub(pair[1], zero), scale));
        }
      }
    }
  }
}

static void dequant_many_rows(const tc_call *call, const dequant_plan *plan, int64_t begin, int64_t end) {
  const tc_gemm_dequant_f32_params *p = call->params;
  const float **rows = call->scratch;
  float *scratch = (float *)(rows + DEQUANT_BLOCK_ROWS);
  tc_block_f32 block = {.rows = rows,
                        .taps = 1,
                        .depth = p->k,
                        .panel = scratch,
                        .c_stride = p->ldc,
                        .epilogue = tc_epilogue(p->activation, p->activation_a, p->activation_b)};
  for (int64_t unit = begin; unit < end; unit++) {
    const int64_t at = unit / plan->row_blocks, row = unit % plan->row_blocks * DEQUANT_BLOCK_ROWS;
    const dequant_panel panel = dequant_panel_at(plan, call->state, at);
    block.row_count = tc_min(p->m - row, DEQUANT_BLOCK_ROWS);
    for (int64_t m = 0; m < block.row_count; m++) {
      rows[m] = (const float *)call->operands[DEQUANT_X] + (row + m) * p->lda;
    }
    const int64_t last = tc_min(p->n, (at + 1) * DEQUANT_COLUMNS);
    for (int64_t column = at * DEQUANT_COLUMNS; column < last; column += TC_PANEL) {
      const int first = (int)(column % DEQUANT_COLUMNS / TC_LANES);
      block.columns = tc_min(last - column, TC_PANEL);
      const int vectors = (int)tc_ceil_div(block.columns, TC_LANES);
      if (plan->nibbles) {
        dequant_to_panel(true, plan, &panel, p->k, first, vectors, scratch);
      } else {
        dequant_to_panel(false, plan, &panel, p->k, first, vectors, scratch);
      }
      block.bias = (const float *)call->state + column;
      block.c = (float *)call->operands[DEQUANT_Y] + row * p->ldc + column;
      tc_block_run(&block);
    }
  }
}

static void TC_NAME(tc_gemm_dequant_f32)(const tc_call *call, int64_t begin, int64_t end) {
  const dequant_plan plan = dequant_plan_make(call->params);
  (plan.few_rows ? dequant_few_rows : dequant_many_rows)(call, &plan, begin, end);
}

#endif
