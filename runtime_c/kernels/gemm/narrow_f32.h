/* Products of one column or a few, which would fill a quarter of a vector or less: rows lie in the lanes instead.
 * Squares of the left operand are turned, so that the values of a depth lie side by side. Every element is still one
 * sum in the order of its depth. */
#ifndef TINYCOMP_KERNELS_GEMM_NARROW_F32_H
#define TINYCOMP_KERNELS_GEMM_NARROW_F32_H

#include "vocabulary.h"

#include "../common/activation.h"
#include "../copy/transpose.h"
#include "block_f32.h"

enum {
  TC_NARROW_COLUMNS = TC_LANES / 4,
  TC_NARROW_VECTORS = 4,
  TC_NARROW_ROWS = TC_NARROW_VECTORS * TC_LANES, /* at once */
  TC_NARROW_DEPTH = 32,                          /* deeper rows are better read one after another */
  TC_NARROW_BLOCK = 256                          /* rows of a block */
};

/* Whether rows are worth being turned. */
static bool tc_is_narrow(int64_t rows, int64_t depth, int64_t columns) {
  return columns <= TC_NARROW_COLUMNS && depth <= TC_NARROW_DEPTH && rows >= 2 * TC_LANES;
}

/* Bytes of scratch: what is turned, and results. */
static int64_t tc_narrow_bytes(void) {
  return (TC_NARROW_DEPTH + TC_NARROW_COLUMNS) * TC_NARROW_ROWS * (int64_t)sizeof(float);
}

/* Turns some rows; the lanes of those that are not there become zero. */
static void tc_narrow_turn(const float *a, int64_t lda, int64_t count, int64_t depth, float *to) {
  const int64_t squares = depth < 4 ? 0 : count / 4 * 4;
  for (int64_t row = 0; row < squares; row += 4) {
    for (int64_t k = 0; k < depth; k += 4) {
      const int64_t at = tc_min(k, depth - 4); /* the last square may turn again what another has turned */
      tc_transpose_4x4((uint32_t *)(to + at * TC_NARROW_ROWS + row), TC_NARROW_ROWS,
                       (const uint32_t *)(a + row * lda + at), lda);
    }
  }
  for (int64_t row = squares; row < TC_NARROW_ROWS; row++) {
    for (int64_t k = 0; k < depth; k++) {
      to[k * TC_NARROW_ROWS + row] = row < count ? a[row * lda + k] : 0.0f;
    }
  }
}

/* The sums of TC_NARROW_ROWS rows, of which `count` are there, go to `results`, one column after another. */
TC_INLINE void tc_narrow_sums(const int columns, const tc_block_f32 *block, int64_t row, int64_t count,
                              const float *turned, float *results) {
  tc_vf sum[TC_NARROW_COLUMNS ? TC_NARROW_COLUMNS : 1][TC_NARROW_VECTORS];
#pragma GCC unroll 4
  for (int j = 0; j < columns; j++) {
    for (int64_t i = 0; i < count && block->residual; i++) {
      results[j * TC_NARROW_ROWS + i] = block->residual[(row + i) * block->residual_stride + j];
    }
#pragma GCC unroll 4
    for (int v = 0; v < TC_NARROW_VECTORS; v++) {
      sum[j][v] = tc_vf_set1(block->bias[j]);
      if (block->residual) {
        sum[j][v] = tc_vf_add(sum[j][v], tc_vf_load(results + j * TC_NARROW_ROWS + v * TC_LANES));
      }
    }
  }
  for (int64_t k = 0; k < block->depth; k++) {
    const float *factors = block->panel + k * TC_LANES;
#pragma GCC unroll 4
    for (int v = 0; v < TC_NARROW_VECTORS; v++) {
      const tc_vf values = tc_vf_load(turned + k * TC_NARROW_ROWS + v * TC_LANES);
#pragma GCC unroll 4
      for (int j = 0; j < columns; j++) {
        sum[j][v] = tc_vf_fma(values, tc_vf_set1(factors[j]), sum[j][v]);
      }
    }
  }
  const tc_vf low = tc_vf_set1(block->epilogue.low), high = tc_vf_set1(block->epilogue.high);
#pragma GCC unroll 4
  for (int j = 0; j < columns; j++) {
#pragma GCC unroll 4
    for (int v = 0; v < TC_NARROW_VECTORS; v++) {
      tc_vf_store(results + j * TC_NARROW_ROWS + v * TC_LANES, tc_vf_min(high, tc_vf_max(low, sum[j][v])));
    }
  }
}

/* A block of rows of `a`; its panel and its bias are those of one vector of columns. */
static void tc_narrow_run(const tc_block_f32 *block, const float *a, int64_t lda, float *scratch) {
  float *turned = scratch, *results = scratch + TC_NARROW_DEPTH * TC_NARROW_ROWS;
  for (int64_t row = 0; row < block->row_count; row += TC_NARROW_ROWS) {
    const int64_t count = tc_min(block->row_count - row, TC_NARROW_ROWS);
    tc_narrow_turn(a + row * lda, lda, count, block->depth, turned);
    if (TC_NARROW_COLUMNS >= 4 && block->columns == 4) {
      tc_narrow_sums(TC_NARROW_COLUMNS < 4 ? 1 : 4, block, row, count, turned, results);
    } else if (TC_NARROW_COLUMNS >= 3 && block->columns == 3) {
      tc_narrow_sums(TC_NARROW_COLUMNS < 3 ? 1 : 3, block, row, count, turned, results);
    } else if (TC_NARROW_COLUMNS >= 2 && block->columns == 2) {
      tc_narrow_sums(TC_NARROW_COLUMNS < 2 ? 1 : 2, block, row, count, turned, results);
    } else {
      tc_narrow_sums(1, block, row, count, turned, results);
    }
    if (block->columns == 1 && block->c_stride == 1) {
      memcpy(block->c + row, results, (size_t)count * sizeof(*results));
      continue;
    }
    for (int64_t i = 0; i < count; i++) {
      for (int64_t j = 0; j < block->columns; j++) {
        block->c[(row + i) * block->c_stride + j] = results[j * TC_NARROW_ROWS + i];
      }
    }
  }
  tc_activate_rows(&block->epilogue, block->c, block->c_stride, block->row_count, block->columns);
}

#endif
