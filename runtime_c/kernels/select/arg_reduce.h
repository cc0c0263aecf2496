/* arg_reduce: where the largest or smallest element along an axis is. A unit is a strip of neighbouring columns, or of
 * short rows, which become columns first: scratch. Elements of longer rows are dealt out to a strip of columns, whose
 * extremes are compared at the end. */
#ifndef TINYCOMP_KERNELS_SELECT_ARG_REDUCE_H
#define TINYCOMP_KERNELS_SELECT_ARG_REDUCE_H

#include "vocabulary.h"

#include "../common/number.h"
#include "../copy/transpose.h"
#include "../reduce/steps.h"

enum { ARG_Y, ARG_X };

enum { ARG_STRIP = 64, ARG_SHORT = ARG_STRIP };

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
  prepare->scratch_bytes = arg_is_short(p) ? p->axis * ARG_STRIP * size : 0;
  prepare->cost = 2.0 * (double)count;
  tc_operate(prepare, p->type, (double)count);
}

/* The place of one row's extreme: found by vectors first, then looked for in the strip that has it. NaN counts as both
 * largest and smallest: where the extreme is a number, no element is NaN. */
static int64_t arg_of_row(const float *x, int64_t count, bool least, bool last) {
  const float most = least ? reduce_row_MIN(x, count, 0.0f, INFINITY) : reduce_row_MAX(x, count, 0.0f, -INFINITY);
  const int64_t strips = tc_ceil_div(count, ARG_STRIP);
  for (int64_t s = 0; s < strips; s++) {
    const int64_t first = (last ? strips - 1 - s : s) * ARG_STRIP, size = tc_min(count - first, ARG_STRIP);
    const float *strip = x + first;
    int found = 0;
    for (int64_t i = 0; i < size; i++) {
      found |= (strip[i] == most) | (strip[i] != strip[i]);
    }
    for (int64_t i = 0; found && i < size; i++) {
      const int64_t at = last ? size - 1 - i : i;
      if (strip[at] == most || isnan(strip[at])) {
        return first + at;
      }
    }
  }
  return 0;
}

/* Columns side by side, of equal elements the first met: those that want the last one go backwards. */
#define TC_NUMBER(kind, type, wide)                                                                       \
  TC_INLINE void arg_columns_##kind(const bool least, bool last, int64_t *y, const type *x, int64_t axis, \
                                    int64_t inner, int64_t columns) {                                     \
    type most[ARG_STRIP];                                                                                 \
    const int64_t step = last ? -1 : 1, end = last ? -1 : axis;                                           \
    int64_t i = last ? axis - 1 : 0;                                                                      \
    for (int64_t c = 0; c < columns; c++) {                                                               \
      most[c] = x[i * inner + c];                                                                         \
      y[c] = i;                                                                                           \
    }                                                                                                     \
    for (i += step; i != end; i += step) {                                                                \
      const type *line = x + i * inner;                                                                   \
      for (int64_t c = 0; c < columns; c++) {                                                             \
        const type new = line[c], old = most[c];                                                          \
        const bool takes = (least ? new < old : new > old) || (new != new && old == old);                 \
        most[c] = takes ? new : old;                                                                      \
        y[c] = takes ? i : y[c];                                                                          \
      }                                                                                                   \
    }                                                                                                     \
  }                                                                                                       \
  static void arg_strip_##kind(const tc_arg_reduce_params *p, int64_t *y, const void *from, int64_t axis, \
                               int64_t inner, int64_t columns) {                                          \
    if (p->least) {                                                                                       \
      arg_columns_##kind(true, p->last, y, from, axis, inner, columns);                                   \
    } else {                                                                                              \
      arg_columns_##kind(false, p->last, y, from, axis, inner, columns);                                  \
    }                                                                                                     \
  }                                                                                                       \
  static int64_t arg_row_##kind(const tc_arg_reduce_params *p, const void *from) {                        \
    const type *x = from;                                                                                 \
    const int64_t lines = p->axis / ARG_STRIP, rest = p->axis % ARG_STRIP;                                \
    int64_t places[ARG_STRIP];                                                                            \
    arg_strip_##kind(p, places, x, lines, ARG_STRIP, ARG_STRIP);                                          \
    int64_t best = places[0] * ARG_STRIP;                                                                 \
    type most = x[best];                                                                                  \
    const bool least = p->least, last = p->last;                                                          \
    for (int64_t i = 1; i < ARG_STRIP + rest; i++) { /* behind the columns what could not be dealt out */ \
      const int64_t place = i < ARG_STRIP ? places[i] * ARG_STRIP + i : (lines - 1) * ARG_STRIP + i;      \
      const type new = x[place];                                                                          \
      const bool beyond = (least ? new < most : new > most) | ((new != new) & (most == most));            \
      const bool equal = (new == most) | ((new != new) & (most != most));                                 \
      const bool takes = beyond | (equal & ((place > best) == last));                                     \
      most = takes ? new : most;                                                                          \
      best = takes ? place : best;                                                                        \
    }                                                                                                     \
    return best;                                                                                          \
  }
TC_NUMBER_LIST
#undef TC_NUMBER

/* Columns of any type; for a row of adjacent elements inner is 1, and so are the columns. */
static void arg_find(const tc_arg_reduce_params *p, int64_t *y, const void *x, int64_t inner, int64_t columns) {
  const bool row = inner == 1;
  switch (p->type) {
#define TC_NUMBER(kind, type, wide)                       \
  case TC_TYPE_##kind:                                    \
    if (row) {                                            \
      *y = arg_row_##kind(p, x);                          \
    } else {                                              \
      arg_strip_##kind(p, y, x, p->axis, inner, columns); \
    }                                                     \
    break;
    TC_NUMBER_LIST
#undef TC_NUMBER
  }
}

static void TC_NAME(tc_arg_reduce)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_arg_reduce_params *p = call->params;
  const char *x = call->operands[ARG_X];
  int64_t *y = call->operands[ARG_Y];
  const int64_t strips = tc_ceil_div(p->inner, ARG_STRIP), size = tc_number_size(p->type);
  for (int64_t unit = begin; unit < end; unit++) {
    if (arg_is_short(p)) {
      const int64_t row = unit * ARG_STRIP, rows = tc_min(p->outer - row, ARG_STRIP);
      const tc_transpose turned = {call->scratch, x + row * p->axis * size, ARG_STRIP, p->axis, p->axis, rows};
      tc_transpose_block(&turned, size);
      arg_find(p, y + row, call->scratch, ARG_STRIP, rows);
      continue;
    }
    const int64_t column = unit % strips * ARG_STRIP, columns = tc_min(p->inner - column, ARG_STRIP);
    const void *from = x + (unit / strips * p->axis * p->inner + column) * size;
    int64_t *to = y + unit / strips * p->inner + column;
    if (p->type == TC_TYPE_F32 && p->inner == 1) {
      *to = arg_of_row(from, p->axis, p->least, p->last);
    } else {
      arg_find(p, to, from, p->inner, columns);
    }
  }
}

#endif
