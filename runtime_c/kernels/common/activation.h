/* The activations of an epilogue. Clamps happen in registers, at the end of a tile; the others in a second pass over
 * the finished block while it is in the first-level cache, so that tiles stay small. */
#ifndef TINYCOMP_KERNELS_COMMON_ACTIVATION_H
#define TINYCOMP_KERNELS_COMMON_ACTIVATION_H

#include "vocabulary.h"

#include "math.h"

/* One row per activation of the second pass: TC_ACTIVATION(kind, expression in x, a and b). */
#define TC_ACTIVATION_LIST                                                                                   \
  TC_ACTIVATION(LEAKY_RELU, tc_vf_select(tc_vf_lt(x, tc_vf_set1(0.0f)), tc_vf_mul(x, a), x))                 \
  TC_ACTIVATION(SIGMOID, tc_vf_sigmoid(x))                                                                   \
  TC_ACTIVATION(TANH, tc_vf_tanh(x))                                                                         \
  TC_ACTIVATION(SILU, tc_vf_silu(x))                                                                         \
  TC_ACTIVATION(HARDSWISH,                                                                                   \
                tc_vf_mul(x, tc_clamp(tc_vf_fma(x, tc_vf_set1(1.0f / 6.0f), tc_vf_set1(0.5f)), 0.0f, 1.0f))) \
  TC_ACTIVATION(HARDSIGMOID, tc_clamp(tc_vf_fma(a, x, b), 0.0f, 1.0f))                                       \
  TC_ACTIVATION(GELU_ERF, tc_gelu_erf(x))                                                                    \
  TC_ACTIVATION(GELU_TANH, tc_gelu(x, tc_vf_tanh(tc_gelu_argument(x))))

TC_INLINE tc_vf tc_gelu(tc_vf x, tc_vf bell) {
  return tc_vf_mul(tc_vf_mul(x, tc_vf_set1(0.5f)), tc_vf_add(bell, tc_vf_set1(1.0f)));
}

/* x / 2 * (1 + erf(x / sqrt(2))), where erf is that of math.h with the root in its coefficients. Only -1 is a bound
 * that large numbers need. */
TC_INLINE tc_vf tc_gelu_erf(tc_vf x) {
  static const float p[] = {0.797884513f,    0.0673192632f,   0.00932477233f,
                            0.000332840951f, 1.25901914e-05f, 4.53006855e-08f};
  static const float q[] = {1.0f, 0.25103855f, 0.0285273975f, 0.00187116438f, 7.26591625e-05f, 1.19036338e-06f};
  const tc_vf half = tc_vf_mul(x, tc_vf_set1(0.5f)), t = tc_clamp(x, -5.5437171f, 5.5437171f), t2 = tc_vf_mul(t, t);
  const tc_vf erf = tc_vf_div(tc_vf_mul(t, TC_POLYNOMIAL(t2, p)), TC_POLYNOMIAL(t2, q));
  return tc_vf_fma(half, tc_vf_max(tc_vf_set1(-1.0f), erf), half);
}

/* sqrt(2/pi) * (x + 0.044715 x^3) */
TC_INLINE tc_vf tc_gelu_argument(tc_vf x) {
  const tc_vf cubic = tc_vf_fma(tc_vf_mul(x, x), tc_vf_set1(0.044715f), tc_vf_set1(1.0f));
  return tc_vf_mul(tc_vf_mul(x, tc_vf_set1(0.79788456f)), cubic);
}

/* What comes after the sums of a block. */
typedef struct tc_epilogue_f32 {
  float low, high;    /* the clamp */
  int64_t activation; /* of the second pass, or TC_ACT_NONE */
  float a, b;
} tc_epilogue_f32;

TC_INLINE tc_epilogue_f32 tc_epilogue(int64_t activation, float a, float b) {
  tc_epilogue_f32 epilogue = {-INFINITY, INFINITY, TC_ACT_NONE, a, b};
  if (activation == TC_ACT_RELU) {
    epilogue.low = 0.0f;
  } else if (activation == TC_ACT_CLIP) {
    epilogue.low = a;
    epilogue.high = b;
  } else {
    epilogue.activation = activation;
  }
  return epilogue;
}

/* Over a whole block, so that the constants are set up once and neighbouring vectors overlap. */
#define TC_ACTIVATION(kind, expression)                                                                              \
  static void tc_activate_##kind(float *c, int64_t stride, int64_t rows, int64_t columns, float alpha, float beta) { \
    const tc_vf a __attribute__((unused)) = tc_vf_set1(alpha);                                                       \
    const tc_vf b __attribute__((unused)) = tc_vf_set1(beta);                                                        \
    const int64_t whole = columns / TC_LANES * TC_LANES, rest = columns - whole;                                     \
    for (int64_t r = 0; r < rows; r++, c += stride) {                                                                \
      for (int64_t i = 0; i < whole; i += TC_LANES) {                                                                \
        const tc_vf x = tc_vf_load(c + i);                                                                           \
        tc_vf_store(c + i, expression);                                                                              \
      }                                                                                                              \
      if (rest) {                                                                                                    \
        const tc_vf x = tc_vf_load_first(c + whole, rest);                                                           \
        tc_vf_store_first(c + whole, expression, rest);                                                              \
      }                                                                                                              \
    }                                                                                                                \
  }
TC_ACTIVATION_LIST
#undef TC_ACTIVATION

/* The second pass over `rows` rows of `columns` elements that are `stride` apart; adjacent rows are one. */
static void tc_activate_rows(const tc_epilogue_f32 *epilogue, float *c, int64_t stride, int64_t rows, int64_t columns) {
  if (stride == columns) {
    columns *= rows;
    rows = 1;
  }
  switch (epilogue->activation) {
#define TC_ACTIVATION(kind, expression)                                     \
  case TC_ACT_##kind:                                                       \
    tc_activate_##kind(c, stride, rows, columns, epilogue->a, epilogue->b); \
    break;
    TC_ACTIVATION_LIST
#undef TC_ACTIVATION
    default:
      break;
  }
}

#endif
