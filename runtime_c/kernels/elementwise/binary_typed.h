/* binary_i32, binary_i64, compare_f32, compare_i32, compare_i64, logical: the same walk as binary_f32, with plain loops
 * that the compiler turns into vectors. Integers wrap around; a division by zero gives 0. */

/* Arithmetic that is defined for all operands; `unsigned_type` wraps where `type` may not. */
#define BINARY_INTEGER(type, unsigned_type, suffix)                                            \
  TC_INLINE type binary_div_##suffix(type x, type y) {                                         \
    return y == 0 ? 0 : y == -1 ? (type)(0 - (unsigned_type)x) : x / y;                        \
  }                                                                                            \
  /* The remainder with the sign of the dividend. */                                           \
  TC_INLINE type binary_rem_##suffix(type x, type y) { return y == 0 || y == -1 ? 0 : x % y; } \
  /* The remainder with the sign of the divisor. */                                            \
  TC_INLINE type binary_mod_##suffix(type x, type y) {                                         \
    const type rest = binary_rem_##suffix(x, y);                                               \
    return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;                               \
  }                                                                                            \
  static type binary_pow_##suffix(type x, type y) {                                            \
    if (y < 0) {                                                                               \
      return x == 1 ? 1 : x == -1 ? (y % 2 ? -1 : 1) : 0;                                      \
    }                                                                                          \
    unsigned_type power = 1, factor = (unsigned_type)x;                                        \
    for (; y > 0; y >>= 1) {                                                                   \
      power *= y & 1 ? factor : 1;                                                             \
      factor *= factor;                                                                        \
    }                                                                                          \
    return (type)power;                                                                        \
  }
BINARY_INTEGER(int32_t, uint32_t, i32)
BINARY_INTEGER(int64_t, uint64_t, i64)
#undef BINARY_INTEGER

/* TC_ROW(function, type of the result, type of the operands, expression in x and y) */
#define BINARY_ARITHMETIC(t, u, s)                      \
  TC_ROW(binary_##s##_ADD, t, t, (t)((u)x + (u)y))      \
  TC_ROW(binary_##s##_SUB, t, t, (t)((u)x - (u)y))      \
  TC_ROW(binary_##s##_MUL, t, t, (t)((u)x * (u)y))      \
  TC_ROW(binary_##s##_DIV, t, t, binary_div_##s(x, y))  \
  TC_ROW(binary_##s##_POW, t, t, binary_pow_##s(x, y))  \
  TC_ROW(binary_##s##_MIN, t, t, x < y ? x : y)         \
  TC_ROW(binary_##s##_MAX, t, t, x > y ? x : y)         \
  TC_ROW(binary_##s##_MOD, t, t, binary_mod_##s(x, y))  \
  TC_ROW(binary_##s##_FMOD, t, t, binary_rem_##s(x, y)) \
  TC_ROW(binary_##s##_AND, t, t, x &y)                  \
  TC_ROW(binary_##s##_OR, t, t, x | y)                  \
  TC_ROW(binary_##s##_XOR, t, t, x ^ y)
#define BINARY_COMPARISONS(t, s)                       \
  TC_ROW(compare_##s##_EQUAL, uint8_t, t, x == y)      \
  TC_ROW(compare_##s##_NOT_EQUAL, uint8_t, t, x != y)  \
  TC_ROW(compare_##s##_LESS, uint8_t, t, x < y)        \
  TC_ROW(compare_##s##_LESS_EQUAL, uint8_t, t, x <= y) \
  TC_ROW(compare_##s##_GREATER, uint8_t, t, x > y)     \
  TC_ROW(compare_##s##_GREATER_EQUAL, uint8_t, t, x >= y)
#define BINARY_LOGIC                              \
  TC_ROW(logical_AND, uint8_t, uint8_t, x &&y)    \
  TC_ROW(logical_OR, uint8_t, uint8_t, x || y)    \
  TC_ROW(logical_XOR, uint8_t, uint8_t, !x != !y) \
  TC_ROW(logical_EQUAL, uint8_t, uint8_t, !x == !y)

/* The loop for one pair of steps. Iterations touch the same index only, so that the result may replace an operand. */
#define BINARY_LOOP(result, type, left, right, expression)   \
  _Pragma("GCC ivdep") for (int64_t i = 0; i < count; i++) { \
    const type x = left, y = right;                          \
    z[i] = (result)(expression);                             \
  }
#define TC_ROW(name, result, type, expression)                                                                     \
  static void name(void *to, const void *left, int64_t a_step, const void *right, int64_t b_step, int64_t count) { \
    result *z = to;                                                                                                \
    const type *a = left, *b = right;                                                                              \
    const type a0 = *a, b0 = *b;                                                                                   \
    if (a_step && b_step) {                                                                                        \
      BINARY_LOOP(result, type, a[i], b[i], expression)                                                            \
    } else if (a_step) {                                                                                           \
      BINARY_LOOP(result, type, a[i], b0, expression)                                                              \
    } else if (b_step) {                                                                                           \
      BINARY_LOOP(result, type, a0, b[i], expression)                                                              \
    } else {                                                                                                       \
      BINARY_LOOP(result, type, a0, b0, expression)                                                                \
    }                                                                                                              \
  }
BINARY_ARITHMETIC(int32_t, uint32_t, i32)
BINARY_ARITHMETIC(int64_t, uint64_t, i64)
BINARY_COMPARISONS(float, f32)
BINARY_COMPARISONS(int32_t, i32)
BINARY_COMPARISONS(int64_t, i64)
BINARY_LOGIC
#undef TC_ROW
#undef BINARY_LOOP

#define BINARY_CASE(prefix, kind, code) \
  case code##_##kind:                   \
    return prefix##_##kind;

#define BINARY_FIND_ARITHMETIC(prefix)         \
  static binary_fn prefix##_find(int64_t op) { \
    switch (op) {                              \
      BINARY_CASE(prefix, ADD, TC_BINARY)      \
      BINARY_CASE(prefix, SUB, TC_BINARY)      \
      BINARY_CASE(prefix, MUL, TC_BINARY)      \
      BINARY_CASE(prefix, DIV, TC_BINARY)      \
      BINARY_CASE(prefix, POW, TC_BINARY)      \
      BINARY_CASE(prefix, MIN, TC_BINARY)      \
      BINARY_CASE(prefix, MAX, TC_BINARY)      \
      BINARY_CASE(prefix, MOD, TC_BINARY)      \
      BINARY_CASE(prefix, FMOD, TC_BINARY)     \
      BINARY_CASE(prefix, AND, TC_BINARY)      \
      BINARY_CASE(prefix, OR, TC_BINARY)       \
      BINARY_CASE(prefix, XOR, TC_BINARY)      \
      default:                                 \
        return NULL;                           \
    }                                          \
  }
#define BINARY_FIND_COMPARISON(prefix)               \
  static binary_fn prefix##_find(int64_t op) {       \
    switch (op) {                                    \
      BINARY_CASE(prefix, EQUAL, TC_COMPARE)         \
      BINARY_CASE(prefix, NOT_EQUAL, TC_COMPARE)     \
      BINARY_CASE(prefix, LESS, TC_COMPARE)          \
      BINARY_CASE(prefix, LESS_EQUAL, TC_COMPARE)    \
      BINARY_CASE(prefix, GREATER, TC_COMPARE)       \
      BINARY_CASE(prefix, GREATER_EQUAL, TC_COMPARE) \
      default:                                       \
        return NULL;                                 \
    }                                                \
  }
BINARY_FIND_ARITHMETIC(binary_i32)
BINARY_FIND_ARITHMETIC(binary_i64)
BINARY_FIND_COMPARISON(compare_f32)
BINARY_FIND_COMPARISON(compare_i32)
BINARY_FIND_COMPARISON(compare_i64)

static binary_fn logical_find(int64_t op) {
  switch (op) {
    BINARY_CASE(logical, AND, TC_LOGICAL)
    BINARY_CASE(logical, OR, TC_LOGICAL)
    BINARY_CASE(logical, XOR, TC_LOGICAL)
    BINARY_CASE(logical, EQUAL, TC_LOGICAL)
    default:
      return NULL;
  }
}

/* The three hooks of a kernel, given the element types of its result and operands. */
#define BINARY_HOOKS(kernel, result, type)                                            \
  static void TC_NAME(tc_##kernel##_prepare)(tc_prepare * prepare) {                  \
    const tc_binary_params *p = prepare->params;                                      \
    binary_prepare(prepare, p, kernel##_find(p->op), sizeof(result), sizeof(type));   \
  }                                                                                   \
  static void TC_NAME(tc_##kernel##_pack)(const tc_prepare *prepare, void *state) {   \
    const tc_binary_params *p = prepare->params;                                      \
    *(binary_plan *)state = binary_plan_make(p, kernel##_find(p->op));                \
  }                                                                                   \
  static void TC_NAME(tc_##kernel)(const tc_call *call, int64_t begin, int64_t end) { \
    binary_run(call, NULL, sizeof(result), sizeof(type), begin, end);                 \
  }
BINARY_HOOKS(binary_i32, int32_t, int32_t)
BINARY_HOOKS(binary_i64, int64_t, int64_t)
BINARY_HOOKS(compare_f32, uint8_t, float)
BINARY_HOOKS(compare_i32, uint8_t, int32_t)
BINARY_HOOKS(compare_i64, uint8_t, int64_t)
BINARY_HOOKS(logical, uint8_t, uint8_t)
#undef BINARY_HOOKS
