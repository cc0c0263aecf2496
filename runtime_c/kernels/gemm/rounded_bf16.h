/* Factors of products in bfloat16: how the product is cut, the left factor rounded row by row, the right one packed.
 *
 * Where the processor multiplies pairs of bfloat16, both factors become pairs (tile_bf16.h). Elsewhere they become
 * floats that bfloat16 holds, for the micro-kernel of f32; sums then differ in the order of additions alone. A word is
 * a pair or a float. */
#ifndef TINYCOMP_KERNELS_GEMM_ROUNDED_BF16_H
#define TINYCOMP_KERNELS_GEMM_ROUNDED_BF16_H

#include "vocabulary.h"

#include "../cast/half.h"
#include "../common/partial.h"
#include "block_f32.h"
#include "grid.h"
#include "pack_f32.h"
#include "tile_bf16.h"

enum { BF16_FEWEST_ROWS = 48, BF16_MOST_ROWS = 384, BF16_LINE = 16, BF16_FAR = 256 };

typedef struct bf16_plan {
  bool pairs;
  int64_t taps, depth; /* as the caller has them */
  int64_t tap_words;
  int64_t words;      /* of a row: all taps */
  int64_t row_stride; /* words from one rounded row to the next: if there are many, an odd number of cache lines */
  tc_grid grid;
} bf16_plan;

/* Blocks of rows pass one after another, so that every row is rounded once. They are as long as half of the
 * second-level cache holds, unless the panels stay there themselves. */
static bf16_plan bf16_plan_make(int64_t rows, int64_t columns, int64_t taps, int64_t depth, int64_t block_rows,
                                int64_t l2_bytes) {
  bf16_plan plan = {.pairs = tc_has_dot_bf16(), .taps = taps, .depth = depth};
  plan.tap_words = plan.pairs ? tc_ceil_div(depth, 2) : depth;
  plan.words = taps * plan.tap_words;
  plan.row_stride =
      plan.words < BF16_FAR ? tc_max(plan.words, 1) : (tc_ceil_div(plan.words, BF16_LINE) | 1) * BF16_LINE;
  int64_t wanted = block_rows;
  if (!wanted) {
    const int64_t half_l2 = l2_bytes / 2 / (int64_t)sizeof(float);
    const bool stays = plan.words * columns <= half_l2;
    const int64_t fitting = tc_min(tc_max(half_l2 / plan.row_stride, BF16_FEWEST_ROWS), BF16_MOST_ROWS);
    wanted = tc_even_block(rows, stays ? BF16_FEWEST_ROWS : fitting);
  }
  plan.grid = tc_grid_make(rows, columns, 0, 0, (tc_grid_wish){wanted, TC_ORDER_PANELS_INNER, l2_bytes, 1});
  return plan;
}

/* Scratch that a block takes: rounded rows with a vector behind them, and pointers to them. */
static int64_t bf16_scratch_bytes(tc_prepare *prepare, const bf16_plan *plan) {
  return TC_PRODUCT(prepare, tc_round_up(plan->grid.block_rows, BF16_LINE),
                    plan->row_stride * (int64_t)sizeof(float) + (int64_t)sizeof(float *)) +
         TC_LANES * (int64_t)sizeof(float);
}

/* Rounded rows at work: words[m * row_stride], and a pointer to each. */
typedef struct bf16_rows {
  const float **rows;
  float *words;
} bf16_rows;

static bf16_rows bf16_rows_at(const bf16_plan *plan, void *scratch) {
  bf16_rows at = {.rows = scratch};
  at.words = (float *)(at.rows + tc_round_up(plan->grid.block_rows, BF16_LINE));
  for (int64_t m = 0; m < plan->grid.block_rows; m++) {
    at.rows[m] = at.words + m * plan->row_stride;
  }
  return at;
}

/* To nearest, ties to even. NaN stays NaN, also in its upper half. */
TC_INLINE tc_vf bf16_round(tc_vf x) {
  const tc_vi bits = tc_vf_bits(x), odd = tc_vi_and(tc_vi_down(bits, 16), tc_vi_set1(1));
  const tc_vi rounded = tc_vi_add(tc_vi_add(bits, tc_vi_set1(0x7fff)), odd);
  return tc_vf_select(tc_vf_eq(x, x), tc_vf_of_bits(tc_vi_and(rounded, tc_vi_set1(-65536))), tc_vf_add(x, x));
}

/* Rounds the depths of one tap of a row to words. Up to a vector behind them is overwritten as well. */
TC_INLINE void bf16_round_tap(const bool pairs, const float *from, int64_t depth, float *to) {
  int64_t k = 0;
#if TC_DOT_BF16
  if (pairs) {
    for (; k + 2 * TC_LANES <= depth; k += 2 * TC_LANES) {
      tc_vi_store(to + k / 2, tc_vi_adjacent_bf16(tc_vf_load(from + k), tc_vf_load(from + k + TC_LANES)));
    }
    if (depth - k > TC_LANES) {
      const tc_vf high = tc_vf_load_first(from + k + TC_LANES, depth - k - TC_LANES);
      tc_vi_store(to + k / 2, tc_vi_adjacent_bf16(tc_vf_load(from + k), high));
    } else if (depth > k) {
      const tc_vf low = tc_vf_load_first(from + k, depth - k);
      tc_vi_store(to + k / 2, tc_vi_adjacent_bf16(low, tc_vf_set1(0.0f)));
    }
    return;
  }
#endif
  (void)pairs;
  for (; k + TC_LANES <= depth; k += TC_LANES) {
    tc_vf_store(to + k, bf16_round(tc_vf_load(from + k)));
  }
  if (k < depth) {
    tc_vf_store(to + k, bf16_round(tc_vf_load_first(from + k, depth - k)));
  }
}

/* Rounds rows that are evenly spaced, of one tap; at once if there is nothing between them. */
static void bf16_round_rows(const bf16_plan *plan, const float *from, int64_t stride, int64_t count, float *words) {
  const int64_t per_word = plan->pairs ? 2 : 1;
  if (stride == plan->depth && per_word * plan->row_stride == stride) {
    bf16_round_tap(plan->pairs, from, count * stride, words);
    return;
  }
  for (int64_t m = 0; m < count; m++) {
    bf16_round_tap(plan->pairs, from + m * stride, plan->depth, words + m * plan->row_stride);
  }
}

/* Rounds rows of which there is a pointer to each tap: rows[tap * row_stride + m]. */
static void bf16_round_taps(const bf16_plan *plan, const float *const *rows, int64_t row_stride, int64_t count,
                            float *words) {
  for (int64_t m = 0; m < count; m++) {
    for (int64_t tap = 0; tap < plan->taps; tap++) {
      bf16_round_tap(plan->pairs, rows[tap * row_stride + m], plan->depth,
                     words + m * plan->row_stride + tap * plan->tap_words);
    }
  }
}

/* How many depths of a panel are packed at a time. */
enum { BF16_PACKED = 32 };

/* Packs some depths of a panel, an even number or the last ones, which are given as floats; one more line follows them.
 */
static void bf16_pack_lines(bool pairs, float *lines, int64_t depth, int64_t width, float *out) {
  for (int64_t i = 0; i < width; i++) {
    lines[depth * width + i] = 0.0f;
  }
  const int64_t step = pairs ? 2 : 1;
  for (int64_t k = 0; k < depth; k += step, out += width) {
    for (int64_t j = 0; j < width; j += TC_LANES) {
      const tc_vf first = bf16_round(tc_vf_load(lines + k * width + j));
      if (pairs) {
        const tc_vf second = bf16_round(tc_vf_load(lines + (k + 1) * width + j));
        tc_vi_store(out + j, tc_vi_add(tc_vi_and(tc_vi_down(tc_vf_bits(first), 16), tc_vi_set1(0xffff)),
                                       tc_vi_and(tc_vf_bits(second), tc_vi_set1(-65536))));
      } else {
        tc_vf_store(out + j, first);
      }
    }
  }
}

/* A right operand: of floats, or of bfloat16 where `halves` are given in the place of the data. Its taps may be cut in
 * another way than those of the product, as long as their elements follow each other in the same order. */
typedef struct bf16_matrix {
  tc_matrix_f32 floats;
  const uint16_t *halves;
} bf16_matrix;

/* Some depths of a tap of up to a panel of columns as floats. */
static void bf16_widen(const bf16_matrix *b, int64_t at, int64_t columns, float *lines) {
  const tc_matrix_f32 *m = &b->floats;
  if (!b->halves) {
    tc_pack_tap(m, m->data + at, columns, 1.0f, lines);
    return;
  }
  const int64_t width = tc_round_up(columns, TC_LANES);
  for (int64_t k = 0; k < m->depth; k++) {
    const uint16_t *from = b->halves + at + k * m->depth_stride;
    for (int64_t j = 0; j < width; j++) {
      lines[k * width + j] = j < columns ? tc_f32_of_bf16(from[j * m->column_stride]) : 0.0f;
    }
  }
}

/* `count` elements from `first` on, in the order of taps and depth, of the panel that begins with a column. */
static void bf16_widen_lines(const bf16_matrix *b, int64_t column, int64_t first, int64_t count, float *lines) {
  const tc_matrix_f32 *m = &b->floats;
  const int64_t columns = tc_min(m->columns - column, TC_PANEL), width = tc_round_up(columns, TC_LANES);
  bf16_matrix part = *b;
  for (const int64_t end = first + count; first < end; first += part.floats.depth) {
    const int64_t tap = first / m->depth, k = first % m->depth;
    part.floats.depth = tc_min(m->depth - k, end - first);
    bf16_widen(&part, tap * m->tap_stride + k * m->depth_stride + column * m->column_stride, columns, lines);
    lines += part.floats.depth * width;
  }
}

/* Packs all panels, one after another. */
static void bf16_pack_panels(const bf16_plan *plan, const bf16_matrix *b, float *out) {
  float lines[(BF16_PACKED + 1) * TC_PANEL];
  for (int64_t column = 0; column < b->floats.columns; column += TC_PANEL) {
    const int64_t width = tc_round_up(tc_min(b->floats.columns - column, TC_PANEL), TC_LANES);
    for (int64_t tap = 0; tap < plan->taps; tap++) {
      for (int64_t k = 0; k < plan->depth; k += BF16_PACKED) {
        const int64_t count = tc_min(plan->depth - k, BF16_PACKED);
        bf16_widen_lines(b, column, tap * plan->depth + k, count, lines);
        bf16_pack_lines(plan->pairs, lines, count, width, out);
        out += (plan->pairs ? tc_ceil_div(count, 2) : count) * width;
      }
    }
  }
}

/* One block of the grid. */
static void bf16_run(const bf16_plan *plan, const tc_block_f32 *block) {
#if TC_DOT_BF16
  if (plan->pairs) {
    tc_grid_run_bf16(&plan->grid, block);
    return;
  }
#endif
  tc_grid_run(&plan->grid, block);
}

#endif
