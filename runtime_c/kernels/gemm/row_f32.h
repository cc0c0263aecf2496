/* A single row: several panels side by side. One panel alone has too few sums to hide the latency of a multiply-add,
 * and its cache lines arrive one after another; four of them at once take half the time where the panels lie in the
 * second or third level of the cache. Every element is still one sum in the order of its depth. */

enum { TC_ROW_PANELS = 4, TC_ROW_COLUMNS = TC_ROW_PANELS * TC_PANEL };

/* Asks for what a panel holds this far ahead of its use. */
enum { TC_NEAR_BYTES = 512 };

typedef struct tc_row_sums {
  tc_vf v[TC_ROW_PANELS][TC_TILE_VECTORS];
} tc_row_sums;

TC_INLINE void tc_row_step(float value, const float *const panels[TC_ROW_PANELS], int64_t at, tc_row_sums *sum) {
  const tc_vf x = tc_vf_set1(value);
#pragma GCC unroll 4
  for (int p = 0; p < TC_ROW_PANELS; p++) {
    __builtin_prefetch((const char *)(panels[p] + at) + TC_NEAR_BYTES);
#pragma GCC unroll 4
    for (int j = 0; j < TC_TILE_VECTORS; j++) {
      sum->v[p][j] = tc_vf_fma(x, tc_vf_load(panels[p] + at + j * TC_LANES), sum->v[p][j]);
    }
  }
}

/* TC_ROW_COLUMNS whole columns of one row of a block, whose panels follow each other. Clamps, but applies no other
 * activation. */
static __attribute__((noinline)) void tc_row_f32(const tc_block_f32 *block) {
  tc_row_sums sum;
  const float *panels[TC_ROW_PANELS];
  const float *bias = block->bias, *residual = block->residual;
  const tc_vf low = tc_vf_set1(block->epilogue.low), high = tc_vf_set1(block->epilogue.high);
#pragma GCC unroll 4
  for (int p = 0; p < TC_ROW_PANELS; p++) {
    panels[p] = block->panel + p * block->taps * block->depth * TC_PANEL;
#pragma GCC unroll 4
    for (int j = 0; j < TC_TILE_VECTORS; j++) {
      const int64_t column = p * TC_PANEL + j * TC_LANES;
      sum.v[p][j] = tc_vf_load(bias + column);
      if (residual) {
        sum.v[p][j] = tc_vf_add(sum.v[p][j], tc_vf_load(residual + column));
      }
    }
  }
  int64_t at = 0; /* in every panel */
  for (int64_t tap = 0; tap < block->taps; tap++) {
    const float *row = block->rows[tap * block->row_stride] + block->first_depth;
    for (int64_t k = 0; k < block->depth; k++, at += TC_PANEL) {
      tc_row_step(row[k], panels, at, &sum);
    }
  }
#pragma GCC unroll 4
  for (int p = 0; p < TC_ROW_PANELS; p++) {
#pragma GCC unroll 4
    for (int j = 0; j < TC_TILE_VECTORS; j++) {
      tc_vf_store(block->c + p * TC_PANEL + j * TC_LANES, tc_vf_min(high, tc_vf_max(low, sum.v[p][j])));
    }
  }
}

/* A row of up to TC_ROW_COLUMNS columns: all panels at once if they are whole, otherwise one after another. */
static void tc_row_run(const tc_block_f32 *block) {
  if (block->columns == TC_ROW_COLUMNS) {
    tc_row_f32(block);
    tc_activate_rows(&block->epilogue, block->c, block->c_stride, 1, block->columns);
    return;
  }
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
