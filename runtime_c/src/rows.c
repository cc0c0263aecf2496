/* A walk over the units of a space: what kernels in several dimensions need of it while they run. */
#include <string.h>

#include "nd.h"

static void place_piece(tc_rows_walk *walk) {
  const tc_nd *nd = &walk->rows->nd;
  const int64_t first = walk->part * walk->rows->piece;
  walk->count = tc_min(nd->sizes[nd->rank - 1] - first, walk->rows->piece);
  for (int v = 0; v < nd->views; v++) {
    walk->at[v] = walk->row_offsets[v] + first * walk->step[v];
  }
}

TC_WALK tc_rows_walk tc_rows_seek(const tc_rows *rows, int64_t unit) {
  const tc_nd *nd = &rows->nd;
  tc_rows_walk walk = {.rows = rows, .part = unit % rows->pieces};
  memcpy(walk.row_offsets, nd->starts, sizeof(walk.row_offsets));
  int64_t rest = unit / rows->pieces;
  for (int i = nd->rank - 2; i >= 0; i--) {
    walk.index[i] = rest % nd->sizes[i];
    rest /= nd->sizes[i];
    for (int v = 0; v < nd->views; v++) {
      walk.row_offsets[v] += walk.index[i] * nd->strides[v][i];
    }
  }
  for (int v = 0; v < nd->views; v++) {
    walk.step[v] = nd->strides[v][nd->rank - 1];
  }
  place_piece(&walk);
  return walk;
}

TC_WALK void tc_rows_next(tc_rows_walk *walk) {
  const tc_nd *nd = &walk->rows->nd;
  if (++walk->part == walk->rows->pieces) {
    walk->part = 0;
    for (int i = nd->rank - 2; i >= 0; i--) {
      const bool wraps = ++walk->index[i] == nd->sizes[i];
      for (int v = 0; v < nd->views; v++) {
        walk->row_offsets[v] += wraps ? -(nd->sizes[i] - 1) * nd->strides[v][i] : nd->strides[v][i];
      }
      if (!wraps) {
        break;
      }
      walk->index[i] = 0;
    }
  }
  place_piece(walk);
}
