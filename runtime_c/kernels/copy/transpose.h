/* Transposing one block: `to[t * to_row + l] = from[l * from_row + t]`, for elements of every size.
 *
 * With few rows or columns (an image's three channels) the loop has them as a literal, so that the compiler interleaves
 * whole vectors. Otherwise a block is walked in small squares that use every cache line of `from` at once; squares of
 * 4-byte elements are turned in registers. Vectors of 16 bytes are native to every instruction set. */

typedef struct tc_transpose {
  void *to;
  const void *from;
  int64_t to_row, from_row; /* elements between two rows of `to`, and between two rows of `from` */
  int64_t rows, columns;    /* of `to` */
} tc_transpose;

typedef uint32_t tc_u32x4 __attribute__((vector_size(16)));

TC_INLINE tc_u32x4 tc_u32x4_load(const uint32_t *p) {
  tc_u32x4 v;
  memcpy(&v, p, sizeof(v));
  return v;
}

/* Turns a square of 4 x 4. */
TC_INLINE void tc_transpose_4x4(uint32_t *to, int64_t to_row, const uint32_t *from, int64_t from_row) {
  const tc_u32x4 low = {0, 4, 1, 5}, high = {2, 6, 3, 7}, first = {0, 1, 4, 5}, second = {2, 3, 6, 7};
  const tc_u32x4 a = tc_u32x4_load(from), b = tc_u32x4_load(from + from_row);
  const tc_u32x4 c = tc_u32x4_load(from + 2 * from_row), d = tc_u32x4_load(from + 3 * from_row);
  const tc_u32x4 ab0 = __builtin_shuffle(a, b, low), ab1 = __builtin_shuffle(a, b, high);
  const tc_u32x4 cd0 = __builtin_shuffle(c, d, low), cd1 = __builtin_shuffle(c, d, high);
  const tc_u32x4 rows[4] = {__builtin_shuffle(ab0, cd0, first), __builtin_shuffle(ab0, cd0, second),
                            __builtin_shuffle(ab1, cd1, first), __builtin_shuffle(ab1, cd1, second)};
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    memcpy(to + i * to_row, &rows[i], sizeof(rows[i]));
  }
}

#define TC_SQUARE_BY_ELEMENTS(type)                                                               \
  TC_INLINE void tc_square_##type(type *to, int64_t to_row, const type *from, int64_t from_row) { \
    for (int t = 0; t < 4; t++) {                                                                 \
      for (int l = 0; l < 4; l++) {                                                               \
        to[t * to_row + l] = from[l * from_row + t];                                              \
      }                                                                                           \
    }                                                                                             \
  }
TC_SQUARE_BY_ELEMENTS(uint8_t)
TC_SQUARE_BY_ELEMENTS(uint16_t)
TC_SQUARE_BY_ELEMENTS(uint64_t)
#undef TC_SQUARE_BY_ELEMENTS
#define tc_square_uint32_t tc_transpose_4x4

/* The functions for one element type: literal numbers of columns or rows, squares, and the choice among them. */
#define TC_TRANSPOSE(type)                                                                            \
  TC_INLINE void tc_columns_##type(const int columns, const tc_transpose *x) {                        \
    type *restrict to = x->to;                                                                        \
    const type *restrict from = x->from;                                                              \
    if (x->to_row == columns) { /* without gaps: one stream of stores */                              \
      for (int64_t t = 0; t < x->rows; t++) {                                                         \
        for (int l = 0; l < columns; l++) {                                                           \
          to[t * columns + l] = from[l * x->from_row + t];                                            \
        }                                                                                             \
      }                                                                                               \
      return;                                                                                         \
    }                                                                                                 \
    for (int64_t t = 0; t < x->rows; t++) {                                                           \
      for (int l = 0; l < columns; l++) {                                                             \
        to[t * x->to_row + l] = from[l * x->from_row + t];                                            \
      }                                                                                               \
    }                                                                                                 \
  }                                                                                                   \
  TC_INLINE void tc_rows_##type(const int rows, const tc_transpose *x) {                              \
    type *restrict to = x->to;                                                                        \
    const type *restrict from = x->from;                                                              \
    if (x->from_row == rows) { /* without gaps: one stream of loads */                                \
      for (int64_t l = 0; l < x->columns; l++) {                                                      \
        for (int t = 0; t < rows; t++) {                                                              \
          to[t * x->to_row + l] = from[l * rows + t];                                                 \
        }                                                                                             \
      }                                                                                               \
      return;                                                                                         \
    }                                                                                                 \
    for (int64_t l = 0; l < x->columns; l++) {                                                        \
      for (int t = 0; t < rows; t++) {                                                                \
        to[t * x->to_row + l] = from[l * x->from_row + t];                                            \
      }                                                                                               \
    }                                                                                                 \
  }                                                                                                   \
  static void tc_squares_##type(const tc_transpose *x) {                                              \
    type *to = x->to;                                                                                 \
    const type *from = x->from;                                                                       \
    const int64_t rows = x->rows & ~(int64_t)3, columns = x->columns & ~(int64_t)3;                   \
    for (int64_t l = 0; l < columns; l += 4) {                                                        \
      for (int64_t t = 0; t < rows; t += 4) {                                                         \
        tc_square_##type(to + t * x->to_row + l, x->to_row, from + l * x->from_row + t, x->from_row); \
      }                                                                                               \
    }                                                                                                 \
    for (int64_t t = 0; t < x->rows; t++) {                                                           \
      for (int64_t l = t < rows ? columns : 0; l < x->columns; l++) {                                 \
        to[t * x->to_row + l] = from[l * x->from_row + t];                                            \
      }                                                                                               \
    }                                                                                                 \
  }                                                                                                   \
  static __attribute__((noinline)) void tc_transpose_##type(const tc_transpose *x) {                  \
    switch (x->columns) {                                                                             \
      case 2:                                                                                         \
        tc_columns_##type(2, x);                                                                      \
        return;                                                                                       \
      case 3:                                                                                         \
        tc_columns_##type(3, x);                                                                      \
        return;                                                                                       \
      default:                                                                                        \
        break;                                                                                        \
    }                                                                                                 \
    switch (x->rows) {                                                                                \
      case 2:                                                                                         \
        tc_rows_##type(2, x);                                                                         \
        return;                                                                                       \
      case 3:                                                                                         \
        tc_rows_##type(3, x);                                                                         \
        return;                                                                                       \
      default:                                                                                        \
        tc_squares_##type(x);                                                                         \
    }                                                                                                 \
  }
TC_TRANSPOSE(uint8_t)
TC_TRANSPOSE(uint16_t)
TC_TRANSPOSE(uint32_t)
TC_TRANSPOSE(uint64_t)
#undef TC_TRANSPOSE
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
