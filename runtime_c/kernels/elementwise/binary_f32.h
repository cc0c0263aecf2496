/* binary_f32: arithmetic on two f32 operands with broadcasting, and an activation. */

/* One row per operation on vectors: TC_BINARY(kind, expression in x and y). */
#define TC_BINARY_LIST                \
  TC_BINARY(ADD, tc_vf_add(x, y))     \
  TC_BINARY(SUB, tc_vf_sub(x, y))     \
  TC_BINARY(MUL, tc_vf_mul(x, y))     \
  TC_BINARY(DIV, tc_vf_div(x, y))     \
  TC_BINARY(MIN, tc_vf_minimum(x, y)) \
  TC_BINARY(MAX, tc_vf_maximum(x, y)) \
  TC_BINARY(PRELU, tc_vf_select(tc_vf_lt(x, tc_vf_set1(0.0f)), tc_vf_mul(x, y), x))

/* Inlined with literal steps. A repeated element is loaded before the loop, as the result may overwrite it. */
#define TC_BINARY(kind, expression)                                                                     \
  TC_INLINE void binary_loop_##kind(float *to, const float *a, const int64_t a_step, const float *b,    \
                                    const int64_t b_step, int64_t count) {                              \
    const tc_vf a0 = tc_vf_set1(*a), b0 = tc_vf_set1(*b);                                               \
    int64_t i = 0;                                                                                      \
    for (; i + TC_LANES <= count; i += TC_LANES) {                                                      \
      const tc_vf x = a_step ? tc_vf_load(a + i) : a0, y = b_step ? tc_vf_load(b + i) : b0;             \
      tc_vf_store(to + i, expression);                                                                  \
    }                                                                                                   \
    if (i < count) {                                                                                    \
      const tc_vf x = a_step ? tc_vf_load_first(a + i, count - i) : a0;                                 \
      const tc_vf y = b_step ? tc_vf_load_first(b + i, count - i) : b0;                                 \
      tc_vf_store_first(to + i, expression, count - i);                                                 \
    }                                                                                                   \
  }                                                                                                     \
  static void binary_f32_##kind(void *to, const void *a, int64_t a_step, const void *b, int64_t b_step, \
                                int64_t count) {                                                        \
    if (a_step && b_step) {                                                                             \
      binary_loop_##kind(to, a, 1, b, 1, count);                                                        \
    } else if (a_step) {                                                                                \
      binary_loop_##kind(to, a, 1, b, 0, count);                                                        \
    } else if (b_step) {                                                                                \
      binary_loop_##kind(to, a, 0, b, 1, count);                                                        \
    } else {                                                                                            \
      binary_loop_##kind(to, a, 0, b, 0, count);                                                        \
    }                                                                                                   \
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

static void binary_f32_POW(void *to, const void *a, int64_t a_step, const void *b, int64_t b_step, int64_t count) {
  float *z = to;
  const float *x = a, *y = b;
  if (a_step == 1 && b_step == 0 && binary_simple_power(to, a, *y, count)) {
    return;
  }
  const float x0 = *x, y0 = *y; /* before the first store, which may overwrite them */
  for (int64_t i = 0; i < count; i++) {
    z[i] = powf(a_step ? x[i] : x0, b_step ? y[i] : y0);
  }
}

static void binary_f32_FMOD(void *to, const void *a, int64_t a_step, const void *b, int64_t b_step, int64_t count) {
  float *z = to;
  const float *x = a, *y = b;
  const float x0 = *x, y0 = *y;
  for (int64_t i = 0; i < count; i++) {
    z[i] = fmodf(a_step ? x[i] : x0, b_step ? y[i] : y0);
  }
}

static binary_fn binary_f32_find(int64_t op) {
  switch (op) {
#define TC_BINARY(kind, expression) \
  case TC_BINARY_##kind:            \
    return binary_f32_##kind;
    TC_BINARY_LIST
    TC_BINARY(POW, 0)
    TC_BINARY(FMOD, 0)
#undef TC_BINARY
    default:
      return NULL;
  }
}

static tc_binary_params binary_f32_common(const tc_binary_f32_params *p) {
#define BINARY_EIGHT(f) p->f##0, p->f##1, p->f##2, p->f##3, p->f##4, p->f##5, p->f##6, p->f##7
  return (tc_binary_params){p->op, BINARY_EIGHT(size), BINARY_EIGHT(a_stride), BINARY_EIGHT(b_stride)};
#undef BINARY_EIGHT
}

static void TC_NAME(tc_binary_f32_prepare)(tc_prepare *prepare) {
  const tc_binary_f32_params *p = prepare->params;
  const tc_binary_params common = binary_f32_common(p);
  tc_check_activation(prepare, p->activation, p->activation_a, p->activation_b);
  binary_prepare(prepare, &common, binary_f32_find(p->op), sizeof(float), sizeof(float));
}

static void TC_NAME(tc_binary_f32_pack)(const tc_prepare *prepare, void *state) {
  const tc_binary_f32_params *p = prepare->params;
  const tc_binary_params common = binary_f32_common(p);
  *(binary_plan *)state = binary_plan_make(&common, binary_f32_find(p->op));
}

static void TC_NAME(tc_binary_f32)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_binary_f32_params *p = call->params;
  const tc_epilogue_f32 epilogue = tc_epilogue(p->activation, p->activation_a, p->activation_b);
  binary_run(call, p->activation == TC_ACT_NONE ? NULL : &epilogue, sizeof(float), sizeof(float), begin, end);
}
