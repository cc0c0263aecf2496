/* Walking several strided operands at once, in up to eight dimensions. */
#ifndef TINYCOMP_ND_H
#define TINYCOMP_ND_H

#include "kernel.h"

enum { TC_ND_DIMS = 8, TC_ND_VIEWS = 12 };

/* The eight fields of a parameter struct that begin with a name, as an array. */
#define TC_EIGHT(p, field)                                                                                \
  ((const int64_t[TC_ND_DIMS]){(p)->field##0, (p)->field##1, (p)->field##2, (p)->field##3, (p)->field##4, \
                               (p)->field##5, (p)->field##6, (p)->field##7})

/* One iteration space and the strides, in elements, of the operands that are walked in it. */
typedef struct tc_nd {
  int rank; /* at least 1 */
  int views;
  int64_t sizes[TC_ND_DIMS];
  int64_t strides[TC_ND_VIEWS][TC_ND_DIMS];
  int64_t starts[TC_ND_VIEWS]; /* of the first element, counted from the lowest: not 0 for negative strides */
} tc_nd;

/* States what a call touches of an operand with these strides, the operand's offset being that of the lowest element,
 * and that it moves each of its elements once. Refuses sizes and strides whose arithmetic could overflow. */
TC_HOOK void tc_nd_touch(tc_prepare *prepare, int operand, const int64_t sizes[TC_ND_DIMS],
                         const int64_t strides[TC_ND_DIMS], int element_size);

/* What is reached with strides that are not negative: dimensions are joined to rows, that of the least stride first. */
TC_HOOK tc_reach tc_reach_of(const int64_t *sizes, const int64_t *strides, int dimensions, int element_size);

/* Refuses strides that would write an element twice by not moving at all, or walk backwards. */
TC_HOOK void tc_nd_require_forward(tc_prepare *prepare, const int64_t sizes[TC_ND_DIMS],
                                   const int64_t strides[TC_ND_DIMS]);

/* A full iteration space without views; only for sizes that tc_nd_touch has accepted. */
TC_HOOK tc_nd tc_nd_make(const int64_t sizes[TC_ND_DIMS]);
TC_HOOK void tc_nd_add(tc_nd *nd, const int64_t strides[TC_ND_DIMS]);
/* Adds the view of a row-major tensor without gaps. */
TC_HOOK void tc_nd_add_contiguous(tc_nd *nd);
/* Drops dimensions of size 1, and joins neighbours that every view walks as one. */
TC_HOOK void tc_nd_collapse(tc_nd *nd);
/* Exchanges two dimensions of the iteration. */
TC_HOOK void tc_nd_swap(tc_nd *nd, int i, int j);
/* Elements in all. */
TC_HOOK int64_t tc_nd_count(const tc_nd *nd);

/* A collapsed space cut into units: pieces of at most `piece` elements of rows along the last dimension. */
typedef struct tc_rows {
  tc_nd nd;
  int64_t piece, pieces; /* elements of a piece; pieces per row */
  int64_t units;
} tc_rows;

TC_HOOK tc_rows tc_rows_make(const tc_nd *nd, int64_t piece);

/* States that the state begins with such a space, and then has nothing but int64 until an offset. */
static inline void tc_state_rows(tc_prepare *prepare, size_t end) {
  const int64_t first = offsetof(tc_nd, sizes);
  tc_state_numbers(prepare, 0, first / (int64_t)sizeof(int), sizeof(int));
  tc_state_numbers(prepare, first, ((int64_t)end - first) / (int64_t)sizeof(int64_t), sizeof(int64_t));
}

/* States that the state is such a space. */
static inline void tc_state_is_rows(tc_prepare *prepare) {
  prepare->state_bytes = sizeof(tc_rows);
  tc_state_rows(prepare, sizeof(tc_rows));
}

/* Where a walk over units is. */
typedef struct tc_rows_walk {
  const tc_rows *rows;
  int64_t part;                               /* which piece of the row */
  int64_t index[TC_ND_DIMS];                  /* of the row */
  int64_t row_offsets[TC_ND_VIEWS];           /* of the row's first element */
  int64_t at[TC_ND_VIEWS], step[TC_ND_VIEWS]; /* the piece's first element in every view, and the stride along it */
  int64_t count;
} tc_rows_walk;

/* Kernels that stand alone have a walk of their own. */
#ifdef TC_STANDALONE
#define TC_WALK static
#else
#define TC_WALK
#endif
TC_WALK tc_rows_walk tc_rows_seek(const tc_rows *rows, int64_t unit);
TC_WALK void tc_rows_next(tc_rows_walk *walk);

#endif
