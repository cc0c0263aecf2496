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
  int64_t first_depth; /* added to every row pointer */
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

static void tc_block_run(const tc_block_f32 *block) {
  const int64_t part = tc_depth_part(block->taps, block->depth);
  const int64_t total = block->taps == 1 ? block->depth : block->taps;
  const int64_t width = tc_round_up(block->columns, TC_LANES);
  int64_t begin = 0;
  const bool one_tap = block->taps == 1;
  const int64_t step = (one_tap ? 1 : block->depth) * width; /* floats of the panel per tap, or depth of the only one */
  do { /* once even for a depth of zero, where bias and residual remain */
    const int64_t count = tc_min(total - begin, part);
    const bool is_last = begin + count >= total;
    tc_block_part(block, &(tc_tile_f32){
                             .rows = block->rows + (one_tap ? 0 : begin * block->row_stride),
                             .taps = one_tap ? 1 : count,
                             .depth_begin = block->first_depth + (one_tap ? begin : 0),
                             .depth = one_tap ? count : block->depth,
                             .panel = block->panel + begin * step,
                             .ahead = (const char *)(block->panel + (begin + count) * step),
                             .bias = begin ? NULL : block->bias,
                             .residual = begin ? NULL : block->residual,
                             .c = block->c,
                             .low = is_last ? block->epilogue.low : -INFINITY,
                             .high = is_last ? block->epilogue.high : INFINITY,
                         });
    begin += count;
  } while (begin < total);
  tc_activate_rows(&block->epilogue, block->c, block->c_stride, block->row_count, block->columns);
}

#endif
