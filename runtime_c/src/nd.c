/* Walking several strided operands at once. */
#include "nd.h"

#include <string.h>

TC_HOOK void tc_nd_touch(tc_prepare *prepare, int operand, const int64_t sizes[TC_ND_DIMS],
                         const int64_t strides[TC_ND_DIMS], int element_size) {
  const int64_t count = tc_small_product(prepare, sizes, TC_ND_DIMS);
  int64_t span = 1;
  for (int i = 0; i < TC_ND_DIMS && !tc_refused(prepare); i++) {
    TC_REQUIRE(prepare, strides[i] >= -TC_MAX_BYTES && strides[i] <= TC_MAX_BYTES, "a stride of %lld is out of range",
               (long long)strides[i]);
    const int64_t stride = strides[i] < 0 ? -strides[i] : strides[i];
    span += sizes[i] > 1 ? TC_PRODUCT(prepare, sizes[i] - 1, stride) : 0;
  }
  tc_touch(prepare, operand, count ? span : 0, element_size);
  tc_move(prepare, operand, tc_distinct(sizes, strides, TC_ND_DIMS), element_size);
  if (count && !tc_refused(prepare)) {
    prepare->reaches[operand] = tc_reach_of(sizes, strides, TC_ND_DIMS, element_size);
  }
}

TC_HOOK void tc_nd_require_forward(tc_prepare *prepare, const int64_t sizes[TC_ND_DIMS],
                                   const int64_t strides[TC_ND_DIMS]) {
  if (tc_small_product(prepare, sizes, TC_ND_DIMS) == 0) {
    return;
  }
  for (int i = 0; i < TC_ND_DIMS; i++) {
    TC_REQUIRE(prepare, sizes[i] == 1 || strides[i] > 0, "a destination stride is not positive");
  }
}

TC_HOOK tc_nd tc_nd_make(const int64_t sizes[TC_ND_DIMS]) {
  tc_nd nd = {.rank = TC_ND_DIMS};
  memcpy(nd.sizes, sizes, sizeof(nd.sizes));
  return nd;
}

TC_HOOK void tc_nd_add(tc_nd *nd, const int64_t strides[TC_ND_DIMS]) {
  memcpy(nd->strides[nd->views], strides, sizeof(nd->strides[0]));
  for (int i = 0; i < nd->rank; i++) {
    if (strides[i] < 0 && nd->sizes[i] > 0) {
      nd->starts[nd->views] -= (nd->sizes[i] - 1) * strides[i];
    }
  }
  nd->views++;
}

TC_HOOK void tc_nd_add_contiguous(tc_nd *nd) {
  int64_t strides[TC_ND_DIMS], product = 1;
  for (int i = TC_ND_DIMS - 1; i >= 0; i--) {
    strides[i] = product;
    product *= tc_max(nd->sizes[i], 1);
  }
  tc_nd_add(nd, strides);
}

/* Whether every view walks dimension `outer` and the next kept one as a single dimension. */
static bool joins(const tc_nd *nd, int outer, int inner) {
  for (int v = 0; v < nd->views; v++) {
    if (nd->strides[v][outer] != nd->strides[v][inner] * nd->sizes[inner]) {
      return false;
    }
  }
  return true;
}

/* Copies the size and strides of one dimension onto another. */
static void move_dimension(tc_nd *nd, int to, int from) {
  nd->sizes[to] = nd->sizes[from];
  for (int v = 0; v < nd->views; v++) {
    nd->strides[v][to] = nd->strides[v][from];
  }
}

TC_HOOK void tc_nd_collapse(tc_nd *nd) {
  int kept = 0;
  for (int i = 0; i < nd->rank; i++) {
    if (nd->sizes[i] == 1) {
      continue;
    }
    if (kept > 0 && joins(nd, kept - 1, i)) {
      const int64_t size = nd->sizes[kept - 1] * nd->sizes[i];
      move_dimension(nd, kept - 1, i);
      nd->sizes[kept - 1] = size;
    } else {
      move_dimension(nd, kept++, i);
    }
  }
  if (kept == 0) { /* a single element */
    nd->sizes[0] = 1;
    for (int v = 0; v < nd->views; v++) {
      nd->strides[v][0] = 1;
    }
    kept = 1;
  }
  nd->rank = kept;
}

static void swap(int64_t *a, int64_t *b) {
  const int64_t old = *a;
  *a = *b;
  *b = old;
}

TC_HOOK void tc_nd_swap(tc_nd *nd, int i, int j) {
  swap(&nd->sizes[i], &nd->sizes[j]);
  for (int v = 0; v < nd->views; v++) {
    swap(&nd->strides[v][i], &nd->strides[v][j]);
  }
}

TC_HOOK int64_t tc_nd_count(const tc_nd *nd) {
  int64_t count = 1;
  for (int i = 0; i < nd->rank; i++) {
    count *= nd->sizes[i];
  }
  return count;
}

TC_HOOK tc_rows tc_rows_make(const tc_nd *nd, int64_t piece) {
  const int64_t row = nd->sizes[nd->rank - 1];
  const int64_t pieces = tc_ceil_div(row, piece);
  return (tc_rows){*nd, piece, pieces, row ? tc_nd_count(nd) / row * pieces : 0};
}
