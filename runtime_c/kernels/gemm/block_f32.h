/* A block: up to a few hundred rows by one panel of columns, over the whole depth. */
#ifndef TINYCOMP_KERNELS_GEMM_BLOCK_F32_H
#define TINYCOMP_KERNELS_GEMM_BLOCK_F32_H

#include "vocabulary.h"

#include "../common/activation.h"
#include "tile_f32.h"
#include "tile_half_f32.h"

/* With more depth than this, a panel does not stay in the second-level cache, so the depth is cut into parts. */
enum { TC_DEPTH_WHOLE = 2048, TC_DEPTH_PART = 1024 };

typedef struct tc_block_f32 {
  const float *const *rows; /* see tile_f32.h */
  int64_t row_stride;
  int64_t row_count;
  int64_t taps, depth;
  const float *outside; /* what rows point at where they are zero, which is not computed; or NULL */
  int64_t first_depth;  /* added to every row pointer */
  const float *panel;
  int64_t columns;
  const float *bias;     /* padded to whole vectors */
  const float *residual; /* or NULL; read before c is written, so the two may be the same */
  int64_t residual_stride;
  float *c;
  int64_t c_stride;
  tc_epilogue_f32 epilogue;
  const tc_tile_f32_fn (*tiles)[TC_TILE_MOST + 1]; /* of tile_bf16.h, or NULL for those of floats */
} tc_block_f32;

/* Whether so many rows of so many taps all point outside. */
static bool tc_all_outside(const float *const *rows, int64_t row_stride, int64_t count, int64_t taps,
                           const float *outside) {
  for (int64_t tap = 0; tap < taps; tap++, rows += row_stride) {
    for (int64_t m = 0; m < count; m++) {
      if (rows[m] != outside) {
        return false;
      }
    }
  }
  return true;
}

/* A bit for each of the first taps: whether all rows point outside there. */
static uint64_t tc_taps_outside(const float *const *rows, int64_t row_stride, int64_t count, int64_t taps,
                                const float *outside) {
  uint64_t found = 0;
  for (int64_t tap = 0; outside && tap < tc_min(taps, 64); tap++) {
    found |= (uint64_t)tc_all_outside(rows + tap * row_stride, row_stride, count, 1, outside) << tap;
  }
  return found;
}

/* Runs one part of the depth over all rows, in tiles of nearly the same height. Together, the tiles prefetch the data
 * after the panel, as much as the panel holds: the next panel, or the next part of this one. */
static void tc_block_part(const tc_block_f32 *block, const tc_tile_f32 *first) {
  tc_tile_f32 tile = *first;
  const tc_tile_f32_fn(*tiles)[TC_TILE_MOST + 1] = block->tiles ? block->tiles : tc_tiles_for(block->columns);
  const int64_t vectors = tc_ceil_div(block->columns, TC_LANES);
  const int64_t number = tc_max(tc_ceil_div(block->row_count, tc_tile_rows[vectors]), 1);
  const int64_t rows = block->row_count / number, longer = block->row_count % number; /* tiles of one row more */
  tile.row_stride = block->row_stride;
  tile.residual_stride = block->residual_stride;
  tile.c_stride = block->c_stride;
  tile.last = block->columns - (vectors - 1) * TC_LANES;
  tile.ahead_step = vectors * TC_LANES * (int64_t)sizeof(float) / number;
  for (int64_t i = 0; i < number; i++) {
    const int64_t count = rows + (i < longer);
    tile.skipped = tc_taps_outside(tile.rows, tile.row_stride, count, tile.taps, block->outside);
    tiles[vectors][count](&tile);
    tile.ahead += tile.ahead_step * tile.depth * tile.taps;
    tile.rows += count;
    tile.c += count * block->c_stride;
    if (tile.residual) {
      tile.residual += count * block->residual_stride;
    }
  }
}

/* The length of a part of the depth: a number of whole taps, or a range of the only tap. */
static int64_t tc_depth_part(int64_t taps, int64_t depth) {
  if (taps * depth <= TC_DEPTH_WHOLE) {
    return tc_max(taps == 1 ? depth : taps, 1);
  }
  return taps == 1 ? TC_DEPTH_PART : tc_max(TC_DEPTH_PART / depth, 1);
}

/* The first part of the depth from `begin` on where some rows do not point outside, if it is cut by taps. */
static int64_t tc_block_seek(const tc_block_f32 *block, int64_t begin, int64_t part) {
  const int64_t taps = block->taps;
  if (block->outside && taps > 1) {
    while (begin < taps && tc_all_outside(block->rows + begin * block->row_stride, block->row_stride, block->row_count,
                                          tc_min(taps - begin, part), block->outside)) {
      begin += part;
    }
  }
  return begin;
}

static void tc_block_run(const tc_block_f32 *block) {
  const int64_t part = tc_depth_part(block->taps, block->depth);
  const int64_t total = block->taps == 1 ? block->depth : block->taps;
  const int64_t width = tc_round_up(block->columns, TC_LANES);
  const bool one_tap = block->taps == 1;
  const int64_t step = (one_tap ? 1 : block->depth) * width; /* floats of the panel per tap, or depth of the only one */
  const int64_t first = tc_block_seek(block, 0, part);
  int64_t begin = first < total ? first : 0;
  bool is_first = true, is_last;
  do { /* once even for a depth of zero, or where all rows are, where bias and residual remain */
    const int64_t count = tc_min(total - begin, part), next = tc_block_seek(block, begin + count, part);
    is_last = next >= total;
    tc_block_part(block, &(tc_tile_f32){
                             .rows = block->rows + (one_tap ? 0 : begin * block->row_stride),
                             .taps = one_tap ? 1 : count,
                             .depth_begin = block->first_depth + (one_tap ? begin : 0),
                             .depth = one_tap ? count : block->depth,
                             .panel = block->panel + begin * step,
                             .ahead = (const char *)(block->panel + (is_last ? total + first : next) * step),
                             .bias = is_first ? block->bias : NULL,
                             .residual = is_first ? block->residual : NULL,
                             .c = block->c,
                             .low = is_last ? block->epilogue.low : -INFINITY,
                             .high = is_last ? block->epilogue.high : INFINITY,
                         });
    begin = next;
    is_first = false;
  } while (!is_last);
  tc_activate_rows(&block->epilogue, block->c, block->c_stride, block->row_count, block->columns);
}

#endif
