/* How an output of rows x columns is cut into blocks, and in which order a thread visits them. */
#ifndef TINYCOMP_KERNELS_GEMM_GRID_H
#define TINYCOMP_KERNELS_GEMM_GRID_H

#include "vocabulary.h"

#include "tile_f32.h"
#include "block_f32.h"
#include "few_rows_f32.h"

typedef struct tc_grid {
  int64_t rows, columns;
  int64_t block_rows;
  int64_t row_blocks, panels;
  int64_t unit_columns; /* of a block: one panel, or several side by side if there are few rows */
  bool panel_outer;     /* all row blocks of a panel before the next panel */
} tc_grid;

/* What the caller of a kernel asks of its grid, and the cache that it should suit. */
typedef struct tc_grid_wish {
  int64_t block_rows; /* 0 for the kernel's own choice */
  int64_t panel_order;
  int64_t l2_bytes;
} tc_grid_wish;

enum { TC_MOST_BLOCK_ROWS = 1 << 12 };

/* Refuses blocks and orders that do not exist. */
static void tc_check_grid(tc_prepare *prepare, int64_t block_rows, int64_t panel_order) {
  TC_REQUIRE(prepare, block_rows >= 0 && block_rows <= TC_MOST_BLOCK_ROWS, "a block cannot have %lld rows",
             (long long)block_rows);
  TC_REQUIRE(prepare, panel_order >= TC_ORDER_AUTO && panel_order <= TC_ORDER_PANELS_OUTER,
             "there is no order of panels %lld", (long long)panel_order);
}

/* About as many rows a block, in whole tiles, so that only the last tiles are short. */
static int64_t tc_even_block(int64_t rows, int64_t wanted) {
  const int64_t blocks = tc_max((rows + wanted / 2) / wanted, 1);
  return tc_max(tc_round_up(tc_ceil_div(rows, blocks), tc_tile_rows[TC_TILE_VECTORS]), 1);
}

/* left_floats and right_floats: how much of either operand the whole product reads. */
static tc_grid tc_grid_make(int64_t rows, int64_t columns, int64_t left_floats, int64_t right_floats,
                            tc_grid_wish wish) {
  const int64_t half_l2 = wish.l2_bytes / 2 / (int64_t)sizeof(float);
  tc_grid grid = {.rows = rows, .columns = columns, .block_rows = 48};
  if (left_floats > half_l2 && right_floats > half_l2) {
    grid.block_rows = 192; /* neither operand stays in the cache: reuse each panel for more rows */
  }
  /* Rows first where that reads nothing twice from afar: the threads then own bands of the image in every layer. */
  grid.panel_outer = left_floats <= half_l2 && right_floats > half_l2;
  if (wish.block_rows) {
    grid.block_rows = wish.block_rows;
  } else {
    grid.block_rows = tc_even_block(rows, grid.block_rows);
  }
  if (wish.panel_order) {
    grid.panel_outer = wish.panel_order == TC_ORDER_PANELS_OUTER;
  }
  grid.row_blocks = tc_ceil_div(rows, grid.block_rows);
  grid.unit_columns = (rows <= TC_FEW_ROWS ? tc_side_panels[rows] : 1) * TC_PANEL;
  grid.panels = tc_ceil_div(columns, grid.unit_columns);
  return grid;
}

/* The place of one unit in the grid. */
typedef struct tc_place {
  int64_t row, row_count;
  int64_t column, column_count;
} tc_place;

static inline tc_place tc_grid_place(const tc_grid *grid, int64_t unit) {
  const int64_t block = grid->panel_outer ? unit % grid->row_blocks : unit / grid->panels;
  const int64_t panel = grid->panel_outer ? unit / grid->row_blocks : unit % grid->panels;
  const int64_t row = block * grid->block_rows, column = panel * grid->unit_columns;
  return (tc_place){row, tc_min(grid->rows - row, grid->block_rows), column,
                    tc_min(grid->columns - column, grid->unit_columns)};
}

/* One block of the grid. */
static inline void tc_grid_run(const tc_grid *grid, const tc_block_f32 *block) {
  if (grid->rows <= TC_FEW_ROWS) {
    tc_few_run(block);
  } else {
    tc_block_run(block);
  }
}

#endif
