/* matmul: batched products of types other than f32; integers wrap around. A unit is a strip of rows of one batch; a
 * tile of sums stays in registers along the depth. */
#ifndef TINYCOMP_KERNELS_GEMM_MATMUL_H
#define TINYCOMP_KERNELS_GEMM_MATMUL_H

#include "vocabulary.h"

#include "../common/number.h"

enum { MATMUL_ANY_C, MATMUL_ANY_A, MATMUL_ANY_B };
enum { MATMUL_STRIP = 16, MATMUL_TILE_ROWS = 4, MATMUL_TILE_COLUMNS = 16 };

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
  prepare->units = TC_PRODUCT(prepare, p->batch0, p->batch1, tc_ceil_div(p->m, MATMUL_STRIP));
  prepare->cost = 2.0 * (double)macs;
  tc_operate(prepare, p->type, 2.0 * (double)macs);
}

/* One tile, inlined with literal sizes where it is whole. */
#define MATMUL_TYPE(kind, type)                                                                             \
  TC_INLINE void matmul_tile_##kind(const tc_matmul_params *p, type *c, const type *a, const type *b,       \
                                    const int64_t rows, const int64_t columns, const int64_t b_column) {    \
    type sum[MATMUL_TILE_ROWS][MATMUL_TILE_COLUMNS] = {{0}};                                                \
    for (int64_t k = 0; k < p->k; k++) {                                                                    \
      for (int64_t i = 0; i < rows; i++) {                                                                  \
        const type x = a[i * p->a_row + k * p->a_column];                                                   \
        for (int64_t j = 0; j < columns; j++) {                                                             \
          sum[i][j] += x * b[k * p->b_row + j * b_column];                                                  \
        }                                                                                                   \
      }                                                                                                     \
    }                                                                                                       \
    for (int64_t i = 0; i < rows; i++) {                                                                    \
      memcpy(c + i * p->c_row, sum[i], (size_t)columns * sizeof(type));                                     \
    }                                                                                                       \
  }                                                                                                         \
  static void matmul_strip_##kind(const tc_matmul_params *p, void *to, const void *left, const void *right, \
                                  const int64_t *at, int64_t row, int64_t rows) {                           \
    type *c = (type *)to + at[0] + row * p->c_row;                                                          \
    const type *a = (const type *)left + at[1] + row * p->a_row, *b = (const type *)right + at[2];          \
    for (int64_t j = 0; j < p->n; j += MATMUL_TILE_COLUMNS) {                                               \
      const int64_t columns = tc_min(p->n - j, MATMUL_TILE_COLUMNS);                                        \
      for (int64_t i = 0; i < rows; i += MATMUL_TILE_ROWS) {                                                \
        const int64_t high = tc_min(rows - i, MATMUL_TILE_ROWS);                                            \
        type *own = c + i * p->c_row + j;                                                                   \
        const type *own_a = a + i * p->a_row, *own_b = b + j * p->b_column;                                 \
        if (high == MATMUL_TILE_ROWS && columns == MATMUL_TILE_COLUMNS && p->b_column == 1) {               \
          matmul_tile_##kind(p, own, own_a, own_b, MATMUL_TILE_ROWS, MATMUL_TILE_COLUMNS, 1);               \
        } else {                                                                                            \
          matmul_tile_##kind(p, own, own_a, own_b, high, columns, p->b_column);                             \
        }                                                                                                   \
      }                                                                                                     \
    }                                                                                                       \
  }
MATMUL_TYPE_LIST
#undef MATMUL_TYPE

static void TC_NAME(tc_matmul)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_matmul_params *p = call->params;
  const int64_t strips = tc_ceil_div(p->m, MATMUL_STRIP);
  for (int64_t unit = begin; unit < end; unit++) {
    const int64_t batch = unit / strips, row = unit % strips * MATMUL_STRIP, rows = tc_min(p->m - row, MATMUL_STRIP);
    const int64_t outer = batch / p->batch1, inner = batch % p->batch1;
    const int64_t at[] = {outer * p->c_batch0 + inner * p->c_batch1, outer * p->a_batch0 + inner * p->a_batch1,
                          outer * p->b_batch0 + inner * p->b_batch1};
    switch (matmul_unsigned(p->type)) {
#define MATMUL_TYPE(kind, type)                                                                                      \
  case TC_TYPE_##kind:                                                                                               \
    matmul_strip_##kind(p, call->operands[MATMUL_ANY_C], call->operands[MATMUL_ANY_A], call->operands[MATMUL_ANY_B], \
                        at, row, rows);                                                                              \
    break;
      MATMUL_TYPE_LIST
#undef MATMUL_TYPE
    }
  }
}

#endif
