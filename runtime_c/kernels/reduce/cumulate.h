/* cumulate: running sums or products along an axis. A unit is a strip of neighbouring columns. */
#ifndef TINYCOMP_KERNELS_REDUCE_CUMULATE_H
#define TINYCOMP_KERNELS_REDUCE_CUMULATE_H

#include "vocabulary.h"

#include "../common/number.h"

enum { CUMULATE_Y, CUMULATE_X };

enum { CUMULATE_STRIP = 64 };

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

#define TC_NUMBER(kind, type, wide)                                                                                   \
  static void cumulate_##kind(const tc_cumulate_params *p, void *to, const void *from, int64_t at, int64_t columns) { \
    const int64_t step = p->reverse ? -p->inner : p->inner;                                                           \
    type *y = (type *)to + at;                                                                                        \
    const type *x = (const type *)from + at;                                                                          \
    for (int64_t c = 0; c < columns; c++) {                                                                           \
      y[c] = p->exclusive ? (type)p->product : x[c];                                                                  \
    }                                                                                                                 \
    for (int64_t i = 1; i < p->axis; i++, y += step, x += step) {                                                     \
      const type *next = p->exclusive ? x : x + step;                                                                 \
      for (int64_t c = 0; c < columns; c++) {                                                                         \
        y[step + c] = (type)(p->product ? (wide)y[c] * (wide)next[c] : (wide)y[c] + (wide)next[c]);                   \
      }                                                                                                               \
    }                                                                                                                 \
  }
TC_NUMBER_LIST
#undef TC_NUMBER

static void TC_NAME(tc_cumulate)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_cumulate_params *p = call->params;
  const int64_t strips = tc_ceil_div(p->inner, CUMULATE_STRIP);
  for (int64_t unit = begin; unit < end; unit++) {
    const int64_t column = unit % strips * CUMULATE_STRIP, columns = tc_min(p->inner - column, CUMULATE_STRIP);
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
