/* matmul: batched products of types other than f32; integers wrap around. A unit is a strip of rows of one batch by a
 * panel of columns. The right operand is packed, a part of the depth at a time, and a tile of sums stays in registers
 * along that part. Every sum is formed in the order of the depth, whatever surrounds it.
 * Scratch: the packed part of a panel. */
#ifndef TINYCOMP_KERNELS_GEMM_MATMUL_H
#define TINYCOMP_KERNELS_GEMM_MATMUL_H

#include "vocabulary.h"

#include "../common/number.h"
#include "../copy/transpose.h"

enum { MATMUL_ANY_C, MATMUL_ANY_A, MATMUL_ANY_B };
enum { MATMUL_STRIP = 96, MATMUL_DEPTH = 256, MATMUL_ROWS = 6, MATMUL_VECTORS = TC_REGISTERS >= 32 ? 4 : 2 };
/* Bytes of a vector, and of a row of a panel: of vectors of the compiler's, which are numbers where there are none. */
enum { MATMUL_BYTES = TC_LANES > 4 ? 4 * TC_LANES : 16, MATMUL_PANEL = MATMUL_VECTORS * MATMUL_BYTES };

/* MATMUL_TYPE(kind, type): sums are formed in `type`, in which integers are unsigned. */
#define MATMUL_TYPE_LIST     \
  MATMUL_TYPE(F64, double)   \
  MATMUL_TYPE(U32, uint32_t) \
  MATMUL_TYPE(U64, uint64_t)

static int64_t matmul_unsigned(int64_t type) {
  return type == TC_TYPE_I32 ? TC_TYPE_U32 : type == TC_TYPE_I64 ? TC_TYPE_U64 : type;
}

static void TC_NAME(tc_matmul_prepare)(tc_prepare *prepare) {
  const tc_matmul_params *p = prepare->params;
  const int64_t type = matmul_unsigned(p->type), macs = TC_PRODUCT(prepare, p->batch0, p->batch1, p->m, p->n, p->k);
  TC_REQUIRE(prepare, type == TC_TYPE_F64 || type == TC_TYPE_U32 || type == TC_TYPE_U64,
             "no products of numbers of type %lld", (long long)p->type);
  const int size = tc_number_size(type);
#define MATMUL_TOUCH(operand, rows, columns, row, column, batch0_stride, batch1_stride)       \
  tc_touch_matrices(prepare, operand, (const int64_t[]){p->batch0, p->batch1, rows, columns}, \
                    (const int64_t[]){batch0_stride, batch1_stride, row, column}, size)
  MATMUL_TOUCH(MATMUL_ANY_C, p->m, p->n, p->c_row, 1, p->c_batch0, p->c_batch1);
  MATMUL_TOUCH(MATMUL_ANY_A, p->m, p->k, p->a_row, p->a_column, p->a_batch0, p->a_batch1);
  MATMUL_TOUCH(MATMUL_ANY_B, p->k, p->n, p->b_row, p->b_column, p->b_batch0, p->b_batch1);
#undef MATMUL_TOUCH
  if (tc_refused(prepare)) {
    return;
  }
  prepare->units = TC_PRODUCT(prepare, p->batch0, p->batch1, tc_ceil_div(p->m, MATMUL_STRIP),
                              tc_ceil_div(p->n, MATMUL_PANEL / size));
  prepare->scratch_bytes = MATMUL_DEPTH * MATMUL_PANEL;
  prepare->cost = 2.0 * (double)macs;
  tc_operate(prepare, p->type, 2.0 * (double)macs);
}

/* One strip by one panel, or what is left of them. */
typedef struct matmul_block {
  const tc_matmul_params *p;
  void *c;
  const void *a, *b;
  int64_t rows, columns;
} matmul_block;

/* matmul_tile_*: adds the products of a part of the depth to a tile of C, inlined with literal sizes; rows beyond those
 * that there are repeat the last. matmul_pack_*: some columns of B, filled up with zeros. */
#define MATMUL_TYPE(kind, type)                                                                                      \
  typedef type matmul_vector_##kind __attribute__((vector_size(MATMUL_BYTES)));                                      \
  TC_INLINE void matmul_tile_##kind(const int rows, const int vectors, type *c, int64_t c_row, const type *const *a, \
                                    int64_t a_column, const type *b, int64_t b_row, int64_t depth, bool adds) {      \
    enum { LANES = MATMUL_BYTES / sizeof(type) };                                                                    \
    matmul_vector_##kind sum[MATMUL_ROWS][MATMUL_VECTORS];                                                           \
    _Pragma("GCC unroll 6") for (int i = 0; i < rows; i++) {                                                         \
      _Pragma("GCC unroll 4") for (int v = 0; v < vectors; v++) {                                                    \
        sum[i][v] = (matmul_vector_##kind){0};                                                                       \
        if (adds) {                                                                                                  \
          memcpy(&sum[i][v], c + i * c_row + v * LANES, MATMUL_BYTES);                                               \
        }                                                                                                            \
      }                                                                                                              \
    }                                                                                                                \
    for (int64_t k = 0; k < depth; k++) {                                                                            \
      matmul_vector_##kind right[MATMUL_VECTORS];                                                                    \
      _Pragma("GCC unroll 4") for (int v = 0; v < vectors; v++) {                                                    \
        memcpy(&right[v], b + k * b_row + v * LANES, MATMUL_BYTES);                                                  \
      }                                                                                                              \
      _Pragma("GCC unroll 6") for (int i = 0; i < rows; i++) {                                                       \
        const type x = a[i][k * a_column];                                                                           \
        _Pragma("GCC unroll 4") for (int v = 0; v < vectors; v++) { sum[i][v] += x * right[v]; }                     \
      }                                                                                                              \
    }                                                                                                                \
    _Pragma("GCC unroll 6") for (int i = 0; i < rows; i++) {                                                         \
      _Pragma("GCC unroll 4") for (int v = 0; v < vectors; v++) {                                                    \
        memcpy(c + i * c_row + v * LANES, &sum[i][v], MATMUL_BYTES);                                                 \
      }                                                                                                              \
    }                                                                                                                \
  }                                                                                                                  \
  static void matmul_pack_##kind(const tc_matmul_params *p, type *to, const type *b, int64_t depth, int64_t columns, \
                                 int64_t width) {                                                                    \
    if (p->b_row == 1 && p->b_column != 1) {                                                                         \
      const tc_transpose turned = {to, b, width, p->b_column, depth, columns};                                       \
      tc_transpose_block(&turned, sizeof(type));                                                                     \
    }                                                                                                                \
    for (int64_t k = 0; k < depth; k++) {                                                                            \
      if (p->b_column == 1) {                                                                                        \
        memcpy(to + k * width, b + k * p->b_row, (size_t)columns * sizeof(type));                                    \
      } else if (p->b_row != 1) {                                                                                    \
        for (int64_t j = 0; j < columns; j++) {                                                                      \
          to[k * width + j] = b[k * p->b_row + j * p->b_column];                                                     \
        }                                                                                                            \
      }                                                                                                              \
      memset(to + k * width + columns, 0, (size_t)(width - columns) * sizeof(type));                                 \
    }                                                                                                                \
  }                                                                                                                  \
  /* The rows of a block by as many columns as one tile or one vector has. */                                        \
  static void matmul_rows_##kind(const matmul_block *x, type *c, const type *a, const type *b, int64_t b_row,        \
                                 int64_t depth, int64_t columns, bool narrow, bool adds) {                           \
    const int64_t width = (narrow ? MATMUL_BYTES : MATMUL_PANEL) / sizeof(type);                                     \
    for (int64_t row = 0, high; row < x->rows; row += high) {                                                        \
      high = x->rows - row < MATMUL_ROWS / 2 ? 1 : tc_min(x->rows - row, MATMUL_ROWS);                               \
      type own[MATMUL_ROWS * MATMUL_PANEL / sizeof(type)], *to = c + row * x->p->c_row;                              \
      const bool whole = columns == width && (high == 1 || high == MATMUL_ROWS);                                     \
      const int64_t to_row = whole ? x->p->c_row : width;                                                            \
      const type *rows[MATMUL_ROWS];                                                                                 \
      for (int64_t i = 0; i < MATMUL_ROWS; i++) {                                                                    \
        rows[i] = a + tc_min(row + i, x->rows - 1) * x->p->a_row;                                                    \
      }                                                                                                              \
      for (int64_t i = 0; i < high && !whole; i++) {                                                                 \
        memset(own + i * width, 0, (size_t)width * sizeof(type));                                                    \
        memcpy(own + i * width, to + i * x->p->c_row, adds ? (size_t)columns * sizeof(type) : 0);                    \
      }                                                                                                              \
      MATMUL_TILE(kind, 1, 1)                                                                                        \
      MATMUL_TILE(kind, 1, MATMUL_VECTORS)                                                                           \
      MATMUL_TILE(kind, MATMUL_ROWS, 1)                                                                              \
      MATMUL_TILE(kind, MATMUL_ROWS, MATMUL_VECTORS)                                                                 \
      for (int64_t i = 0; i < high && !whole; i++) {                                                                 \
        memcpy(to + i * x->p->c_row, own + i * width, (size_t)columns * sizeof(type));                               \
      }                                                                                                              \
    }                                                                                                                \
  }                                                                                                                  \
  static void matmul_block_##kind(const matmul_block *x, void *scratch) {                                            \
    enum { LANES = MATMUL_BYTES / sizeof(type), MOST = MATMUL_PANEL / sizeof(type) };                                \
    for (int64_t column = 0, width; column < x->columns; column += width) {                                          \
      const bool narrow = x->columns - column <= MOST / 2;                                                           \
      width = narrow ? LANES : MOST;                                                                                 \
      const int64_t columns = tc_min(x->columns - column, width);                                                    \
      /* Few rows read whole vectors where they lie. Without any depth C is zeros. */                                \
      const bool packs = columns < width || x->p->b_column != 1 || x->rows > MATMUL_ROWS;                            \
      for (int64_t k = 0; k == 0 || k < x->p->k; k += MATMUL_DEPTH) {                                                \
        const int64_t depth = tc_min(x->p->k - k, MATMUL_DEPTH);                                                     \
        const type *b = (const type *)x->b + k * x->p->b_row + column * x->p->b_column;                              \
        if (packs) {                                                                                                 \
          matmul_pack_##kind(x->p, scratch, b, depth, columns, width);                                               \
        }                                                                                                            \
        matmul_rows_##kind(x, (type *)x->c + column, (const type *)x->a + k * x->p->a_column, packs ? scratch : b,   \
                           packs ? width : x->p->b_row, depth, columns, narrow, k > 0);                              \
      }                                                                                                              \
    }                                                                                                                \
  }
#define MATMUL_TILE(kind, most_rows, vectors)                                                                      \
  if ((high == 1) == (most_rows == 1) && narrow == (vectors == 1)) {                                               \
    matmul_tile_##kind(most_rows, vectors, whole ? to : own, to_row, rows, x->p->a_column, b, b_row, depth, adds); \
  }
MATMUL_TYPE_LIST
#undef MATMUL_TILE
#undef MATMUL_TYPE

static void TC_NAME(tc_matmul)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_matmul_params *p = call->params;
  const int64_t size = tc_number_size(p->type), wide = MATMUL_PANEL / size;
  const int64_t strips = tc_ceil_div(p->m, MATMUL_STRIP), panels = tc_ceil_div(p->n, wide);
  for (int64_t unit = begin; unit < end; unit++) {
    const int64_t batch = unit / panels / strips, outer = batch / p->batch1, inner = batch % p->batch1;
    const int64_t row = unit / panels % strips * MATMUL_STRIP, column = unit % panels * wide;
    const int64_t c = outer * p->c_batch0 + inner * p->c_batch1 + row * p->c_row + column;
    const int64_t a = outer * p->a_batch0 + inner * p->a_batch1 + row * p->a_row;
    const int64_t b = outer * p->b_batch0 + inner * p->b_batch1 + column * p->b_column;
    const matmul_block block = {.p = p,
                                .c = (char *)call->operands[MATMUL_ANY_C] + c * size,
                                .a = (const char *)call->operands[MATMUL_ANY_A] + a * size,
                                .b = (const char *)call->operands[MATMUL_ANY_B] + b * size,
                                .rows = tc_min(p->m - row, MATMUL_STRIP),
                                .columns = tc_min(p->n - column, wide)};
    switch (matmul_unsigned(p->type)) {
#define MATMUL_TYPE(kind, type)                 \
  case TC_TYPE_##kind:                          \
    matmul_block_##kind(&block, call->scratch); \
    break;
      MATMUL_TYPE_LIST
#undef MATMUL_TYPE
    }
  }
}

#endif
