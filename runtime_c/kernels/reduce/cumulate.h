/* cumulate: running sums or products along an axis. A unit is a strip of neighbouring columns; strips side by side go
 * down together, and sums along rows of adjacent elements are formed several at a time, as each waits for the one
 * before. */
#ifndef TINYCOMP_KERNELS_REDUCE_CUMULATE_H
#define TINYCOMP_KERNELS_REDUCE_CUMULATE_H

#include "vocabulary.h"

#include "../common/number.h"

enum { CUMULATE_Y, CUMULATE_X };

enum { CUMULATE_STRIP = 64, CUMULATE_STRIPS = 32, CUMULATE_ROWS = 8 };

static void TC_NAME(tc_cumulate_prepare)(tc_prepare *prepare) {
  const tc_cumulate_params *p = prepare->params;
  const int size = tc_number_size(p->type);
  TC_REQUIRE(prepare, size, "numbers of type %lld cannot be summed up", (long long)p->type);
  TC_REQUIRE(prepare,
             p->product >= 0 && p->product <= 1 && p->exclusive >= 0 && p->exclusive <= 1 && p->reverse >= 0 &&
                 p->reverse <= 1,
             "product, exclusive and reverse must be 0 or 1");
  const int64_t count = TC_PRODUCT(prepare, p->outer, p->axis, p->inner);
  tc_touch(prepare, CUMULATE_Y, count, size);
  tc_touch(prepare, CUMULATE_X, count, size);
  if (tc_refused(prepare) || count == 0) {
    return;
  }
  prepare->units = TC_PRODUCT(prepare, p->outer, tc_ceil_div(p->inner, CUMULATE_STRIP));
  prepare->cost = 2.0 * (double)count;
  tc_operate(prepare, p->type, (double)count);
}

/* Columns side by side, inlined with literal flags, and sums along several rows of adjacent elements. */
#define TC_NUMBER(kind, type, wide)                                                                                   \
  TC_INLINE void cumulate_along_##kind(const bool product, const tc_cumulate_params *p, type *y, const type *x,       \
                                       const int64_t columns) {                                                       \
    const int64_t step = p->reverse ? -p->inner : p->inner, ahead = p->exclusive ? 0 : step, axis = p->axis;          \
    for (int64_t c = 0; c < columns; c++) {                                                                           \
      y[c] = p->exclusive ? (type)product : x[c];                                                                     \
    }                                                                                                                 \
    for (int64_t i = 1; i < axis; i++, y += step, x += step) {                                                        \
      for (int64_t c = 0; c < columns; c++) {                                                                         \
        const type sum = y[c], next = x[ahead + c];                                                                   \
        y[step + c] = (type)(product ? (wide)sum * (wide)next : (wide)sum + (wide)next);                              \
      }                                                                                                               \
    }                                                                                                                 \
  }                                                                                                                   \
  TC_INLINE void cumulate_rows_##kind(const tc_cumulate_params *p, type *y, const type *x) {                          \
    const int64_t step = p->reverse ? -1 : 1, axis = p->axis;                                                         \
    type sums[CUMULATE_ROWS];                                                                                         \
    for (int c = 0; c < CUMULATE_ROWS; c++) {                                                                         \
      sums[c] = p->exclusive ? (type)0 : x[c * axis];                                                                 \
      y[c * axis] = sums[c];                                                                                          \
    }                                                                                                                 \
    const type *from = p->exclusive ? x : x + step;                                                                   \
    type *to = y + step;                                                                                              \
    for (int64_t i = 1; i < axis; i++, from += step, to += step) {                                                    \
      _Pragma("GCC unroll 8") for (int c = 0; c < CUMULATE_ROWS; c++) {                                               \
        sums[c] = (type)((wide)sums[c] + (wide)from[c * axis]);                                                       \
        to[c * axis] = sums[c];                                                                                       \
      }                                                                                                               \
    }                                                                                                                 \
  }                                                                                                                   \
  static void cumulate_##kind(const tc_cumulate_params *p, void *to, const void *from, int64_t at, int64_t columns) { \
    type *y = (type *)to + at;                                                                                        \
    const type *x = (const type *)from + at;                                                                          \
    int64_t rows = 1; /* that many, if their elements are adjacent: then each is one column */                        \
    if (p->inner == 1) {                                                                                              \
      rows = columns;                                                                                                 \
      columns = 1;                                                                                                    \
      for (; rows >= CUMULATE_ROWS && !p->product; rows -= CUMULATE_ROWS) {                                           \
        cumulate_rows_##kind(p, y, x);                                                                                \
        y += CUMULATE_ROWS * p->axis;                                                                                 \
        x += CUMULATE_ROWS * p->axis;                                                                                 \
      }                                                                                                               \
    }                                                                                                                 \
    for (; rows > 0; rows--, y += p->axis, x += p->axis) {                                                            \
      if (p->product) {                                                                                               \
        cumulate_along_##kind(true, p, y, x, columns);                                                                \
      } else {                                                                                                        \
        cumulate_along_##kind(false, p, y, x, columns);                                                               \
      }                                                                                                               \
    }                                                                                                                 \
  }
TC_NUMBER_LIST
#undef TC_NUMBER

static void TC_NAME(tc_cumulate)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_cumulate_params *p = call->params;
  const int64_t strips = tc_ceil_div(p->inner, CUMULATE_STRIP);
  for (int64_t unit = begin, taken; unit < end; unit += taken) {
    const int64_t column = unit % strips * CUMULATE_STRIP;
    taken = p->inner == 1 ? end - unit : tc_min(tc_min(end - unit, strips - unit % strips), CUMULATE_STRIPS);
    const int64_t columns = p->inner == 1 ? taken : tc_min(p->inner - column, taken * CUMULATE_STRIP);
    const int64_t row = unit / strips * p->axis + (p->reverse ? p->axis - 1 : 0);
    switch (p->type) {
#define TC_NUMBER(kind, type, wide)                                                                               \
  case TC_TYPE_##kind:                                                                                            \
    cumulate_##kind(p, call->operands[CUMULATE_Y], call->operands[CUMULATE_X], row * p->inner + column, columns); \
    break;
      TC_NUMBER_LIST
#undef TC_NUMBER
    }
  }
}

#endif
