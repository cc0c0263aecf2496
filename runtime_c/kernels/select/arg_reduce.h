/* arg_reduce: where the largest or smallest element along an axis is. A unit is a strip of neighbouring columns, or of
 * short rows, which become columns first. */
#ifndef TINYCOMP_KERNELS_SELECT_ARG_REDUCE_H
#define TINYCOMP_KERNELS_SELECT_ARG_REDUCE_H

#include "vocabulary.h"

#include "../common/number.h"
#include "../reduce/steps.h"

enum { ARG_Y, ARG_X };

enum { ARG_STRIP = 64, ARG_SHORT = 16 };

static bool arg_is_short(const tc_arg_reduce_params *p) { return p->inner == 1 && p->axis <= ARG_SHORT; }

static void TC_NAME(tc_arg_reduce_prepare)(tc_prepare *prepare) {
  const tc_arg_reduce_params *p = prepare->params;
  const int size = tc_number_size(p->type);
  TC_REQUIRE(prepare, size, "numbers of type %lld cannot be compared", (long long)p->type);
  TC_REQUIRE(prepare, p->least >= 0 && p->least <= 1 && p->last >= 0 && p->last <= 1, "least and last must be 0 or 1");
  TC_REQUIRE(prepare, p->axis > 0 || p->outer == 0 || p->inner == 0, "the axis is empty");
  const int64_t count = TC_PRODUCT(prepare, p->outer, p->axis, p->inner);
  tc_touch(prepare, ARG_Y, TC_PRODUCT(prepare, p->outer, p->inner), sizeof(int64_t));
  tc_touch(prepare, ARG_X, count, size);
  if (tc_refused(prepare) || count == 0) {
    return;
  }
  prepare->units = arg_is_short(p) ? tc_ceil_div(p->outer, ARG_STRIP)
                                   : TC_PRODUCT(prepare, p->outer, tc_ceil_div(p->inner, ARG_STRIP));
  prepare->cost = 2.0 * (double)count;
  tc_operate(prepare, p->type, (double)count);
}

/* The place of one row's extreme: found by vectors first, then looked for; NaN counts as both largest and smallest. */
static int64_t arg_of_row(const float *x, int64_t count, bool least, bool last) {
  const float most = least ? reduce_row_MIN(x, count, 0.0f, INFINITY) : reduce_row_MAX(x, count, 0.0f, -INFINITY);
  for (int64_t i = 0; i < count; i++) {
    const int64_t at = last ? count - 1 - i : i;
    if (x[at] == most || (isnan(most) && isnan(x[at]))) {
      return at;
    }
  }
  return 0;
}

/* Columns side by side; inlined with literal flags. */
#define TC_NUMBER(kind, type, wide)                                                                             \
  TC_INLINE void arg_columns_##kind(const bool least, const bool last, int64_t *y, const type *x, int64_t axis, \
                                    int64_t inner, int64_t columns) {                                           \
    type most[ARG_STRIP];                                                                                       \
    for (int64_t c = 0; c < columns; c++) {                                                                     \
      most[c] = x[c];                                                                                           \
      y[c] = 0;                                                                                                 \
    }                                                                                                           \
    for (int64_t i = 1; i < axis; i++) {                                                                        \
      x += inner;                                                                                               \
      for (int64_t c = 0; c < columns; c++) {                                                                   \
        const type new = x[c], old = most[c];                                                                   \
        const bool beyond = least ? new < old : new > old;                                                      \
        const bool takes = beyond || (last && new == old) || (new != new && (last || old == old));              \
        most[c] = takes ? new : old;                                                                            \
        y[c] = takes ? i : y[c];                                                                                \
      }                                                                                                         \
    }                                                                                                           \
  }                                                                                                             \
  static void arg_strip_##kind(const tc_arg_reduce_params *p, int64_t *y, const type *x, int64_t inner,         \
                               int64_t columns) {                                                               \
    if (p->least) {                                                                                             \
      (p->last ? arg_columns_##kind(true, true, y, x, p->axis, inner, columns)                                  \
               : arg_columns_##kind(true, false, y, x, p->axis, inner, columns));                               \
    } else {                                                                                                    \
      (p->last ? arg_columns_##kind(false, true, y, x, p->axis, inner, columns)                                 \
               : arg_columns_##kind(false, false, y, x, p->axis, inner, columns));                              \
    }                                                                                                           \
  }                                                                                                             \
  static void arg_reduce_##kind(const tc_arg_reduce_params *p, int64_t *y, const void *from, int64_t at,        \
                                int64_t columns) {                                                              \
    arg_strip_##kind(p, y, (const type *)from + at, p->inner, columns);                                         \
  }                                                                                                             \
  static void arg_rows_##kind(const tc_arg_reduce_params *p, int64_t *y, const void *from, int64_t first,       \
                              int64_t rows) {                                                                   \
    const type *x = (const type *)from + first * p->axis;                                                       \
    type columns[ARG_SHORT * ARG_STRIP];                                                                        \
    for (int64_t row = 0; row < rows; row++) {                                                                  \
      for (int64_t i = 0; i < p->axis; i++) {                                                                   \
        columns[i * ARG_STRIP + row] = *x++;                                                                    \
      }                                                                                                         \
    }                                                                                                           \
    arg_strip_##kind(p, y + first, columns, ARG_STRIP, rows);                                                   \
  }
TC_NUMBER_LIST
#undef TC_NUMBER

static void TC_NAME(tc_arg_reduce)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_arg_reduce_params *p = call->params;
  const void *x = call->operands[ARG_X];
  const int64_t strips = tc_ceil_div(p->inner, ARG_STRIP);
  if (arg_is_short(p)) {
    for (int64_t row = begin * ARG_STRIP; row < tc_min(end * ARG_STRIP, p->outer); row += ARG_STRIP) {
      const int64_t rows = tc_min(p->outer - row, ARG_STRIP);
      switch (p->type) {
#define TC_NUMBER(kind, type, wide)                          \
  case TC_TYPE_##kind:                                       \
    arg_rows_##kind(p, call->operands[ARG_Y], x, row, rows); \
    break;
        TC_NUMBER_LIST
#undef TC_NUMBER
      }
    }
    return;
  }
  for (int64_t unit = begin; unit < end; unit++) {
    const int64_t column = unit % strips * ARG_STRIP, columns = tc_min(p->inner - column, ARG_STRIP);
    const int64_t at = unit / strips * p->axis * p->inner + column;
    int64_t *y = (int64_t *)call->operands[ARG_Y] + unit / strips * p->inner + column;
    if (p->type == TC_TYPE_F32 && p->inner == 1) {
      *y = arg_of_row((const float *)x + at, p->axis, p->least, p->last);
      continue;
    }
    switch (p->type) {
#define TC_NUMBER(kind, type, wide)          \
  case TC_TYPE_##kind:                       \
    arg_reduce_##kind(p, y, x, at, columns); \
    break;
      TC_NUMBER_LIST
#undef TC_NUMBER
    }
  }
}

#endif
