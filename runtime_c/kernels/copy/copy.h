/* copy: a strided copy in up to eight dimensions. State: the collapsed plan, which is one of two things.
 *
 * Rows: dimensions in the order of the destination's strides, the last one copied at once (or repeated, or gathered).
 * Rows of few elements are copied many at a time: each at once, or one of their columns after the other. Pairs of
 * 4-byte elements that stay together are elements of 8 bytes.
 * Transposition: as rows, but the source is contiguous along another dimension, which becomes the last but one; the
 * last two are copied in blocks. Units are pieces of rows or such blocks. */
#ifndef TINYCOMP_KERNELS_COPY_COPY_H
#define TINYCOMP_KERNELS_COPY_COPY_H

#include "vocabulary.h"

#include "transpose.h"

enum { COPY_TO, COPY_FROM };

enum {
  COPY_PIECE_BYTES = 32 * 1024,
  COPY_BLOCK = 64,
  COPY_BLOCK_ELEMENTS = 4096,
  COPY_NARROW = 8,
  COPY_SHORT = 4,
  COPY_ROW_BYTES = 1024
};

typedef struct copy_plan {
  tc_rows rows;                            /* of a transposition: over the dimensions but the last two, one unit each */
  int64_t size;                            /* of an element, in bytes */
  int64_t columns, to_column, from_column; /* of narrow rows, and the steps between them; 1 column if rows are not */
  int64_t transposes;                      /* or not: 0 */
  int64_t to_row, from_row;                /* strides of a transposition */
  int64_t block_rows, block_columns;       /* of a whole block */
  int64_t tall, wide;                      /* of the two transposed dimensions: rows and columns of the destination */
  int64_t across, blocks;                  /* blocks side by side, and in all */
} copy_plan;

/* Orders dimensions by the destination's strides, greatest first, so that it is written in the order of memory. */
static void copy_sort(tc_nd *nd) {
  for (int i = 1; i < nd->rank; i++) {
    for (int j = i; j > 0 && nd->strides[COPY_TO][j - 1] < nd->strides[COPY_TO][j]; j--) {
      tc_nd_swap(nd, j - 1, j);
    }
  }
}

/* The dimension along which the source is contiguous although the destination is not, or -1. */
static int copy_transposed_dimension(const tc_nd *nd) {
  const int last = nd->rank - 1;
  if (nd->strides[COPY_TO][last] != 1 || nd->strides[COPY_FROM][last] == 1 || nd->strides[COPY_FROM][last] == 0) {
    return -1;
  }
  for (int i = last - 1; i >= 0; i--) {
    if (nd->strides[COPY_FROM][i] == 1) {
      return i;
    }
  }
  return -1;
}

/* Cuts the last two dimensions into blocks and leaves the others as rows of one element. */
static void copy_plan_blocks(copy_plan *plan, tc_nd nd) {
  const int last = nd.rank - 1;
  plan->transposes = 1;
  plan->tall = nd.sizes[last - 1];
  plan->wide = nd.sizes[last];
  plan->to_row = nd.strides[COPY_TO][last - 1];
  plan->from_row = nd.strides[COPY_FROM][last];
  plan->block_rows = plan->block_columns = COPY_BLOCK;
  if (plan->wide < COPY_BLOCK) {
    plan->block_columns = plan->wide;
    plan->block_rows = tc_round_up(COPY_BLOCK_ELEMENTS / tc_max(plan->wide, 1), 16);
  } else if (plan->tall < COPY_BLOCK) {
    plan->block_rows = plan->tall;
    plan->block_columns = tc_round_up(COPY_BLOCK_ELEMENTS / tc_max(plan->tall, 1), 16);
  }
  plan->across = tc_ceil_div(plan->wide, plan->block_columns);
  plan->blocks = plan->across * tc_ceil_div(plan->tall, plan->block_rows);
  nd.sizes[last - 1] = nd.sizes[last] = 1;
  plan->rows = tc_rows_make(&nd, 1);
}

/* Leaves narrow rows out of the walk, so that a piece is one column of many of them, or all of them if they are not cut
 * up and no longer than a few registers. */
static void copy_plan_columns(copy_plan *plan, tc_nd *nd) {
  const int last = nd->rank - 1;
  const bool whole = nd->strides[COPY_TO][last] == 1 && nd->strides[COPY_FROM][last] == 1;
  const int64_t most = whole ? COPY_ROW_BYTES / plan->size : COPY_NARROW;
  plan->columns = 1;
  if (last > 0 && nd->sizes[last] > 0 && nd->sizes[last] <= most && nd->sizes[last - 1] >= COPY_SHORT) {
    plan->columns = nd->sizes[last];
    plan->to_column = nd->strides[COPY_TO][last];
    plan->from_column = nd->strides[COPY_FROM][last];
    nd->rank = last;
  }
}

/* Takes pairs of 4-byte elements for one element where they are the whole of the last dimension. */
static void copy_join_pairs(copy_plan *plan, tc_nd *nd) {
  const int last = nd->rank - 1;
  bool pairs = plan->size == 4 && nd->sizes[last] == 2 && last > 0;
  for (int v = 0; v < nd->views; v++) {
    pairs &= nd->strides[v][last] == 1 && nd->starts[v] % 2 == 0;
    for (int i = 0; i < last; i++) {
      pairs &= nd->strides[v][i] % 2 == 0;
    }
  }
  if (!pairs) {
    return;
  }
  plan->size = 8;
  for (int v = 0; v < nd->views; v++) {
    nd->starts[v] /= 2;
    for (int i = 0; i < last; i++) {
      nd->strides[v][i] /= 2;
    }
  }
  nd->sizes[last] = 1;
  tc_nd_collapse(nd);
}

static copy_plan copy_plan_make(const tc_copy_params *p) {
  tc_nd nd = tc_nd_make(TC_EIGHT(p, size));
  tc_nd_add(&nd, TC_EIGHT(p, to_stride));
  tc_nd_add(&nd, TC_EIGHT(p, from_stride));
  tc_nd_collapse(&nd);
  copy_sort(&nd);
  tc_nd_collapse(&nd);
  copy_plan plan = {.size = p->element_size};
  copy_join_pairs(&plan, &nd);
  const int transposed = copy_transposed_dimension(&nd);
  if (transposed >= 0 && tc_nd_count(&nd) > 0) {
    for (int i = transposed; i < nd.rank - 2; i++) {
      tc_nd_swap(&nd, i, i + 1);
    }
    copy_plan_blocks(&plan, nd);
  } else {
    copy_plan_columns(&plan, &nd);
    plan.rows = tc_rows_make(&nd, tc_max(COPY_PIECE_BYTES / plan.size / plan.columns, 1));
  }
  return plan;
}

static void copy_check(tc_prepare *prepare) {
  const tc_copy_params *p = prepare->params;
  const int64_t size = p->element_size;
  TC_REQUIRE(prepare, size == 1 || size == 2 || size == 4 || size == 8, "elements of %lld bytes cannot be copied",
             (long long)size);
  tc_nd_require_forward(prepare, TC_EIGHT(p, size), TC_EIGHT(p, to_stride));
  tc_nd_touch(prepare, COPY_TO, TC_EIGHT(p, size), TC_EIGHT(p, to_stride), (int)size);
  tc_nd_touch(prepare, COPY_FROM, TC_EIGHT(p, size), TC_EIGHT(p, from_stride), (int)size);
}

static void TC_NAME(tc_copy_prepare)(tc_prepare *prepare) {
  copy_check(prepare);
  if (tc_refused(prepare)) {
    return;
  }
  const tc_copy_params *p = prepare->params;
  const copy_plan plan = copy_plan_make(p);
  prepare->units = plan.rows.units * (plan.transposes ? plan.blocks : 1);
  prepare->cost = (double)(TC_PRODUCT(prepare, p->element_size, tc_product(prepare, TC_EIGHT(p, size), TC_ND_DIMS)));
  prepare->state_bytes = sizeof(copy_plan);
  tc_state_rows(prepare, sizeof(copy_plan));
}

static void TC_NAME(tc_copy_pack)(const tc_prepare *prepare, void *state) {
  *(copy_plan *)state = copy_plan_make(prepare->params);
}

#define COPY_STRIDED(type)                                                                                         \
  static void copy_strided_##type(void *to, int64_t to_step, const void *from, int64_t from_step, int64_t count) { \
    type *y = to;                                                                                                  \
    const type *x = from;                                                                                          \
    if (from_step == 0) {                                                                                          \
      const type value = *x;                                                                                       \
      for (int64_t i = 0; i < count; i++) {                                                                        \
        y[i * to_step] = value;                                                                                    \
      }                                                                                                            \
      return;                                                                                                      \
    }                                                                                                              \
    for (int64_t i = 0; i < count; i++) {                                                                          \
      y[i * to_step] = x[i * from_step];                                                                           \
    }                                                                                                              \
  }
COPY_STRIDED(tc_any8)
COPY_STRIDED(tc_any16)
COPY_STRIDED(tc_any32)
COPY_STRIDED(tc_any64)
#undef COPY_STRIDED

static void copy_piece(char *to, const char *from, int64_t element_size, const tc_rows_walk *walk) {
  const int64_t to_step = walk->step[COPY_TO], from_step = walk->step[COPY_FROM], count = walk->count;
  if (to_step == 1 && from_step == 1) {
    tc_memmove(to, from, (size_t)(count * element_size)); /* a program from a file may let both overlap */
    return;
  }
  switch (element_size) {
    case 1:
      copy_strided_tc_any8(to, to_step, from, from_step, count);
      return;
    case 2:
      copy_strided_tc_any16(to, to_step, from, from_step, count);
      return;
    case 4:
      copy_strided_tc_any32(to, to_step, from, from_step, count);
      return;
    default:
      copy_strided_tc_any64(to, to_step, from, from_step, count);
  }
}

/* Rows of one to two times `half` bytes, inlined with literal halves, which overlap. Strides are in bytes. */
TC_INLINE void copy_halves(char *to, int64_t to_step, const char *from, int64_t from_step, int64_t rows, int64_t bytes,
                           const size_t half) {
  const int64_t rest = bytes - (int64_t)half;
  for (int64_t i = 0; i < rows; i++, to += to_step, from += from_step) {
    char first[64], second[64];
    memcpy(first, from, half);
    memcpy(second, from + rest, half);
    memcpy(to, first, half);
    memcpy(to + rest, second, half);
  }
}

/* A piece of narrow rows: whole rows, or else column by column. */
static void copy_narrow(const copy_plan *plan, char *to, const char *from, const tc_rows_walk *walk) {
  const int64_t size = plan->size, bytes = plan->columns * size, rows = walk->count;
  const int64_t to_step = walk->step[COPY_TO] * size, from_step = walk->step[COPY_FROM] * size;
  if (plan->to_column != 1 || plan->from_column != 1 || bytes < 4) {
    for (int64_t i = 0; i < plan->columns; i++) {
      copy_piece(to + i * plan->to_column * size, from + i * plan->from_column * size, size, walk);
    }
  } else if (bytes < 8) {
    copy_halves(to, to_step, from, from_step, rows, bytes, 4);
  } else if (bytes < 16) {
    copy_halves(to, to_step, from, from_step, rows, bytes, 8);
  } else if (bytes < 32) {
    copy_halves(to, to_step, from, from_step, rows, bytes, 16);
  } else if (bytes < 64) {
    copy_halves(to, to_step, from, from_step, rows, bytes, 32);
  } else {
    for (int64_t i = 0; i < rows; i++) {
      for (int64_t done = 0; done < bytes; done += 64) { /* the last 64 bytes may overlap those before */
        const int64_t at = tc_min(done, bytes - 64);
        copy_halves(to + i * to_step + at, 0, from + i * from_step + at, 0, 1, 64, 64);
      }
    }
  }
}

static void copy_rows(const tc_call *call, const copy_plan *plan, int64_t begin, int64_t end) {
  const int64_t size = plan->size;
  char *to = call->operands[COPY_TO];
  const char *from = call->operands[COPY_FROM];
  tc_rows_walk walk = tc_rows_seek(&plan->rows, begin);
  for (int64_t unit = begin; unit < end; unit++) {
    char *y = to + walk.at[COPY_TO] * size;
    const char *x = from + walk.at[COPY_FROM] * size;
    if (plan->columns > 1) {
      copy_narrow(plan, y, x, &walk);
    } else {
      copy_piece(y, x, size, &walk);
    }
    tc_rows_next(&walk);
  }
}

static void copy_blocks(const tc_call *call, const copy_plan *plan, int64_t begin, int64_t end) {
  const int64_t size = plan->size;
  tc_rows_walk walk = tc_rows_seek(&plan->rows, begin / plan->blocks);
  for (int64_t unit = begin, block = begin % plan->blocks; unit < end; unit++) {
    const int64_t row = block / plan->across * plan->block_rows, column = block % plan->across * plan->block_columns;
    const int64_t to = walk.at[COPY_TO] + row * plan->to_row + column;
    const int64_t from = walk.at[COPY_FROM] + column * plan->from_row + row;
    const tc_transpose piece = {.to = (char *)call->operands[COPY_TO] + to * size,
                                .from = (const char *)call->operands[COPY_FROM] + from * size,
                                .to_row = plan->to_row,
                                .from_row = plan->from_row,
                                .rows = tc_min(plan->tall - row, plan->block_rows),
                                .columns = tc_min(plan->wide - column, plan->block_columns)};
    tc_transpose_block(&piece, size);
    if (++block == plan->blocks) {
      block = 0;
      tc_rows_next(&walk);
    }
  }
}

static void TC_NAME(tc_copy)(const tc_call *call, int64_t begin, int64_t end) {
  const copy_plan *plan = call->state;
  (plan->transposes ? copy_blocks : copy_rows)(call, plan, begin, end);
}

#endif
