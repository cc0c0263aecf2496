/* Arithmetic on integers and doubles, comparisons and logic, with plain loops. Integers wrap around; a division by zero
 * gives 0. */

/* Arithmetic that is defined for all operands. */
#define TC_INTEGER(kind, type, wraps, below)                                                \
  TC_INLINE type binary_div_##kind(type x, type y) {                                        \
    return y == 0 ? 0 : below(y) && y == (type) - 1 ? (type)(0 - (wraps)x) : (type)(x / y); \
  }                                                                                         \
  /* The remainder with the sign of the dividend. */                                        \
  TC_INLINE type binary_rem_##kind(type x, type y) {                                        \
    return y == 0 || (below(y) && y == (type) - 1) ? 0 : (type)(x % y);                     \
  }                                                                                         \
  /* The remainder with the sign of the divisor. */                                         \
  TC_INLINE type binary_mod_##kind(type x, type y) {                                        \
    const type rest = binary_rem_##kind(x, y);                                              \
    return rest != 0 && below(rest) != below(y) ? (type)(rest + y) : rest;                  \
  }                                                                                         \
  static type binary_pow_##kind(type x, type y) {                                           \
    if (below(y)) {                                                                         \
      return x == 1 ? 1 : below(x) && x == (type) - 1 ? (type)(y % 2 ? -1 : 1) : 0;         \
    }                                                                                       \
    wraps power = 1, factor = (wraps)x;                                                     \
    for (; y > 0; y = (type)(y >> 1)) {                                                     \
      power *= y & 1 ? factor : 1;                                                          \
      factor *= factor;                                                                     \
    }                                                                                       \
    return (type)power;                                                                     \
  }                                                                                         \
  /* Whether an amount is less than the width, and so can be shifted by. */                 \
  TC_INLINE bool binary_shifts_##kind(type y) { return !below(y) && y < 8 * (int)sizeof(y); }
TC_INTEGER_LIST
#undef TC_INTEGER

/* Keep NaN. */
TC_INLINE double binary_min_F64(double x, double y) { return x < y || x != x ? x : y; }
TC_INLINE double binary_mod_F64(double x, double y) {
  const double rest = fmod(x, y);
  return rest == 0.0 ? copysign(0.0, y) : (rest < 0.0) != (y < 0.0) ? rest + y : rest;
}
TC_INLINE double binary_max_F64(double x, double y) { return x > y || x != x ? x : y; }

#define BINARY_COMMON(row, kind, t)                                                                                \
  row(kind, DIV, t, binary_div_##kind(x, y)) row(kind, POW, t, binary_pow_##kind(x, y))                            \
      row(kind, MIN, t, x < y ? x : y) row(kind, MAX, t, x > y ? x : y) row(kind, MOD, t, binary_mod_##kind(x, y)) \
          row(kind, FMOD, t, binary_rem_##kind(x, y)) row(kind, AND, t, x &y) row(kind, OR, t, x | y)              \
              row(kind, XOR, t, x ^ y)
/* row(kind, operation, type, expression) */
#define BINARY_INTEGER_LIST(row, kind, t, w, below)                                                              \
  row(kind, ADD, t, (w)x + (w)y) row(kind, SUB, t, (w)x - (w)y) row(kind, MUL, t, (w)x *(w)y)                    \
      row(kind, PRELU, t, below(x) ? (t)((w)x * (w)y) : x)                                                       \
          row(kind, SHIFT_LEFT, t, binary_shifts_##kind(y) ? (w)x << y : 0) row(kind, SHIFT_RIGHT, t,            \
                                                                                binary_shifts_##kind(y) ? x >> y \
                                                                                : below(x)              ? -1     \
                                                                                                        : 0)     \
              BINARY_COMMON(row, kind, t)
#define BINARY_DOUBLE_LIST(row)                                                                                      \
  row(F64, ADD, double, x + y) row(F64, SUB, double, x - y) row(F64, MUL, double, x *y) row(F64, DIV, double, x / y) \
      row(F64, POW, double, pow(x, y)) row(F64, MIN, double, binary_min_F64(x, y))                                   \
          row(F64, MAX, double, binary_max_F64(x, y)) row(F64, FMOD, double, fmod(x, y))                             \
              row(F64, PRELU, double, x < 0 ? x * y : x)
#define BINARY_ROW(kind, operation, t, expression) TC_ROW(binary_##kind##_##operation, t, t, expression)
#define TC_INTEGER(kind, t, w, below) BINARY_INTEGER_LIST(BINARY_ROW, kind, t, w, below)
TC_INTEGER_LIST
BINARY_DOUBLE_LIST(BINARY_ROW)
#undef TC_INTEGER
#undef BINARY_ROW

enum { BINARY_OPS = TC_BINARY_SHIFT_RIGHT + 1 };

/* By type and operation; f32 has its own. */
static const element_fn binary_typed[][BINARY_OPS] = {
#define BINARY_ENTRY(kind, operation, t, expression) [TC_BINARY_##operation] = binary_##kind##_##operation,
#define TC_INTEGER(kind, t, w, below) [TC_TYPE_##kind] = {BINARY_INTEGER_LIST(BINARY_ENTRY, kind, t, w, below)},
    TC_INTEGER_LIST[TC_TYPE_F64] = {BINARY_DOUBLE_LIST(BINARY_ENTRY)},
    [TC_TYPE_BOOL] = {NULL},
#undef TC_INTEGER
#undef BINARY_ENTRY
};

/* row(kind, comparison, type, expression) */
#define BINARY_COMPARE_LIST(row, kind, t)                                               \
  row(kind, EQUAL, t, x == y) row(kind, NOT_EQUAL, t, x != y) row(kind, LESS, t, x < y) \
      row(kind, LESS_EQUAL, t, x <= y) row(kind, GREATER, t, x > y) row(kind, GREATER_EQUAL, t, x >= y)
#define BINARY_ROW(kind, operation, t, expression) TC_ROW(compare_##kind##_##operation, uint8_t, t, expression)
#define TC_INTEGER(kind, t, w, below) BINARY_COMPARE_LIST(BINARY_ROW, kind, t)
TC_INTEGER_LIST
TC_INTEGER(F32, float, , )
TC_INTEGER(F64, double, , )
#undef TC_INTEGER
#undef BINARY_ROW

enum { COMPARE_OPS = TC_COMPARE_GREATER_EQUAL + 1 };

static const element_fn compare_typed[][COMPARE_OPS] = {
#define BINARY_ENTRY(kind, operation, t, expression) [TC_COMPARE_##operation] = compare_##kind##_##operation,
#define TC_INTEGER(kind, t, w, below) [TC_TYPE_##kind] = {BINARY_COMPARE_LIST(BINARY_ENTRY, kind, t)},
    TC_INTEGER_LIST TC_INTEGER(F32, float, , ) TC_INTEGER(F64, double, , )[TC_TYPE_BOOL] = {NULL},
#undef TC_INTEGER
#undef BINARY_ENTRY
};

TC_ROW(logical_AND, uint8_t, uint8_t, x &&y)
TC_ROW(logical_OR, uint8_t, uint8_t, x || y)
TC_ROW(logical_XOR, uint8_t, uint8_t, !x != !y)
TC_ROW(logical_EQUAL, uint8_t, uint8_t, !x == !y)

enum { LOGICAL_OPS = TC_LOGICAL_EQUAL + 1 };

static const element_fn logical_rows[LOGICAL_OPS] = {logical_AND, logical_OR, logical_XOR, logical_EQUAL};
