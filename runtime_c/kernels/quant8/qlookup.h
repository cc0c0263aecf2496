/* qlookup: a function of one 8-bit number as a table of its 256 values. Units are pieces of rows. State: a
 * qlookup_table. Tables that only flip bits, such as those between int8 and uint8, need no lookup. */
#ifndef TINYCOMP_KERNELS_QUANT8_QLOOKUP_H
#define TINYCOMP_KERNELS_QUANT8_QLOOKUP_H

#include "vocabulary.h"

enum { QLOOKUP_Y, QLOOKUP_X, QLOOKUP_TABLE };

enum { QLOOKUP_PIECE = 4096, QLOOKUP_VALUES = 256 };

typedef struct qlookup_table {
  int64_t flips; /* whether elements are bytes, and each is its index with some bits flipped */
  uint32_t elements[];
} qlookup_table;

/* The rows, as one if they follow each other without a gap. */
typedef struct qlookup_rows {
  int64_t rows, columns, pieces;
} qlookup_rows;

static qlookup_rows qlookup_rows_of(const tc_qlookup_params *p) {
  const bool one = p->x_row_stride == p->columns && p->y_row_stride == p->columns;
  const int64_t columns = one ? p->rows * p->columns : p->columns;
  return (qlookup_rows){one ? 1 : p->rows, columns, tc_ceil_div(columns, QLOOKUP_PIECE)};
}

static void TC_NAME(tc_qlookup_prepare)(tc_prepare *prepare) {
  const tc_qlookup_params *p = prepare->params;
  TC_REQUIRE(prepare, p->element_size == 1 || p->element_size == 2 || p->element_size == 4,
             "no table has elements of %lld bytes", (long long)p->element_size);
  TC_REQUIRE(prepare, p->x_row_stride >= p->columns && p->y_row_stride >= p->columns,
             "a row stride is shorter than its row");
  const int64_t count = TC_PRODUCT(prepare, p->rows, p->columns);
  tc_touch_rows(prepare, QLOOKUP_Y, p->rows, p->y_row_stride, p->columns, (int)p->element_size);
  tc_touch_rows(prepare, QLOOKUP_X, p->rows, p->x_row_stride, p->columns, 1);
  tc_touch(prepare, QLOOKUP_TABLE, QLOOKUP_VALUES, (int)p->element_size);
  if (tc_refused(prepare)) {
    return;
  }
  const qlookup_rows rows = qlookup_rows_of(p);
  prepare->units = rows.rows * rows.pieces;
  prepare->cost = (double)count;
  prepare->state_bytes = (int64_t)sizeof(qlookup_table) + QLOOKUP_VALUES * p->element_size;
  tc_state_numbers(prepare, 0, 1, sizeof(int64_t));
  tc_state_numbers(prepare, offsetof(qlookup_table, elements), QLOOKUP_VALUES, p->element_size);
  TC_SHARE(prepare, p->element_size);
}

static void TC_NAME(tc_qlookup_pack)(const tc_prepare *prepare, void *state) {
  const tc_qlookup_params *p = prepare->params;
  const uint8_t *elements = prepare->constants[QLOOKUP_TABLE];
  qlookup_table *table = state;
  memcpy(table->elements, elements, (size_t)(QLOOKUP_VALUES * p->element_size));
  table->flips = p->element_size == 1;
  for (int i = 0; i < QLOOKUP_VALUES && table->flips; i++) {
    table->flips = elements[i] == (i ^ elements[0]);
  }
}

static void qlookup_flip(uint8_t *restrict y, const uint8_t *restrict x, uint8_t bits, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    y[i] = x[i] ^ bits;
  }
}

#define QLOOKUP_FUNCTION(type)                                                                                   \
  static void qlookup_##type(type *restrict y, const uint8_t *restrict x, const void *elements, int64_t count) { \
    const type *table = elements;                                                                                \
    for (int64_t i = 0; i < count; i++) {                                                                        \
      y[i] = table[x[i]];                                                                                        \
    }                                                                                                            \
  }
QLOOKUP_FUNCTION(uint8_t)
QLOOKUP_FUNCTION(uint16_t)
QLOOKUP_FUNCTION(uint32_t)
#undef QLOOKUP_FUNCTION

static void TC_NAME(tc_qlookup)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_qlookup_params *p = call->params;
  const qlookup_rows rows = qlookup_rows_of(p);
  const qlookup_table *table = call->state;
  for (int64_t unit = begin; unit < end; unit++) {
    const int64_t row = unit / rows.pieces, first = unit % rows.pieces * QLOOKUP_PIECE;
    const int64_t count = tc_min(rows.columns - first, QLOOKUP_PIECE);
    const uint8_t *x = (const uint8_t *)call->operands[QLOOKUP_X] + row * p->x_row_stride + first;
    char *y = (char *)call->operands[QLOOKUP_Y] + (row * p->y_row_stride + first) * p->element_size;
    if (table->flips) {
      qlookup_flip((uint8_t *)y, x, *(const uint8_t *)table->elements, count);
    } else if (p->element_size == 1) {
      qlookup_uint8_t((uint8_t *)y, x, table->elements, count);
    } else if (p->element_size == 2) {
      qlookup_uint16_t((uint16_t *)y, x, table->elements, count);
    } else {
      qlookup_uint32_t((uint32_t *)y, x, table->elements, count);
    }
  }
}

#endif
