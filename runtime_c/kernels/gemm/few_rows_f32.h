/* Few rows: panels side by side. One panel alone has too few sums to hide the latency of a multiply-add, and every line
 * of it is used so little that all depends on its arrival: read from the second or third level of the cache, four
 * panels at once take a single row half the time of one after another. Every element is still one sum in the order of
 * its depth. */
#ifndef TINYCOMP_KERNELS_GEMM_FEW_ROWS_F32_H
#define TINYCOMP_KERNELS_GEMM_FEW_ROWS_F32_H

#include "vocabulary.h"

#include "../common/activation.h"
#include "tile_f32.h"
#include "block_f32.h"

enum { TC_FEW_ROWS = 5 };

/* How many panels, by the number of rows: as many sums as the smallest number of registers holds. */
static const int tc_side_panels[TC_FEW_ROWS + 1] = {1, 4, 2, 2, 1, 1};

/* Asks for what a panel holds this far ahead of its use. */
enum { TC_NEAR_BYTES = 512 };

/* How the numbers of a panel are stored: half precision is widened as it is loaded; pairs of it are multiplied by pairs
 * (tile_bf16.h). */
enum { TC_PANEL_F32, TC_PANEL_F16, TC_PANEL_BF16, TC_PANEL_FORMATS, TC_PANEL_PAIRS };

/* Bytes of a number, or of a pair. */
TC_INLINE int64_t tc_panel_bytes(const int format) {
  return format == TC_PANEL_F32 || format == TC_PANEL_PAIRS ? (int64_t)sizeof(float) : (int64_t)sizeof(uint16_t);
}

TC_INLINE tc_vf tc_panel_load(const int format, const void *panel, int64_t at) {
  switch (format) {
    case TC_PANEL_F16:
      return tc_vf_load_halves((const uint16_t *)panel + at);
    case TC_PANEL_BF16:
      return tc_vf_load_bfloats((const uint16_t *)panel + at);
    default:
      return tc_vf_load((const float *)panel + at);
  }
}

/* The sums of mr rows by np panels, vector by vector; the array bounds must be literals. */
typedef struct tc_few_sums {
  tc_vf v[TC_FEW_ROWS][4 * TC_TILE_VECTORS];
} tc_few_sums;

TC_INLINE void tc_few_start(const int mr, const int np, const tc_block_f32 *block, tc_few_sums *sum) {
#pragma GCC unroll 5
  for (int m = 0; m < mr; m++) {
#pragma GCC unroll 16
    for (int j = 0; j < np * TC_TILE_VECTORS; j++) {
      sum->v[m][j] = tc_vf_load(block->bias + j * TC_LANES);
      if (block->residual) {
        const float *residual = block->residual + m * block->residual_stride;
        sum->v[m][j] = tc_vf_add(sum->v[m][j], tc_vf_load(residual + j * TC_LANES));
      }
    }
  }
}

/* One depth: the line at this place of every panel times the values of all rows. */
TC_INLINE void tc_few_step(const int mr, const int np, const int format, const float *const *row, int64_t k,
                           const char *const *panel, int64_t at, tc_few_sums *sum) {
  tc_vf value[TC_FEW_ROWS];
#pragma GCC unroll 5
  for (int m = 0; m < mr; m++) {
    value[m] = tc_vf_set1(row[m][k]);
  }
#pragma GCC unroll 4
  for (int p = 0; p < np; p++) {
    __builtin_prefetch(panel[p] + at * tc_panel_bytes(format) + TC_NEAR_BYTES);
#pragma GCC unroll 4
    for (int j = 0; j < TC_TILE_VECTORS; j++) {
      const tc_vf column = tc_panel_load(format, panel[p], at + j * TC_LANES);
#pragma GCC unroll 5
      for (int m = 0; m < mr; m++) {
        tc_vf *to = &sum->v[m][p * TC_TILE_VECTORS + j];
        *to = tc_vf_fma(value[m], column, *to);
      }
    }
  }
}

/* Two depths: likewise of pairs of bfloat16. */
TC_INLINE void tc_few_step_bf16(const int mr, const int np, const float *const *row, int64_t k,
                                const char *const *panel, int64_t at, tc_few_sums *sum) {
#if TC_DOT_BF16
  tc_vi value[TC_FEW_ROWS];
#pragma GCC unroll 5
  for (int m = 0; m < mr; m++) {
    value[m] = tc_vi_load_pair(row[m] + k);
  }
#pragma GCC unroll 4
  for (int p = 0; p < np; p++) {
    __builtin_prefetch(panel[p] + at * (int64_t)sizeof(float) + TC_NEAR_BYTES);
#pragma GCC unroll 4
    for (int j = 0; j < TC_TILE_VECTORS; j++) {
      const tc_vi column = tc_vi_load((const float *)(const void *)panel[p] + at + j * TC_LANES);
#pragma GCC unroll 5
      for (int m = 0; m < mr; m++) {
        tc_vf *to = &sum->v[m][p * TC_TILE_VECTORS + j];
        *to = tc_vf_dot_bf16(*to, value[m], column);
      }
    }
  }
#else
  (void)mr, (void)np, (void)row, (void)k, (void)panel, (void)at, (void)sum;
#endif
}

TC_INLINE void tc_few_finish(const int mr, const int np, const tc_block_f32 *block, const tc_few_sums *sum) {
  const tc_vf low = tc_vf_set1(block->epilogue.low), high = tc_vf_set1(block->epilogue.high);
#pragma GCC unroll 5
  for (int m = 0; m < mr; m++) {
#pragma GCC unroll 16
    for (int j = 0; j < np * TC_TILE_VECTORS; j++) {
      tc_vf_store(block->c + m * block->c_stride + j * TC_LANES, tc_vf_min(high, tc_vf_max(low, sum->v[m][j])));
    }
  }
}

/* mr rows of np whole panels. Clamps, but applies no other activation. */
TC_INLINE void tc_few_body(const int mr, const int np, const int format, const tc_block_f32 *block,
                           const void *panels) {
  tc_few_sums sum;
  const char *panel[4];
#pragma GCC unroll 4
  for (int p = 0; p < np; p++) {
    panel[p] = (const char *)panels + p * block->taps * block->depth * TC_PANEL * tc_panel_bytes(format);
  }
  tc_few_start(mr, np, block, &sum);
  int64_t at = 0; /* in every panel */
  uint64_t skipped = tc_taps_outside(block->rows, block->row_stride, block->row_count, block->taps, block->outside);
  for (int64_t tap = 0; tap < block->taps; tap++, skipped >>= 1) {
    if (skipped & 1) {
      at += block->depth * TC_PANEL;
      continue;
    }
    const float *row[TC_FEW_ROWS];
#pragma GCC unroll 5
    for (int m = 0; m < mr; m++) {
      row[m] = block->rows[tap * block->row_stride + m] + block->first_depth;
    }
    for (int64_t k = 0; k < block->depth; k++, at += TC_PANEL) {
      if (format == TC_PANEL_PAIRS) {
        tc_few_step_bf16(mr, np, row, k, panel, at, &sum);
      } else {
        tc_few_step(mr, np, format, row, k, panel, at, &sum);
      }
    }
  }
  tc_few_finish(mr, np, block, &sum);
}

#define TC_FEW_LIST TC_FEW(1, 4) TC_FEW(2, 2) TC_FEW(3, 2) TC_FEW(4, 1) TC_FEW(5, 1)
#define TC_FEW_OF(mr, np, format)                                                                                      \
  static __attribute__((noinline)) void tc_few_##mr##x##np##_##format(const tc_block_f32 *block, const void *panels) { \
    tc_few_body(mr, np, TC_PANEL_##format, block, panels);                                                             \
  }
#define TC_FEW(mr, np) TC_FEW_OF(mr, np, F32) TC_FEW_OF(mr, np, F16) TC_FEW_OF(mr, np, BF16)
TC_FEW_LIST
#undef TC_FEW

/* By the number of rows and the format of the panels. */
static void (*const tc_few[TC_FEW_ROWS + 1][TC_PANEL_FORMATS])(const tc_block_f32 *block, const void *panels) = {
#define TC_FEW(mr, np) [mr] = {tc_few_##mr##x##np##_F32, tc_few_##mr##x##np##_F16, tc_few_##mr##x##np##_BF16},
    TC_FEW_LIST
#undef TC_FEW
};

/* Up to TC_FEW_ROWS rows of the panels that lie side by side, one after another. */
static void tc_few_run_singly(const tc_block_f32 *block) {
  tc_block_f32 part = *block;
  for (int64_t column = 0; column < block->columns; column += TC_PANEL) {
    part.columns = tc_min(block->columns - column, TC_PANEL);
    tc_block_run(&part);
    part.panel += part.taps * part.depth * TC_PANEL;
    part.bias += TC_PANEL;
    part.c += TC_PANEL;
    if (part.residual) {
      part.residual += TC_PANEL;
    }
  }
}

/* Up to TC_FEW_ROWS rows of as many columns as the panels have that lie side by side: all panels at once if they are
 * whole. */
static void tc_few_run(const tc_block_f32 *block) {
  if (block->columns == tc_side_panels[block->row_count] * TC_PANEL) {
    tc_few[block->row_count][TC_PANEL_F32](block, block->panel);
    tc_activate_rows(&block->epilogue, block->c, block->c_stride, block->row_count, block->columns);
  } else {
    tc_few_run_singly(block);
  }
}

#endif
