/* reduce: reductions of all types of numbers but float32, over up to two groups of axes. A unit is one result of
 * adjacent elements, or a strip of columns if the reduced elements lie apart. Short rows become columns first, a strip
 * of them at a time; scratch: these columns.
 *
 * Integers wrap around, as their sums and products do in ONNX. Roots, logarithms and exponentials are formed in double
 * and cut off towards zero. A strip of running results lies side by side, one per column; adjacent elements are dealt
 * out to a whole strip, whose results are joined at the end. */
#ifndef TINYCOMP_KERNELS_REDUCE_REDUCE_H
#define TINYCOMP_KERNELS_REDUCE_REDUCE_H

#include "vocabulary.h"

#include "../cast/cast.h"
#include "reduce_f32.h"

enum { NUMBERS_STRIP = 128, NUMBERS_JOINED = 64, NUMBERS_SHORT = 64 };

/* NUMBERS(kind, type, in which it is summed up, in which a mean is divided, magnitude of x, a real number as the type,
 * least, greatest). */
#define NUMBERS_SIGNED(kind, bits)                                                                        \
  NUMBERS(kind, int##bits##_t, uint64_t, int64_t, x < 0 ? -(uint64_t)x : (uint64_t)x, cast_low_u64(real), \
          INT##bits##_MIN, INT##bits##_MAX)
#define NUMBERS_UNSIGNED(kind, bits) \
  NUMBERS(kind, uint##bits##_t, uint64_t, uint64_t, x, cast_low_u64(real), 0, UINT##bits##_MAX)
#define NUMBERS_LIST                                                       \
  NUMBERS(F64, double, double, double, fabs(x), real, -INFINITY, INFINITY) \
  NUMBERS_SIGNED(I8, 8)                                                    \
  NUMBERS_SIGNED(I16, 16)                                                  \
  NUMBERS_SIGNED(I32, 32)                                                  \
  NUMBERS_SIGNED(I64, 64)                                                  \
  NUMBERS_UNSIGNED(U8, 8)                                                  \
  NUMBERS_UNSIGNED(U16, 16)                                                \
  NUMBERS_UNSIGNED(U32, 32)                                                \
  NUMBERS_UNSIGNED(U64, 64)                                                \
  NUMBERS(BOOL, uint8_t, uint64_t, uint64_t, x, cast_low_u64(real), 0, 1)

static int64_t numbers_size(int64_t type) {
  switch (type) {
#define NUMBERS(kind, type, wide, mean, magnitude, of_real, least, greatest) \
  case TC_TYPE_##kind:                                                       \
    return sizeof(type);
    NUMBERS_LIST
#undef NUMBERS
    default:
      return 0;
  }
}

/* The sizes with as few, as long axes as possible. */
static tc_reduce_f32_params numbers_simplify(const tc_reduce_params *p) {
  const tc_reduce_f32_params sizes = {p->op, p->outer, p->axis0, p->middle, p->axis1, p->inner};
  return reduce_simplify(&sizes);
}

static bool numbers_are_short(const tc_reduce_f32_params *p) {
  return p->inner == 1 && p->axis0 == 1 && p->axis1 <= NUMBERS_SHORT;
}

static void TC_NAME(tc_reduce_prepare)(tc_prepare *prepare) {
  const tc_reduce_params *p = prepare->params;
  const int64_t size = numbers_size(p->type);
  TC_REQUIRE(prepare, size, "numbers of type %lld cannot be reduced", (long long)p->type);
  TC_REQUIRE(prepare, p->op >= TC_REDUCE_SUM && p->op <= TC_REDUCE_LOG_SUM_EXP, "there is no reduction %lld",
             (long long)p->op);
  TC_REQUIRE(prepare, p->type != TC_TYPE_BOOL || p->op == TC_REDUCE_MAX || p->op == TC_REDUCE_MIN,
             "reduction %lld is not one of truth values", (long long)p->op);
  tc_touch(prepare, REDUCE_Y, TC_PRODUCT(prepare, p->outer, p->middle, p->inner), (int)size);
  const int64_t count = TC_PRODUCT(prepare, p->outer, p->axis0, p->middle, p->axis1, p->inner);
  tc_touch(prepare, REDUCE_X, count, (int)size);
  TC_PRODUCT(prepare, p->axis0, p->axis1); /* also where another size is 0 */
  if (tc_refused(prepare)) {
    return;
  }
  const tc_reduce_f32_params sizes = numbers_simplify(p);
  const int64_t rows = TC_PRODUCT(prepare, sizes.outer, sizes.middle);
  if (numbers_are_short(&sizes)) {
    prepare->units = tc_ceil_div(rows, NUMBERS_STRIP);
    prepare->scratch_bytes = sizes.axis1 * NUMBERS_STRIP * size;
  } else {
    prepare->units = TC_PRODUCT(prepare, rows, tc_ceil_div(sizes.inner, NUMBERS_STRIP));
  }
  tc_operate(prepare, p->type, (double)count);
  prepare->cost = (double)count * (p->op == TC_REDUCE_LOG_SUM_EXP ? 20 : 2);
}

/* What one unit reduces: `planes` times `lines` rows of `line_width` elements, dealt out to `width` running results. */
typedef struct numbers_span {
  const char *x;
  int64_t planes, plane_stride, lines, line_stride; /* strides in elements */
  int64_t line_width, width;
  int64_t joined; /* as width, or 0 if the running results are the results */
} numbers_span;

/* Joins that many results by halves, into the first. */
#define NUMBERS_JOIN(name, kept, join)                                                       \
  static __attribute__((noinline)) void numbers_join_##name(kept *results, int64_t joined) { \
    for (int64_t half; joined > 1; joined = half) {                                          \
      half = (joined + 1) / 2;                                                               \
      for (int64_t c = 0; c < joined - half; c++) {                                          \
        const kept old = results[c], x = results[half + c];                                  \
        results[c] = (kept)(join);                                                           \
      }                                                                                      \
    }                                                                                        \
  }
NUMBERS_JOIN(add_double, double, old + x)
NUMBERS_JOIN(mul_double, double, old *x)
NUMBERS_JOIN(add_uint64_t, uint64_t, old + x)
NUMBERS_JOIN(mul_uint64_t, uint64_t, old *x)

/* A reduction of a span to running results of type `kept`: where they start, the new one in terms of the old one and x,
 * and what joins them. Shifts are taken away before exponentials are formed. */
#define NUMBERS_STEP(name, type, kept, start, step, join)                                     \
  static void numbers_##name(const numbers_span *span, const double *shifts, kept *results) { \
    (void)shifts;                                                                             \
    for (int64_t c = 0; c < span->width; c++) {                                               \
      results[c] = (kept)(start);                                                             \
    }                                                                                         \
    for (int64_t plane = 0; plane < span->planes; plane++) {                                  \
      const type *line = (const type *)span->x + plane * span->plane_stride;                  \
      for (int64_t row = 0; row < span->lines; row++, line += span->line_stride) {            \
        for (int64_t first = 0; first < span->line_width; first += span->width) {             \
          const int64_t count = tc_min(span->width, span->line_width - first);                \
          for (int64_t c = 0; c < count; c++) {                                               \
            const kept old = results[c];                                                      \
            const type x = line[first + c];                                                   \
            results[c] = (kept)(step);                                                        \
          }                                                                                   \
        }                                                                                     \
      }                                                                                       \
    }                                                                                         \
    join(results, span->joined);                                                              \
  }

#define NUMBERS(kind, type, wide, mean, magnitude, of_real, least, greatest)                                 \
  NUMBERS_STEP(sum_##kind, type, wide, 0, old + (wide)x, numbers_join_add_##wide)                            \
  NUMBERS_STEP(prod_##kind, type, wide, 1, old *(wide)x, numbers_join_mul_##wide)                            \
  NUMBERS_STEP(l1_##kind, type, wide, 0, old + (magnitude), numbers_join_add_##wide)                         \
  NUMBERS_STEP(square_##kind, type, wide, 0, old + (wide)x * (wide)x, numbers_join_add_##wide)               \
  NUMBERS_JOIN(max_##kind, type, NUMBERS_IF(x > old))                                                        \
  NUMBERS_JOIN(min_##kind, type, NUMBERS_IF(x < old))                                                        \
  NUMBERS_STEP(max_##kind, type, type, least, NUMBERS_IF(x > old), numbers_join_max_##kind)                  \
  NUMBERS_STEP(min_##kind, type, type, greatest, NUMBERS_IF(x < old), numbers_join_min_##kind)               \
  NUMBERS_STEP(real_sum_##kind, type, double, 0, old + (double)x, numbers_join_add_double)                   \
  NUMBERS_STEP(real_square_##kind, type, double, 0, old + (double)x * (double)x, numbers_join_add_double)    \
  NUMBERS_STEP(real_exp_##kind, type, double, 0, old + exp((double)x - shifts[c]), numbers_join_add_double)  \
  /* The largest elements, where they are finite. */                                                         \
  static void numbers_shifts_##kind(const numbers_span *span, double *shifts) {                              \
    type most[NUMBERS_STRIP];                                                                                \
    numbers_max_##kind(span, NULL, most);                                                                    \
    for (int64_t c = 0; c < span->width; c++) {                                                              \
      const double shift = (double)most[span->joined ? 0 : c];                                               \
      shifts[c] = isfinite(shift) ? shift : 0.0;                                                             \
    }                                                                                                        \
  }                                                                                                          \
  static void numbers_##kind(int64_t op, const numbers_span *span, int64_t elements, void *to) {             \
    const int64_t columns = span->joined ? 1 : span->width;                                                  \
    type *y = to, own[NUMBERS_STRIP];                                                                        \
    wide whole[NUMBERS_STRIP];                                                                               \
    double reals[NUMBERS_STRIP], shifts[NUMBERS_STRIP];                                                      \
    switch (op) {                                                                                            \
      case TC_REDUCE_SUM:                                                                                    \
        numbers_sum_##kind(span, NULL, whole);                                                               \
        NUMBERS_STORE((type)whole[c]);                                                                       \
        return;                                                                                              \
      case TC_REDUCE_MEAN:                                                                                   \
        numbers_sum_##kind(span, NULL, whole);                                                               \
        NUMBERS_STORE((type)(elements || (wide)0.5 > 0 ? (mean)whole[c] / (mean)elements : (mean)whole[c])); \
        return;                                                                                              \
      case TC_REDUCE_PROD:                                                                                   \
        numbers_prod_##kind(span, NULL, whole);                                                              \
        NUMBERS_STORE((type)whole[c]);                                                                       \
        return;                                                                                              \
      case TC_REDUCE_L1:                                                                                     \
        numbers_l1_##kind(span, NULL, whole);                                                                \
        NUMBERS_STORE((type)whole[c]);                                                                       \
        return;                                                                                              \
      case TC_REDUCE_SUM_SQUARE:                                                                             \
        numbers_square_##kind(span, NULL, whole);                                                            \
        NUMBERS_STORE((type)whole[c]);                                                                       \
        return;                                                                                              \
      case TC_REDUCE_MAX:                                                                                    \
        numbers_max_##kind(span, NULL, own);                                                                 \
        NUMBERS_STORE(own[c]);                                                                               \
        return;                                                                                              \
      case TC_REDUCE_MIN:                                                                                    \
        numbers_min_##kind(span, NULL, own);                                                                 \
        NUMBERS_STORE(own[c]);                                                                               \
        return;                                                                                              \
      case TC_REDUCE_L2:                                                                                     \
        numbers_real_square_##kind(span, NULL, reals);                                                       \
        NUMBERS_STORE_REAL(sqrt(reals[c]), of_real);                                                         \
        return;                                                                                              \
      case TC_REDUCE_LOG_SUM:                                                                                \
        numbers_real_sum_##kind(span, NULL, reals);                                                          \
        NUMBERS_STORE_REAL(log(reals[c]), of_real);                                                          \
        return;                                                                                              \
      default: /* TC_REDUCE_LOG_SUM_EXP */                                                                   \
        numbers_shifts_##kind(span, shifts);                                                                 \
        numbers_real_exp_##kind(span, shifts, reals);                                                        \
        NUMBERS_STORE_REAL(log(reals[c]) + shifts[c], of_real);                                              \
    }                                                                                                        \
  }
/* NaN is both the largest and the least number. */
#define NUMBERS_IF(beyond) ((beyond) | (x != x) ? x : old)
#define NUMBERS_STORE(result)             \
  for (int64_t c = 0; c < columns; c++) { \
    y[c] = result;                        \
  }
#define NUMBERS_STORE_REAL(result, of_real) \
  for (int64_t c = 0; c < columns; c++) {   \
    const double real = result;             \
    y[c] = (of_real);                       \
  }
NUMBERS_LIST
#undef NUMBERS
#undef NUMBERS_IF
#undef NUMBERS_STORE
#undef NUMBERS_STORE_REAL
#undef NUMBERS_STEP
#undef NUMBERS_JOIN

/* The results of one span. */
static void numbers_reduce(const tc_reduce_params *p, const numbers_span *span, void *y) {
  switch (p->type) {
#define NUMBERS(kind, type, wide, mean, magnitude, of_real, least, greatest) \
  case TC_TYPE_##kind:                                                       \
    numbers_##kind(p->op, span, p->axis0 * p->axis1, y);                     \
    break;
    NUMBERS_LIST
#undef NUMBERS
  }
}

static void numbers_short_rows(const tc_call *call, const tc_reduce_f32_params *sizes, int64_t size, int64_t begin,
                               int64_t end) {
  const int64_t last = tc_min(end * NUMBERS_STRIP, sizes->outer * sizes->middle), axis = sizes->axis1;
  for (int64_t row = begin * NUMBERS_STRIP; row < last; row += NUMBERS_STRIP) {
    const int64_t rows = tc_min(last - row, NUMBERS_STRIP);
    const char *x = (const char *)call->operands[REDUCE_X] + row * axis * size;
    const tc_transpose turned = {call->scratch, x, NUMBERS_STRIP, axis, axis, rows};
    tc_transpose_block(&turned, size);
    const numbers_span span = {.x = call->scratch,
                               .planes = 1,
                               .lines = axis,
                               .line_stride = NUMBERS_STRIP,
                               .line_width = rows,
                               .width = rows};
    numbers_reduce(call->params, &span, (char *)call->operands[REDUCE_Y] + row * size);
  }
}

static void TC_NAME(tc_reduce)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_reduce_params *p = call->params;
  const tc_reduce_f32_params sizes = numbers_simplify(p);
  const int64_t size = numbers_size(p->type);
  if (numbers_are_short(&sizes)) {
    numbers_short_rows(call, &sizes, size, begin, end);
    return;
  }
  const int64_t strips = tc_ceil_div(sizes.inner, NUMBERS_STRIP), line = sizes.axis1 * sizes.inner;
  const bool adjacent = sizes.inner == 1;
  for (int64_t unit = begin; unit < end; unit++) {
    const int64_t row = unit / strips, outer = row / sizes.middle, middle = row % sizes.middle;
    const int64_t column = unit % strips * NUMBERS_STRIP, columns = tc_min(sizes.inner - column, NUMBERS_STRIP);
    const int64_t first = (outer * sizes.axis0 * sizes.middle + middle) * line + column;
    const int64_t joined = tc_min(sizes.axis1, NUMBERS_JOINED);
    const numbers_span span = {.x = (const char *)call->operands[REDUCE_X] + first * size,
                               .planes = sizes.axis0,
                               .plane_stride = sizes.middle * line,
                               .lines = adjacent ? 1 : sizes.axis1,
                               .line_stride = sizes.inner,
                               .line_width = adjacent ? sizes.axis1 : columns,
                               .width = adjacent ? tc_max(joined, 1) : columns,
                               .joined = adjacent ? tc_max(joined, 1) : 0};
    numbers_reduce(p, &span, (char *)call->operands[REDUCE_Y] + (row * sizes.inner + column) * size);
  }
}
#undef NUMBERS_LIST
#undef NUMBERS_SIGNED
#undef NUMBERS_UNSIGNED

#endif
