/* Transposing one block: `to[t * to_row + l] = from[l * from_row + t]`, for elements of every size.
 *
 * With few rows or columns (an image's three channels) the loop has them as a literal, so that the compiler interleaves
 * whole vectors. Otherwise a block is walked in small squares that use every cache line of `from` at once and are
 * turned in registers, but those of 8-byte elements. Vectors of 16 bytes are native to every instruction set. */
#ifndef TINYCOMP_KERNELS_COPY_TRANSPOSE_H
#define TINYCOMP_KERNELS_COPY_TRANSPOSE_H

#include "vocabulary.h"

typedef struct tc_transpose {
  void *to;
  const void *from;
  int64_t to_row, from_row; /* elements between two rows of `to`, and between two rows of `from` */
  int64_t rows, columns;    /* of `to` */
} tc_transpose;

/* Rows of the result that are a multiple of so many bytes apart fall into the same few sets of the first-level cache,
 * so that a cache line had better be finished before the next row but some begins. */
enum { TC_TRANSPOSE_CROWDED = 1024, TC_TRANSPOSE_LINE = 64 };

typedef uint32_t tc_u32x4 __attribute__((vector_size(16)));

/* Picks elements of two vectors by their numbers, which are literals. */
#ifdef __clang__
#define TC_SHUFFLE(type, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define TC_SHUFFLE(type, a, b, ...) __builtin_shuffle(a, b, (type){__VA_ARGS__})
#endif

/* Turns a square of 4 x 4. */
TC_INLINE void tc_transpose_4x4(uint32_t *to, int64_t to_row, const uint32_t *from, int64_t from_row) {
#define TC_SHUFFLE4(a, b, ...) TC_SHUFFLE(tc_u32x4, a, b, __VA_ARGS__)
  tc_u32x4 a, b, c, d;
  memcpy(&a, from, sizeof(a));
  memcpy(&b, from + from_row, sizeof(b));
  memcpy(&c, from + 2 * from_row, sizeof(c));
  memcpy(&d, from + 3 * from_row, sizeof(d));
  const tc_u32x4 ab0 = TC_SHUFFLE4(a, b, 0, 4, 1, 5), ab1 = TC_SHUFFLE4(a, b, 2, 6, 3, 7);
  const tc_u32x4 cd0 = TC_SHUFFLE4(c, d, 0, 4, 1, 5), cd1 = TC_SHUFFLE4(c, d, 2, 6, 3, 7);
  const tc_u32x4 rows[4] = {TC_SHUFFLE4(ab0, cd0, 0, 1, 4, 5), TC_SHUFFLE4(ab0, cd0, 2, 3, 6, 7),
                            TC_SHUFFLE4(ab1, cd1, 0, 1, 4, 5), TC_SHUFFLE4(ab1, cd1, 2, 3, 6, 7)};
#undef TC_SHUFFLE4
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    memcpy(to + i * to_row, &rows[i], sizeof(rows[i]));
  }
}

/* One stage of turning a square by halves: every two rows that are half a square apart are woven into two neighbours.
 */
#define TC_WEAVE(weave, to, from, half)                            \
  _Pragma("GCC unroll 8") for (int i = 0; i < (half); i++) {       \
    (to)[2 * i] = weave##_low((from)[i], (from)[i + (half)]);      \
    (to)[2 * i + 1] = weave##_high((from)[i], (from)[i + (half)]); \
  }
#define TC_WEAVE8_low(a, b) TC_SHUFFLE(tc_u16x8, a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define TC_WEAVE8_high(a, b) TC_SHUFFLE(tc_u16x8, a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#define TC_WEAVE16_low(a, b) TC_SHUFFLE(tc_u8x16, a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define TC_WEAVE16_high(a, b) TC_SHUFFLE(tc_u8x16, a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)

typedef uint16_t tc_u16x8 __attribute__((vector_size(16)));
typedef uint8_t tc_u8x16 __attribute__((vector_size(16)));

/* Turns a square of 8 x 8: after three stages the rows are the columns. */
TC_INLINE void tc_transpose_8x8(uint16_t *to, int64_t to_row, const uint16_t *from, int64_t from_row) {
  tc_u16x8 a[8], b[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; i++) {
    memcpy(&a[i], from + i * from_row, sizeof(a[i]));
  }
  TC_WEAVE(TC_WEAVE8, b, a, 4)
  TC_WEAVE(TC_WEAVE8, a, b, 4)
  TC_WEAVE(TC_WEAVE8, b, a, 4)
#pragma GCC unroll 8
  for (int i = 0; i < 8; i++) {
    memcpy(to + i * to_row, &b[i], sizeof(b[i]));
  }
}

/* Turns a square of 16 x 16 in four stages. */
TC_INLINE void tc_transpose_16x16(uint8_t *to, int64_t to_row, const uint8_t *from, int64_t from_row) {
  tc_u8x16 a[16], b[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; i++) {
    memcpy(&a[i], from + i * from_row, sizeof(a[i]));
  }
  TC_WEAVE(TC_WEAVE16, b, a, 8)
  TC_WEAVE(TC_WEAVE16, a, b, 8)
  TC_WEAVE(TC_WEAVE16, b, a, 8)
  TC_WEAVE(TC_WEAVE16, a, b, 8)
#pragma GCC unroll 16
  for (int i = 0; i < 16; i++) {
    memcpy(to + i * to_row, &a[i], sizeof(a[i]));
  }
}
#undef TC_WEAVE
#undef TC_WEAVE8_low
#undef TC_WEAVE8_high
#undef TC_WEAVE16_low
#undef TC_WEAVE16_high
#undef TC_SHUFFLE

TC_INLINE void tc_square_uint64_t(uint64_t *to, int64_t to_row, const uint64_t *from, int64_t from_row) {
  for (int t = 0; t < 4; t++) {
    for (int l = 0; l < 4; l++) {
      to[t * to_row + l] = from[l * from_row + t];
    }
  }
}
#define tc_square_uint8_t tc_transpose_16x16
#define tc_square_uint16_t tc_transpose_8x8
#define tc_square_uint32_t tc_transpose_4x4

/* The functions for one element type: literal numbers of columns or rows, squares, and the choice among them. */
#define TC_TRANSPOSE(type, side)                                                                                 \
  TC_INLINE void tc_columns_##type(const int columns, const tc_transpose *x) {                                   \
    type *restrict to = x->to;                                                                                   \
    const type *restrict from = x->from;                                                                         \
    if (x->to_row == columns) { /* without gaps: one stream of stores */                                         \
      for (int64_t t = 0; t < x->rows; t++) {                                                                    \
        for (int l = 0; l < columns; l++) {                                                                      \
          to[t * columns + l] = from[l * x->from_row + t];                                                       \
        }                                                                                                        \
      }                                                                                                          \
      return;                                                                                                    \
    }                                                                                                            \
    for (int64_t t = 0; t < x->rows; t++) {                                                                      \
      for (int l = 0; l < columns; l++) {                                                                        \
        to[t * x->to_row + l] = from[l * x->from_row + t];                                                       \
      }                                                                                                          \
    }                                                                                                            \
  }                                                                                                              \
  TC_INLINE void tc_rows_##type(const int rows, const tc_transpose *x) {                                         \
    type *restrict to = x->to;                                                                                   \
    const type *restrict from = x->from;                                                                         \
    if (x->from_row == rows) { /* without gaps: one stream of loads */                                           \
      for (int64_t l = 0; l < x->columns; l++) {                                                                 \
        for (int t = 0; t < rows; t++) {                                                                         \
          to[t * x->to_row + l] = from[l * rows + t];                                                            \
        }                                                                                                        \
      }                                                                                                          \
      return;                                                                                                    \
    }                                                                                                            \
    for (int64_t l = 0; l < x->columns; l++) {                                                                   \
      for (int t = 0; t < rows; t++) {                                                                           \
        to[t * x->to_row + l] = from[l * x->from_row + t];                                                       \
      }                                                                                                          \
    }                                                                                                            \
  }                                                                                                              \
  static void tc_squares_##type(const tc_transpose *x) {                                                         \
    type *to = x->to;                                                                                            \
    const type *from = x->from;                                                                                  \
    const int64_t rows = x->rows & ~(int64_t)(side - 1), columns = x->columns & ~(int64_t)(side - 1);            \
    const bool crowded = x->to_row * (int64_t)sizeof(type) % TC_TRANSPOSE_CROWDED == 0;                          \
    const int64_t step = TC_TRANSPOSE_LINE / (int64_t)sizeof(type), lines = crowded ? columns / step * step : 0; \
    for (int64_t first = 0; first < lines; first += step) {                                                      \
      for (int64_t t = 0; t < rows; t += side) {                                                                 \
        type *y = to + t * x->to_row + first;                                                                    \
        const type *own = from + first * x->from_row + t;                                                        \
        _Pragma("GCC unroll 4") for (int l = 0; l < TC_TRANSPOSE_LINE / (int)sizeof(type); l += side) {          \
          tc_square_##type(y + l, x->to_row, own + l * x->from_row, x->from_row);                                \
        }                                                                                                        \
      }                                                                                                          \
    }                                                                                                            \
    for (int64_t l = lines; l < columns; l += side) {                                                            \
      for (int64_t t = 0; t < rows; t += side) {                                                                 \
        tc_square_##type(to + t * x->to_row + l, x->to_row, from + l * x->from_row + t, x->from_row);            \
      }                                                                                                          \
    }                                                                                                            \
    for (int64_t t = 0; t < x->rows; t++) {                                                                      \
      for (int64_t l = t < rows ? columns : 0; l < x->columns; l++) {                                            \
        to[t * x->to_row + l] = from[l * x->from_row + t];                                                       \
      }                                                                                                          \
    }                                                                                                            \
  }                                                                                                              \
  static __attribute__((noinline)) void tc_transpose_##type(const tc_transpose *x) {                             \
    switch (x->columns) {                                                                                        \
      case 2:                                                                                                    \
        tc_columns_##type(2, x);                                                                                 \
        return;                                                                                                  \
      case 3:                                                                                                    \
        tc_columns_##type(3, x);                                                                                 \
        return;                                                                                                  \
      default:                                                                                                   \
        break;                                                                                                   \
    }                                                                                                            \
    switch (x->rows) {                                                                                           \
      case 2:                                                                                                    \
        tc_rows_##type(2, x);                                                                                    \
        return;                                                                                                  \
      case 3:                                                                                                    \
        tc_rows_##type(3, x);                                                                                    \
        return;                                                                                                  \
      default:                                                                                                   \
        tc_squares_##type(x);                                                                                    \
    }                                                                                                            \
  }
TC_TRANSPOSE(uint8_t, 16)
TC_TRANSPOSE(uint16_t, 8)
TC_TRANSPOSE(uint32_t, 4)
TC_TRANSPOSE(uint64_t, 4)
#undef TC_TRANSPOSE
#undef tc_square_uint8_t
#undef tc_square_uint16_t
#undef tc_square_uint32_t

static void tc_transpose_block(const tc_transpose *block, int64_t element_size) {
  switch (element_size) {
    case 1:
      tc_transpose_uint8_t(block);
      return;
    case 2:
      tc_transpose_uint16_t(block);
      return;
    case 4:
      tc_transpose_uint32_t(block);
      return;
    default:
      tc_transpose_uint64_t(block);
  }
}

#endif
