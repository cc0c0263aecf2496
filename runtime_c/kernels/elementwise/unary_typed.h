/* Functions of one integer or double, with plain loops. Integers wrap around. */
#ifndef TINYCOMP_KERNELS_ELEMENTWISE_UNARY_TYPED_H
#define TINYCOMP_KERNELS_ELEMENTWISE_UNARY_TYPED_H

#include "vocabulary.h"

#include "../common/math_f64.h"
#include "rows.h"
#include "unary_f32.h"

#define UNARY_ROW(name, type, expression)                      \
  static void name(const element_rows *rows) {                 \
    type *restrict to = rows->to;                              \
    const type *from = rows->x;                                \
    const double a __attribute__((unused)) = rows->a;          \
    const double b __attribute__((unused)) = rows->b;          \
    const int64_t count = rows->count;                         \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < count; i++) { \
      const type x = from[i];                                  \
      to[i] = (type)(expression);                              \
    }                                                          \
  }

/* One row per function of doubles: TC_DOUBLE(family, kind, expression in x, a and b). */
#define TC_DOUBLE_LIST                                                           \
  TC_DOUBLE(TC_UNARY, ABS, fabs(x))                                              \
  TC_DOUBLE(TC_UNARY, NEG, -x)                                                   \
  TC_DOUBLE(TC_UNARY, EXP, tc_f64_exp(x))                                        \
  TC_DOUBLE(TC_UNARY, LOG, log(x))                                               \
  TC_DOUBLE(TC_UNARY, SQRT, sqrt(x))                                             \
  TC_DOUBLE(TC_UNARY, RECIPROCAL, 1.0 / x)                                       \
  TC_DOUBLE(TC_UNARY, FLOOR, floor(x))                                           \
  TC_DOUBLE(TC_UNARY, CEIL, ceil(x))                                             \
  TC_DOUBLE(TC_UNARY, ROUND, rint(x))                                            \
  TC_DOUBLE(TC_UNARY, SIGN, x > 0 ? 1.0 : x < 0 ? -1.0 : x)                      \
  TC_DOUBLE(TC_UNARY, ERF, erf(x))                                               \
  TC_DOUBLE(TC_UNARY, SOFTPLUS, fmax(x, 0.0) + log1p(exp(-fabs(x))) + 0.0 * x)   \
  TC_DOUBLE(TC_UNARY, SOFTSIGN, x / (1.0 + fabs(x)))                             \
  TC_DOUBLE(TC_UNARY, ELU, x < 0 ? a * tc_f64_expm1(x) : x)                      \
  TC_DOUBLE(TC_UNARY, SELU, b *(x < 0 ? a * tc_f64_expm1(x) : x))                \
  TC_DOUBLE(TC_UNARY, CELU, x < 0 ? a * tc_f64_expm1(x / a) : x)                 \
  TC_DOUBLE(TC_UNARY, MISH, x *tanh(x > 40.0 ? x : log1p(exp(x))))               \
  TC_DOUBLE(TC_UNARY, THRESHOLDED_RELU, x > a ? x : 0.0)                         \
  TC_DOUBLE(TC_UNARY, SHRINK, x<-a ? x + b : x> a ? x - b : 0.0)                 \
  TC_DOUBLE(TC_UNARY, SIN, sin(x))                                               \
  TC_DOUBLE(TC_UNARY, COS, cos(x))                                               \
  TC_DOUBLE(TC_UNARY, TAN, tan(x))                                               \
  TC_DOUBLE(TC_UNARY, ASIN, asin(x))                                             \
  TC_DOUBLE(TC_UNARY, ACOS, acos(x))                                             \
  TC_DOUBLE(TC_UNARY, ATAN, atan(x))                                             \
  TC_DOUBLE(TC_UNARY, SINH, sinh(x))                                             \
  TC_DOUBLE(TC_UNARY, COSH, cosh(x))                                             \
  TC_DOUBLE(TC_UNARY, ASINH, asinh(x))                                           \
  TC_DOUBLE(TC_UNARY, ACOSH, acosh(x))                                           \
  TC_DOUBLE(TC_UNARY, ATANH, atanh(x))                                           \
  TC_DOUBLE(TC_ACT, RELU, x < 0 ? 0.0 : x)                                       \
  TC_DOUBLE(TC_ACT, LEAKY_RELU, x < 0 ? x * a : x)                               \
  TC_DOUBLE(TC_ACT, SIGMOID, 1.0 / (1.0 + tc_f64_exp(-x)))                       \
  TC_DOUBLE(TC_ACT, TANH, tc_f64_tanh(x))                                        \
  TC_DOUBLE(TC_ACT, SILU, x / (1.0 + tc_f64_exp(-x)))                            \
  TC_DOUBLE(TC_ACT, HARDSWISH, x *tc_f64_limit(x / 6.0 + 0.5, 0.0, 1.0))         \
  TC_DOUBLE(TC_ACT, HARDSIGMOID, tc_f64_limit(a *x + b, 0.0, 1.0))               \
  TC_DOUBLE(TC_ACT, GELU_ERF, 0.5 * x * (1.0 + erf(x * 0.70710678118654752440))) \
  TC_DOUBLE(TC_ACT, GELU_TANH, 0.5 * x * (1.0 + tc_f64_tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x))))

#define TC_DOUBLE(family, kind, expression) UNARY_ROW(unary_F64_##family##_##kind, double, expression)
TC_DOUBLE_LIST
#undef TC_DOUBLE
#define TC_INTEGER(kind, type, wraps, below, bits)                         \
  UNARY_ROW(unary_##kind##_ABS, type, below(x) ? (type)(0 - (wraps)x) : x) \
  UNARY_ROW(unary_##kind##_SIGN, type, below(x) ? -1 : x > 0)
TC_INTEGER_LIST
#undef TC_INTEGER
#define TC_BITS(kind, type, wraps)                  \
  UNARY_ROW(unary_##kind##_NEG, type, 0 - (wraps)x) \
  UNARY_ROW(unary_##kind##_NOT, type, ~x)
TC_BITS_LIST
#undef TC_BITS
#undef UNARY_ROW

enum { UNARY_OPS = TC_UNARY_NOT + 1 };

/* By type and operation; f32 has its own. */
static const element_fn unary_typed[TC_TYPES][UNARY_OPS] = {
#define TC_DOUBLE(family, kind, expression) [family##_##kind] = unary_F64_##family##_##kind,
    [TC_TYPE_F64] = {TC_DOUBLE_LIST},
#undef TC_DOUBLE
#define TC_INTEGER(kind, type, wraps, below, bits)           \
  [TC_TYPE_##kind] = {[TC_UNARY_ABS] = unary_##kind##_ABS,   \
                      [TC_UNARY_NEG] = unary_##bits##_NEG,   \
                      [TC_UNARY_SIGN] = unary_##kind##_SIGN, \
                      [TC_UNARY_NOT] = unary_##bits##_NOT},
    TC_INTEGER_LIST
#undef TC_INTEGER
};

#endif
