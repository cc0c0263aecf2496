/* The grid of a product: how its output is cut into blocks, and in which order threads visit them. */
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

/* The parameters of a kernel that choose its grid, and the cache that it should suit. */
typedef struct tc_grid_wish {
  int64_t block_rows; /* 0 for the kernel's own choice */
  int64_t panel_order;
  int64_t l2_bytes;
  int64_t products; /* how many such products run together, such as the groups of a convolution */
} tc_grid_wish;

enum { TC_MOST_BLOCK_ROWS = 1 << 12, TC_MANY_BLOCKS = 8 };

/* Refuses impossible blocks and unknown orders. */
static void tc_check_grid(tc_prepare *prepare, int64_t block_rows, int64_t panel_order) {
  TC_REQUIRE(prepare, block_rows >= 0 && block_rows <= TC_MOST_BLOCK_ROWS, "a block cannot have %lld rows",
             (long long)block_rows);
  TC_REQUIRE(prepare, panel_order >= TC_ORDER_AUTO && panel_order <= TC_ORDER_PANELS_OUTER,
             "there is no order of panels %lld", (long long)panel_order);
}

/* The rows of a block, about as many as wanted: whole tiles, so that only the last tiles are short, unless there are so
 * few blocks that a short one at the end would give threads unequal shares. */
static int64_t tc_even_block(int64_t rows, int64_t wanted) {
  const int64_t blocks = tc_max((rows + wanted / 2) / wanted, 1), even = tc_max(tc_ceil_div(rows, blocks), 1);
  return blocks < TC_MANY_BLOCKS ? even : tc_round_up(even, tc_tile_rows[TC_TILE_VECTORS]);
}

/* With fewer units than this, some threads are idle while others finish; but a unit with fewer products than this has
 * a noticeable overhead. */
enum { TC_FEWEST_UNITS = 24, TC_FEWEST_PRODUCTS = 1 << 17 };

/* Nor has a block fewer rows than this where panels come from beyond the second-level cache: they come while the block
 * before is computed, and fewer rows do not take as long. */
enum { TC_FEWEST_ROWS = 32 };

/* The rows of a block: at most `most`, and fewer where threads would otherwise share the rows unevenly. */
static int64_t tc_fair_block(int64_t rows, int64_t columns, int64_t products, int64_t right_floats, int64_t most,
                             bool is_far) {
  const int64_t fair = rows * tc_ceil_div(columns, TC_PANEL) * products / TC_FEWEST_UNITS;
  const int64_t depth = right_floats / tc_max(columns * products, 1);
  const int64_t worth = TC_FEWEST_PRODUCTS / (tc_max(depth, 1) * TC_PANEL);
  return tc_min(most, tc_max(tc_max(fair, worth), is_far ? TC_FEWEST_ROWS : 2 * tc_tile_rows[TC_TILE_VECTORS]));
}

/* Chooses a grid; left_floats and right_floats are the sizes of the operands. */
static tc_grid tc_grid_make(int64_t rows, int64_t columns, int64_t left_floats, int64_t right_floats,
                            tc_grid_wish wish) {
  const int64_t half_l2 = wish.l2_bytes / 2 / (int64_t)sizeof(float);
  tc_grid grid = {.rows = rows, .columns = columns, .block_rows = 48};
  if (left_floats > half_l2 && right_floats > half_l2) {
    grid.block_rows = 192; /* neither operand stays in the cache: reuse each panel for more rows */
  }
  const int64_t most = grid.block_rows;
  if (wish.block_rows) {
    grid.block_rows = wish.block_rows;
  } else {
    const bool is_far = right_floats > half_l2;
    grid.block_rows = tc_even_block(rows, tc_fair_block(rows, columns, wish.products, right_floats, most, is_far));
  }
  /* Rows first if no operand is then read twice from memory: a thread has the same band of the image in all layers. */
  grid.panel_outer = right_floats > half_l2 && (left_floats <= half_l2 || grid.block_rows < most / 2);
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
