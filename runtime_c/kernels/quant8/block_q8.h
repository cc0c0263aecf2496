/* Blocks of 8-bit products: which rows of the output belong together, and running one block by one panel. */
#ifndef TINYCOMP_KERNELS_QUANT8_BLOCK_Q8_H
#define TINYCOMP_KERNELS_QUANT8_BLOCK_Q8_H

#include "vocabulary.h"

#include "../gemm/tile_f32.h"
#include "requantize.h"
#include "tile_q8.h"
#include "tile_across_q8.h"

/* How rows are cut into blocks. They lie in lines of `width`: the lines of an image, or a matrix as one line. A block
 * is several whole lines or a piece of one, so that what it reads of an image is a rectangle. */
typedef struct q8_cut {
  int64_t width, lines;
  int64_t block_lines; /* of a block, or 1 if lines are cut */
  int64_t piece;       /* rows of a block: whole lines, or a piece of one */
  int64_t pieces;      /* per line, or 1 */
  int64_t blocks;
} q8_cut;

static q8_cut q8_cut_make(int64_t width, int64_t lines, int64_t wish) {
  q8_cut cut = {.width = width, .lines = lines, .block_lines = 1, .piece = tc_max(width, 1), .pieces = 1};
  if (width > wish) {
    const int64_t pieces = (width + wish / 2) / wish;
    cut.piece = tc_round_up(tc_ceil_div(width, pieces), q8_tile_rows[TC_TILE_VECTORS]);
    cut.pieces = tc_ceil_div(width, cut.piece);
  } else if (width > 0) {
    const int64_t blocks = tc_max((width * lines + wish / 2) / wish, 1);
    cut.block_lines = tc_max(tc_ceil_div(lines, blocks), 1);
    cut.piece = cut.block_lines * width;
  }
  cut.blocks = width > 0 ? tc_ceil_div(lines, cut.block_lines) * cut.pieces : 0;
  return cut;
}

/* The rows of one block. */
typedef struct q8_place {
  int64_t row, count;
} q8_place;

static q8_place q8_cut_place(const q8_cut *cut, int64_t block) {
  const int64_t line = block / cut->pieces * cut->block_lines, first = block % cut->pieces * cut->piece;
  const int64_t room = tc_min(cut->lines - line, cut->block_lines) * cut->width - first;
  return (q8_place){line * cut->width + first, tc_min(room, cut->piece)};
}

/* Rows that a block should have: enough to use each panel often, few enough to stay in the cache. */
static int64_t q8_block_rows(int64_t wish, int64_t row_bytes, int64_t panels_bytes, int64_t l2_bytes) {
  enum { FEW = 48, MANY = 192 };
  if (wish) {
    return wish;
  }
  const int64_t rows = panels_bytes > l2_bytes / 2 ? MANY : FEW;
  return tc_max(tc_min(rows, l2_bytes / 4 / tc_max(row_bytes, 1)), q8_tile_rows[TC_TILE_VECTORS]);
}

typedef struct q8_block {
  const char *const *rows; /* see tile_q8.h */
  ptrdiff_t row_stride, row_count;
  ptrdiff_t taps, words;
  q8_form form;
  const char *panel;
  ptrdiff_t panels, columns; /* if there are several, of each, and rows have bytes by the float rule */
  const int32_t *start;
  const q8_result *result;
  q8_scale scale; /* of the panel's columns */
  int32_t *sums;  /* TC_PANEL for each row, for what a tile cannot finish */
  char *y;
  ptrdiff_t y_stride;
} q8_block;

static void q8_block_run(const q8_block *block) {
  const q8_result *r = block->result;
  const bool fused = q8_is_bytes(r) && r->rule == TC_REQUANTIZE_FLOAT, in_place = !q8_is_bytes(r);
  const ptrdiff_t vectors = (block->columns + TC_LANES - 1) / TC_LANES;
  const bool is_one = block->row_count <= q8_tile_rows[vectors]; /* nothing to divide */
  const ptrdiff_t most = q8_tile_rows[vectors];
  const ptrdiff_t tiles = is_one ? block->row_count > 0 : (block->row_count + most - 1) / most;
  const ptrdiff_t rows = is_one ? block->row_count : block->row_count / tiles;
  const ptrdiff_t longer = is_one ? 0 : block->row_count % tiles;
  int32_t *sums = in_place ? (int32_t *)block->y : block->sums;
  const ptrdiff_t sums_stride = in_place ? block->y_stride : TC_PANEL;
  const ptrdiff_t word_bytes = vectors * TC_LANES * (ptrdiff_t)q8_form_word_bytes(block->form);
  q8_tile tile = {.rows = block->rows,
                  .row_stride = block->row_stride,
                  .taps = block->taps,
                  .words = block->words,
                  .panel = block->panel,
                  .panels = block->panels,
                  .ahead = block->taps * block->words * word_bytes,
                  .ahead_step = is_one ? word_bytes : word_bytes / tiles,
                  .start = block->start,
                  .last = block->columns - (vectors - 1) * TC_LANES,
                  .sums = fused ? NULL : sums,
                  .sums_stride = sums_stride,
                  .factors = block->scale.factors,
                  .scale = &block->scale,
                  .y = (uint8_t *)block->y,
                  .y_stride = block->y_stride};
#if TC_ACROSS
  if (block->form == Q8_ACROSS) {
    q8_tile_across(tile, (int32_t)block->row_count, (int32_t)(vectors * block->panels));
  } else
#endif
  {
    /* The first tiles have one row more. */
    for (ptrdiff_t more = 1; more >= 0; more--) {
      const ptrdiff_t count = rows + more;
      tile.repeats = more ? longer : tiles - longer;
      if (tile.repeats > 0) {
        q8_tiles[block->form][vectors][count](&tile);
        tile.ahead += tile.repeats * tile.ahead_step * tile.taps * tile.words;
        tile.rows += tile.repeats * count;
        tile.y += tile.repeats * count * tile.y_stride;
        tile.sums += fused ? 0 : tile.repeats * count * sums_stride;
      }
    }
  }
  if (!fused && r->type != TC_TYPE_I32) {
    q8_finish_rows(r, &block->scale, sums, sums_stride, block->y, block->y_stride, block->row_count, block->columns);
  }
}

#endif
