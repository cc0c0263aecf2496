/* Functions of one f32. */
#ifndef TINYCOMP_KERNELS_ELEMENTWISE_UNARY_F32_H
#define TINYCOMP_KERNELS_ELEMENTWISE_UNARY_F32_H

#include "vocabulary.h"

#include "../common/math.h"
#include "../common/log.h"
#include "../common/trig.h"
#include "../common/activation.h"
#include "../common/partial.h"
#include "rows.h"

/* One row per function that is computed on vectors: TC_UNARY(kind, expression in x, a and b). */
#define TC_UNARY_LIST                                                             \
  TC_UNARY(ABS, tc_vf_abs(x))                                                     \
  TC_UNARY(NEG, tc_vf_mul(x, tc_vf_set1(-1.0f)))                                  \
  TC_UNARY(EXP, tc_vf_exp(x))                                                     \
  TC_UNARY(LOG, tc_vf_log(x))                                                     \
  TC_UNARY(SQRT, tc_vf_sqrt(x))                                                   \
  TC_UNARY(RECIPROCAL, tc_vf_div(tc_vf_set1(1.0f), x))                            \
  TC_UNARY(FLOOR, tc_vf_floor(x))                                                 \
  TC_UNARY(CEIL, tc_vf_ceil(x))                                                   \
  TC_UNARY(ROUND, tc_vf_round(x))                                                 \
  TC_UNARY(SIGN, unary_sign(x))                                                   \
  TC_UNARY(ERF, tc_vf_erf(x))                                                     \
  TC_UNARY(SOFTPLUS, unary_softplus(x))                                           \
  TC_UNARY(SOFTSIGN, tc_vf_div(x, tc_vf_add(tc_vf_abs(x), tc_vf_set1(1.0f))))     \
  TC_UNARY(ELU, unary_below_zero(x, tc_vf_mul(a, tc_vf_expm1(x))))                \
  TC_UNARY(SELU, tc_vf_mul(b, unary_below_zero(x, tc_vf_mul(a, tc_vf_expm1(x))))) \
  TC_UNARY(CELU, unary_below_zero(x, tc_vf_mul(a, tc_vf_expm1(tc_vf_div(x, a))))) \
  TC_UNARY(MISH, unary_mish(x))                                                   \
  TC_UNARY(THRESHOLDED_RELU, tc_vf_select(tc_vf_lt(a, x), x, tc_vf_set1(0.0f)))   \
  TC_UNARY(SHRINK, unary_shrink(x, a, b))                                         \
  TC_UNARY(ASIN, tc_vf_asin(x))                                                   \
  TC_UNARY(ACOS, tc_vf_acos(x))                                                   \
  TC_UNARY(ATAN, tc_vf_atan(x))                                                   \
  TC_UNARY(AFFINE, tc_vf_fma(a, x, b))                                            \
  TC_UNARY(SCALED_TANH, tc_vf_mul(a, tc_vf_tanh(tc_vf_mul(b, x))))

/* One row per function whose argument is reduced by multiples of pi/2: TC_UNARY_TURN(kind, expression in x, function of
 * the C library for what is too large for it). */
#define TC_UNARY_TURN_LIST               \
  TC_UNARY_TURN(SIN, tc_vf_sin(x), sinf) \
  TC_UNARY_TURN(COS, tc_vf_cos(x), cosf) \
  TC_UNARY_TURN(TAN, tc_vf_tan(x), tanf)

/* One row per function that the C library computes, a number at a time: TC_UNARY_LIBM(kind, function). */
#define TC_UNARY_LIBM_LIST   \
  TC_UNARY_LIBM(SINH, sinhf) \
  TC_UNARY_LIBM(COSH, coshf) TC_UNARY_LIBM(ASINH, asinhf) TC_UNARY_LIBM(ACOSH, acoshf) TC_UNARY_LIBM(ATANH, atanhf)

TC_INLINE tc_vf unary_sign(tc_vf x) {
  const tc_vf zero = tc_vf_set1(0.0f), below = tc_vf_select(tc_vf_lt(x, zero), tc_vf_set1(-1.0f), x);
  return tc_vf_select(tc_vf_lt(zero, x), tc_vf_set1(1.0f), below);
}

/* ln(1 + e^x), of which e^-|x| cannot overflow. */
TC_INLINE tc_vf unary_softplus(tc_vf x) {
  const tc_vf zero = tc_vf_set1(0.0f), e = tc_vf_exp(tc_vf_sub(zero, tc_vf_abs(x)));
  return tc_vf_add(tc_vf_max(zero, x), tc_vf_log1p(e));
}

TC_INLINE tc_vf unary_below_zero(tc_vf x, tc_vf y) { return tc_vf_select(tc_vf_lt(x, tc_vf_set1(0.0f)), y, x); }

/* x * tanh(softplus(x)) = x * (e^2 + 2e) / (e^2 + 2e + 2) with e = e^x; beyond 20 the quotient is 1. */
TC_INLINE tc_vf unary_mish(tc_vf x) {
  const tc_vf e = tc_vf_exp(tc_vf_min(tc_vf_set1(20.0f), x));
  const tc_vf sum = tc_vf_mul(e, tc_vf_add(e, tc_vf_set1(2.0f)));
  return tc_vf_mul(x, tc_vf_div(sum, tc_vf_add(sum, tc_vf_set1(2.0f))));
}

/* x + b below -a, x - b above a, 0 in between. */
TC_INLINE tc_vf unary_shrink(tc_vf x, tc_vf a, tc_vf b) {
  const tc_vf zero = tc_vf_set1(0.0f), above = tc_vf_select(tc_vf_lt(a, x), tc_vf_sub(x, b), zero);
  return tc_vf_select(tc_vf_lt(x, tc_vf_sub(zero, a)), tc_vf_add(x, b), above);
}

#define UNARY_VECTORS(name, expression)                                 \
  static void name(const element_rows *rows) {                          \
    const tc_vf a __attribute__((unused)) = tc_vf_set1((float)rows->a); \
    const tc_vf b __attribute__((unused)) = tc_vf_set1((float)rows->b); \
    float *to = rows->to;                                               \
    const float *from = rows->x;                                        \
    int64_t i = 0;                                                      \
    for (; i + TC_LANES <= rows->count; i += TC_LANES) {                \
      const tc_vf x = tc_vf_load(from + i);                             \
      tc_vf_store(to + i, expression);                                  \
    }                                                                   \
    if (i < rows->count) {                                              \
      const tc_vf x = tc_vf_load_first(from + i, rows->count - i);      \
      tc_vf_store_first(to + i, expression, rows->count - i);           \
    }                                                                   \
  }
#define TC_UNARY(kind, expression) UNARY_VECTORS(unary_##kind, expression)
TC_UNARY_LIST
#undef TC_UNARY
#define TC_ACTIVATION(kind, expression) UNARY_VECTORS(unary_act_##kind, expression)
TC_ACTIVATION_LIST
#undef TC_ACTIVATION
UNARY_VECTORS(unary_act_RELU, tc_vf_max(tc_vf_set1(0.0f), x))
UNARY_VECTORS(unary_act_CLIP, tc_vf_min(b, tc_vf_max(a, x)))
#undef UNARY_VECTORS

/* Vectors are worth it where they are wide, and exact where multiply-adds are fused, which one lane may not have. */
#define TC_UNARY_TURN(kind, expression, function)                              \
  static void unary_##kind(const element_rows *rows) {                         \
    float *to = rows->to;                                                      \
    const float *from = rows->x, limit = TC_LANES > 1 ? TC_TRIG_LIMIT : -1.0f; \
    const int64_t count = rows->count;                                         \
    tc_vf most = tc_vf_set1(0.0f);                                             \
    for (int64_t i = 0; TC_LANES > 1 && i < count; i += TC_LANES) {            \
      const tc_vf x = tc_load_up_to(from + i, count - i);                      \
      most = tc_vf_max(tc_vf_abs(x), most); /* which leaves NaN out */         \
      tc_store_up_to(to + i, expression, count - i);                           \
    }                                                                          \
    const bool left = tc_vf_reduce_max(most) > limit;                          \
    for (int64_t i = 0; left && i < count; i++) {                              \
      if (!(fabsf(from[i]) <= limit)) {                                        \
        to[i] = function(from[i]);                                             \
      }                                                                        \
    }                                                                          \
  }
TC_UNARY_TURN_LIST
#undef TC_UNARY_TURN

#define TC_UNARY_LIBM(kind, function)                  \
  static void unary_##kind(const element_rows *rows) { \
    float *to = rows->to;                              \
    const float *from = rows->x;                       \
    for (int64_t i = 0; i < rows->count; i++) {        \
      to[i] = function(from[i]);                       \
    }                                                  \
  }
TC_UNARY_LIBM_LIST
#undef TC_UNARY_LIBM

/* The function that computes an operation, or NULL if there is none. */
static element_fn unary_find(int64_t op) {
  switch (op) {
#define TC_UNARY(kind, expression) \
  case TC_UNARY_##kind:            \
    return unary_##kind;
#define TC_UNARY_TURN(kind, expression, function) TC_UNARY(kind, expression)
#define TC_UNARY_LIBM(kind, function) TC_UNARY(kind, function)
#define TC_ACTIVATION(kind, expression) \
  case TC_ACT_##kind:                   \
    return unary_act_##kind;
    TC_UNARY_LIST
    TC_UNARY_TURN_LIST
    TC_UNARY_LIBM_LIST
    TC_ACTIVATION_LIST
    TC_ACTIVATION(RELU, 0)
    TC_ACTIVATION(CLIP, 0)
#undef TC_UNARY
#undef TC_UNARY_TURN
#undef TC_UNARY_LIBM
#undef TC_ACTIVATION
    default:
      return NULL;
  }
}

#endif
