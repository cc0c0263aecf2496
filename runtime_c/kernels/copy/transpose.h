/* Transposing one block: `to[t * to_row + l] = from[l * from_row + t]`, for elements of every size.
 *
 * With few rows or columns (an image's three channels) the loop has them as a literal, so that the compiler interleaves
 * whole vectors. Otherwise a block is walked in small squares that are turned in registers. Vectors of 16 bytes are
 * native to every instruction set; those of 32 bytes are used where there are such. */
#ifndef TINYCOMP_KERNELS_COPY_TRANSPOSE_H
#define TINYCOMP_KERNELS_COPY_TRANSPOSE_H

#include "vocabulary.h"

typedef struct tc_transpose {
  void *to;
  const void *from;
  int64_t to_row, from_row; /* elements between two rows of `to`, and between two rows of `from` */
  int64_t rows, columns;    /* of `to` */
} tc_transpose;

typedef uint32_t tc_u32x4 __attribute__((vector_size(16)));
/* Elements of any type. Those of 8 bytes may be pairs of smaller ones. */
typedef uint8_t tc_any8;
typedef uint16_t tc_any16 __attribute__((may_alias));
typedef uint32_t tc_any32 __attribute__((may_alias));
typedef uint64_t tc_any64 __attribute__((may_alias, aligned(4)));

/* Picks elements of two vectors by their numbers, which are literals. */
#ifdef __clang__
#define TC_SHUFFLE(type, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define TC_SHUFFLE(type, a, b, ...) __builtin_shuffle(a, b, (type){__VA_ARGS__})
#endif

/* Turns a square of 4 x 4. */
TC_INLINE void tc_transpose_4x4(tc_any32 *to, int64_t to_row, const tc_any32 *from, int64_t from_row) {
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

/* Turns a square whose side is a power of 2, `stages`: after as many the rows are the columns. */
#define TC_TURN(name, element, vector, side, stages, weave)                                                       \
  TC_INLINE void name(element *to, int64_t to_row, const element *from, int64_t from_row) {                       \
    vector a[side], b[side];                                                                                      \
    _Pragma("GCC unroll 16") for (int i = 0; i < side; i++) { memcpy(&a[i], from + i * from_row, sizeof(a[i])); } \
    TC_WEAVE(weave, b, a, side / 2)                                                                               \
    TC_WEAVE(weave, a, b, side / 2)                                                                               \
    if (stages > 2) {                                                                                             \
      TC_WEAVE(weave, b, a, side / 2)                                                                             \
    }                                                                                                             \
    if (stages > 3) {                                                                                             \
      TC_WEAVE(weave, a, b, side / 2)                                                                             \
    }                                                                                                             \
    _Pragma("GCC unroll 16") for (int i = 0; i < side; i++) {                                                     \
      memcpy(to + i * to_row, stages == 3 ? &b[i] : &a[i], sizeof(a[i]));                                         \
    }                                                                                                             \
  }
TC_TURN(tc_transpose_8x8, tc_any16, tc_u16x8, 8, 3, TC_WEAVE8)
TC_TURN(tc_transpose_16x16, tc_any8, tc_u8x16, 16, 4, TC_WEAVE16)
typedef uint32_t tc_u32x8 __attribute__((vector_size(32)));
typedef uint64_t tc_u64x4 __attribute__((vector_size(32)));
#define TC_WEAVE_WIDE8_low(a, b) TC_SHUFFLE(tc_u32x8, a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define TC_WEAVE_WIDE8_high(a, b) TC_SHUFFLE(tc_u32x8, a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#define TC_WEAVE_WIDE4_low(a, b) TC_SHUFFLE(tc_u64x4, a, b, 0, 4, 1, 5)
#define TC_WEAVE_WIDE4_high(a, b) TC_SHUFFLE(tc_u64x4, a, b, 2, 6, 3, 7)
TC_TURN(tc_transpose_wide_8x8, tc_any32, tc_u32x8, 8, 3, TC_WEAVE_WIDE8)
TC_TURN(tc_transpose_wide_4x4, tc_any64, tc_u64x4, 4, 2, TC_WEAVE_WIDE4)

/* Squares that blocks are walked in, with the length of their side, a literal. */
enum { TC_SIDE32 = TC_LANES >= 8 ? 8 : 4 };
#define TC_SQUARE(type) \
  TC_INLINE void tc_square_##type(const int side, type *to, int64_t to_row, const type *from, int64_t from_row)
TC_SQUARE(tc_any8) {
  (void)side;
  tc_transpose_16x16(to, to_row, from, from_row);
}
TC_SQUARE(tc_any16) {
  (void)side;
  tc_transpose_8x8(to, to_row, from, from_row);
}
TC_SQUARE(tc_any32) {
  if (side == 8) {
    tc_transpose_wide_8x8(to, to_row, from, from_row);
  } else {
    tc_transpose_4x4(to, to_row, from, from_row);
  }
}
TC_SQUARE(tc_any64) {
  if (TC_LANES >= 8) {
    tc_transpose_wide_4x4(to, to_row, from, from_row);
    return;
  }
  for (int t = 0; t < side; t++) {
    for (int l = 0; l < side; l++) {
      to[t * to_row + l] = from[l * from_row + t];
    }
  }
}
#undef TC_SQUARE
#undef TC_TURN
#undef TC_WEAVE
#undef TC_WEAVE8_low
#undef TC_WEAVE8_high
#undef TC_WEAVE16_low
#undef TC_WEAVE16_high
#undef TC_WEAVE_WIDE8_low
#undef TC_WEAVE_WIDE8_high
#undef TC_WEAVE_WIDE4_low
#undef TC_WEAVE_WIDE4_high
#undef TC_SHUFFLE

/* Whether rows so far apart soon meet in one place of a cache: then they are written along, and otherwise read along.
 */
TC_INLINE bool tc_meets_itself(int64_t bytes) { return bytes % 1024 == 0; }

/* Whether squares of a side leave little of a size to smaller ones. */
TC_INLINE bool tc_suits(int64_t size, int side) { return size >= 4 * side || (size >= side && size % side < side / 2); }

/* The functions for one element type: literal numbers of columns or rows, squares, and the choice among them. */
#define TC_TRANSPOSE(type, most, few)                                                                   \
  TC_INLINE void tc_columns_##type(const int columns, const tc_transpose x) {                           \
    type *restrict to = x.to;                                                                           \
    const type *restrict from = x.from;                                                                 \
    if (x.to_row == columns) { /* without gaps: one stream of stores */                                 \
      for (int64_t t = 0; t < x.rows; t++) {                                                            \
        for (int l = 0; l < columns; l++) {                                                             \
          to[t * columns + l] = from[l * x.from_row + t];                                               \
        }                                                                                               \
      }                                                                                                 \
      return;                                                                                           \
    }                                                                                                   \
    for (int64_t t = 0; t < x.rows; t++) {                                                              \
      for (int l = 0; l < columns; l++) {                                                               \
        to[t * x.to_row + l] = from[l * x.from_row + t];                                                \
      }                                                                                                 \
    }                                                                                                   \
  }                                                                                                     \
  TC_INLINE void tc_rows_##type(const int rows, const tc_transpose x) {                                 \
    type *restrict to = x.to;                                                                           \
    const type *restrict from = x.from;                                                                 \
    if (x.from_row == rows) { /* without gaps: one stream of loads */                                   \
      for (int64_t l = 0; l < x.columns; l++) {                                                         \
        for (int t = 0; t < rows; t++) {                                                                \
          to[t * x.to_row + l] = from[l * rows + t];                                                    \
        }                                                                                               \
      }                                                                                                 \
      return;                                                                                           \
    }                                                                                                   \
    for (int64_t l = 0; l < x.columns; l++) {                                                           \
      for (int t = 0; t < rows; t++) {                                                                  \
        to[t * x.to_row + l] = from[l * x.from_row + t];                                                \
      }                                                                                                 \
    }                                                                                                   \
  }                                                                                                     \
  TC_INLINE void tc_squares_##type(const int side, const tc_transpose x) {                              \
    type *to = x.to;                                                                                    \
    const type *from = x.from;                                                                          \
    const int64_t rows = x.rows & ~(int64_t)(side - 1), columns = x.columns & ~(int64_t)(side - 1);     \
    const bool along = tc_meets_itself(x.to_row * (int64_t)sizeof(type));                               \
    const int64_t outer = along ? rows : columns, inner = along ? columns : rows;                       \
    for (int64_t i = 0; i < outer; i += side) {                                                         \
      for (int64_t j = 0; j < inner; j += side) {                                                       \
        const int64_t t = along ? i : j, l = along ? j : i;                                             \
        tc_square_##type(side, to + t * x.to_row + l, x.to_row, from + l * x.from_row + t, x.from_row); \
      }                                                                                                 \
    }                                                                                                   \
    for (int64_t t = 0; t < x.rows; t++) {                                                              \
      for (int64_t l = t < rows ? columns : 0; l < x.columns; l++) {                                    \
        to[t * x.to_row + l] = from[l * x.from_row + t];                                                \
      }                                                                                                 \
    }                                                                                                   \
  }                                                                                                     \
  static __attribute__((noinline)) void tc_transpose_##type(const tc_transpose *given) {                \
    const tc_transpose x = *given; /* whose fields no store changes */                                  \
    switch (x.columns) {                                                                                \
      case 2:                                                                                           \
        tc_columns_##type(2, x);                                                                        \
        return;                                                                                         \
      case 3:                                                                                           \
        tc_columns_##type(3, x);                                                                        \
        return;                                                                                         \
      default:                                                                                          \
        break;                                                                                          \
    }                                                                                                   \
    switch (x.rows) {                                                                                   \
      case 2:                                                                                           \
        tc_rows_##type(2, x);                                                                           \
        return;                                                                                         \
      case 3:                                                                                           \
        tc_rows_##type(3, x);                                                                           \
        return;                                                                                         \
      default:                                                                                          \
        break;                                                                                          \
    }                                                                                                   \
    if (most == few || (tc_suits(x.rows, most) && tc_suits(x.columns, most))) {                         \
      tc_squares_##type(most, x);                                                                       \
    } else {                                                                                            \
      tc_squares_##type(few, x);                                                                        \
    }                                                                                                   \
  }
TC_TRANSPOSE(tc_any8, 16, 16)
TC_TRANSPOSE(tc_any16, 8, 8)
TC_TRANSPOSE(tc_any32, TC_SIDE32, 4)
TC_TRANSPOSE(tc_any64, 4, 4)
#undef TC_TRANSPOSE

static void tc_transpose_block(const tc_transpose *block, int64_t element_size) {
  switch (element_size) {
    case 1:
      tc_transpose_tc_any8(block);
      return;
    case 2:
      tc_transpose_tc_any16(block);
      return;
    case 4:
      tc_transpose_tc_any32(block);
      return;
    default:
      tc_transpose_tc_any64(block);
  }
}

#endif
