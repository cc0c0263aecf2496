/* The micro-kernel of products of bfloat16: that of f32 with pairs of numbers, neighbours along the depth, where it has
 * single ones. A pair takes as many bytes as a float, so that all but the step along the depth is the same: rows and
 * panels are addressed as floats, and their depth counts pairs. */
#ifndef TINYCOMP_KERNELS_GEMM_TILE_BF16_H
#define TINYCOMP_KERNELS_GEMM_TILE_BF16_H

#include "vocabulary.h"

#include "tile_f32.h"
#include "block_f32.h"
#include "few_rows_f32.h"
#include "grid.h"

#if TC_DOT_BF16
#define TC_TILE(mr, nv) TC_TILE_OF(bf16, true, mr, nv)
TC_TILE_LIST
#undef TC_TILE

static const tc_tile_f32_fn tc_tiles_bf16[TC_TILE_VECTORS + 1][TC_TILE_MOST + 1] = {
#define TC_TILE(mr, nv) [nv][mr] = tc_tile_bf16_##mr##x##nv,
    TC_TILE_LIST
#undef TC_TILE
};

#define TC_FEW(mr, np) TC_FEW_OF(mr, np, PAIRS)
TC_FEW_LIST
#undef TC_FEW

/* By the number of rows. */
static void (*const tc_few_bf16[TC_FEW_ROWS + 1])(const tc_block_f32 *block, const void *panels) = {
#define TC_FEW(mr, np) [mr] = tc_few_##mr##x##np##_PAIRS,
    TC_FEW_LIST
#undef TC_FEW
};

/* One block of the grid, whose rows and panels hold pairs. */
static void tc_grid_run_bf16(const tc_grid *grid, const tc_block_f32 *block) {
  tc_block_f32 pairs = *block;
  pairs.tiles = tc_tiles_bf16;
  if (grid->rows > TC_FEW_ROWS) {
    tc_block_run(&pairs);
  } else if (block->columns == grid->unit_columns) {
    tc_few_bf16[grid->rows](block, block->panel);
    tc_activate_rows(&block->epilogue, block->c, block->c_stride, block->row_count, block->columns);
  } else {
    tc_few_run_singly(&pairs);
  }
}
#endif

#endif
