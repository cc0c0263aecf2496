/* Arithmetic on two f32 sources, either of which may repeat. */
#ifndef TINYCOMP_KERNELS_ELEMENTWISE_BINARY_F32_H
#define TINYCOMP_KERNELS_ELEMENTWISE_BINARY_F32_H

#include "vocabulary.h"

#include "../common/log.h"
#include "rows.h"

/* One row per operation on vectors: TC_BINARY(kind, expression in x and y). */
#define TC_BINARY_LIST                \
  TC_BINARY(ADD, tc_vf_add(x, y))     \
  TC_BINARY(SUB, tc_vf_sub(x, y))     \
  TC_BINARY(MUL, tc_vf_mul(x, y))     \
  TC_BINARY(DIV, tc_vf_div(x, y))     \
  TC_BINARY(MIN, tc_vf_minimum(x, y)) \
  TC_BINARY(MAX, tc_vf_maximum(x, y)) \
  TC_BINARY(PRELU, tc_vf_select(tc_vf_lt(x, tc_vf_set1(0.0f)), tc_vf_mul(x, y), x))

/* Inlined with literal steps. */
#define TC_BINARY(kind, expression)                                                                  \
  TC_INLINE void binary_loop_##kind(float *to, const float *a, const int64_t a_step, const float *b, \
                                    const int64_t b_step, int64_t count) {                           \
    const tc_vf a0 = tc_vf_set1(*a), b0 = tc_vf_set1(*b);                                            \
    int64_t i = 0;                                                                                   \
    for (; i + TC_LANES <= count; i += TC_LANES) {                                                   \
      const tc_vf x = a_step ? tc_vf_load(a + i) : a0, y = b_step ? tc_vf_load(b + i) : b0;          \
      tc_vf_store(to + i, expression);                                                               \
    }                                                                                                \
    if (i < count) {                                                                                 \
      const tc_vf x = a_step ? tc_vf_load_first(a + i, count - i) : a0;                              \
      const tc_vf y = b_step ? tc_vf_load_first(b + i, count - i) : b0;                              \
      tc_vf_store_first(to + i, expression, count - i);                                              \
    }                                                                                                \
  }                                                                                                  \
  static void binary_f32_##kind(const element_rows *rows) {                                          \
    if (rows->x_step && rows->y_step) {                                                              \
      binary_loop_##kind(rows->to, rows->x, 1, rows->y, 1, rows->count);                             \
    } else if (rows->x_step) {                                                                       \
      binary_loop_##kind(rows->to, rows->x, 1, rows->y, 0, rows->count);                             \
    } else if (rows->y_step) {                                                                       \
      binary_loop_##kind(rows->to, rows->x, 0, rows->y, 1, rows->count);                             \
    } else {                                                                                         \
      binary_loop_##kind(rows->to, rows->x, 0, rows->y, 0, rows->count);                             \
    }                                                                                                \
  }
TC_BINARY_LIST
#undef TC_BINARY

/* Powers with one exponent for the whole row that need no logarithm; false if it is another one. */
static bool binary_simple_power(float *to, const float *x, float exponent, int64_t count) {
  if (exponent != 2.0f && exponent != 3.0f && exponent != 0.5f) {
    return false;
  }
  for (int64_t i = 0; i < count; i++) {
    const float square = x[i] * x[i];
    /* pow is +0 at -0 and infinity at -infinity, where the square root is not. */
    const float root = x[i] == -INFINITY ? INFINITY : sqrtf(x[i] + 0.0f);
    to[i] = exponent == 2.0f ? square : exponent == 3.0f ? square * x[i] : root;
  }
  return true;
}

static void binary_f32_POW(const element_rows *rows) {
  const float *x = rows->x, *y = rows->y;
  if (rows->x_step == 1 && rows->y_step == 0 && binary_simple_power(rows->to, x, *y, rows->count)) {
    return;
  }
  for (int64_t i = 0; i < rows->count; i++) {
    ((float *)rows->to)[i] = powf(x[i * rows->x_step], y[i * rows->y_step]);
  }
}

/* A remainder with the sign of the divisor instead of that of the dividend. */
TC_INLINE float binary_floored(float rest, float y) {
  return rest == 0.0f ? copysignf(0.0f, y) : (rest < 0.0f) != (y < 0.0f) ? rest + y : rest;
}

/* Remainders by division of doubles: a quotient below 2^28 is cut off as the exact one would be, and 53 bits hold its
 * product with the divisor. The C library does what is left. Sources with a step of 1 only. */
#define BINARY_REMAINDER(kind, finished)                                      \
  static void binary_f32_##kind(const element_rows *rows) {                   \
    float *restrict to = rows->to;                                            \
    const float *a = rows->x, *b = rows->y;                                   \
    const int64_t count = rows->count;                                        \
    int left = 0;                                                             \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < count; i++) {                \
      const double x = a[i], y = b[i], whole = trunc(x / y);                  \
      const float exact = (float)(x - whole * y), r = copysignf(exact, a[i]); \
      left |= !(fabs(whole) < 0x1p28) | (exact != exact);                     \
      to[i] = finished(r, b[i]);                                              \
    }                                                                         \
    for (int64_t i = 0; left && i < count; i++) {                             \
      const float r = fmodf(a[i], b[i]);                                      \
      to[i] = finished(r, b[i]);                                              \
    }                                                                         \
  }
#define BINARY_TRUNCATED(rest, y) (rest)
BINARY_REMAINDER(MOD, binary_floored)
BINARY_REMAINDER(FMOD, BINARY_TRUNCATED)
#undef BINARY_REMAINDER

/* Whether an operation takes sources that repeat. */
static bool binary_f32_repeats(int64_t op) { return op != TC_BINARY_MOD && op != TC_BINARY_FMOD; }

static element_fn binary_f32_find(int64_t op) {
  switch (op) {
#define TC_BINARY(kind, expression) \
  case TC_BINARY_##kind:            \
    return binary_f32_##kind;
    TC_BINARY_LIST
    TC_BINARY(POW, 0)
    TC_BINARY(MOD, 0)
    TC_BINARY(FMOD, 0)
#undef TC_BINARY
    default:
      return NULL;
  }
}

#endif
