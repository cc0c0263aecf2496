/* Arithmetic on integers and doubles, comparisons and logic, with plain loops. Integers wrap around; a division by zero
 * gives 0. */
#ifndef TINYCOMP_KERNELS_ELEMENTWISE_BINARY_TYPED_H
#define TINYCOMP_KERNELS_ELEMENTWISE_BINARY_TYPED_H

#include "vocabulary.h"

#include "rows.h"

/* Arithmetic that is defined for all operands. */
#define TC_INTEGER(kind, type, wraps, below, bits)                                            \
  TC_INLINE type binary_div_##kind(type x, type y) {                                          \
    return y == 0 ? 0 : below(y) && y == (type) - 1 ? (type)(0 - (wraps)x) : (type)(x / y);   \
  }                                                                                           \
  /* The remainder with the sign of the dividend. */                                          \
  TC_INLINE type binary_rem_##kind(type x, type y) {                                          \
    return y == 0 || (below(y) && y == (type) - 1) ? 0 : (type)(x % y);                       \
  }                                                                                           \
  /* The remainder with the sign of the divisor. */                                           \
  TC_INLINE type binary_mod_##kind(type x, type y) {                                          \
    const type rest = binary_rem_##kind(x, y);                                                \
    return rest != 0 && below(rest) != below(y) ? (type)(rest + y) : rest;                    \
  }                                                                                           \
  static type binary_pow_##kind(type x, type y) {                                             \
    if (below(y)) {                                                                           \
      return x == 1 ? 1 : below(x) && x == (type) - 1 ? (type)(y % 2 ? -1 : 1) : 0;           \
    }                                                                                         \
    wraps power = 1, factor = (wraps)x;                                                       \
    for (; y > 0; y = (type)(y >> 1)) {                                                       \
      power *= y & 1 ? factor : 1;                                                            \
      factor *= factor;                                                                       \
    }                                                                                         \
    return (type)power;                                                                       \
  }                                                                                           \
  /* Whether an amount is less than the width, and so can be shifted by. */                   \
  TC_INLINE bool binary_shifts_##kind(type y) { return !below(y) && y < 8 * (int)sizeof(y); } \
  TC_INLINE type binary_shift_left_##kind(type x, type y) {                                   \
    return binary_shifts_##kind(y) ? (type)((wraps)x << y) : 0;                               \
  }                                                                                           \
  TC_INLINE type binary_shift_right_##kind(type x, type y) {                                  \
    return binary_shifts_##kind(y) ? (type)(x >> y) : below(x) ? (type) - 1 : 0;              \
  }
TC_INTEGER_LIST
#undef TC_INTEGER

/* The remainder with the sign of the divisor. */
TC_INLINE double binary_mod_F64(double x, double y) {
  const double rest = fmod(x, y);
  return rest == 0.0 ? copysign(0.0, y) : (rest < 0.0) != (y < 0.0) ? rest + y : rest;
}

/* Keep NaN. */
TC_INLINE double binary_min_F64(double x, double y) { return x < y || x != x ? x : y; }
TC_INLINE double binary_max_F64(double x, double y) { return x > y || x != x ? x : y; }

/* ROW(kind, operation, type, expression); first what a sign changes. */
#define BINARY_INTEGER_LIST(ROW, kind, t, w, below)      \
  ROW(kind, DIV, t, binary_div_##kind(x, y))             \
  ROW(kind, POW, t, binary_pow_##kind(x, y))             \
  ROW(kind, MIN, t, (x < y ? x : y))                     \
  ROW(kind, MAX, t, (x > y ? x : y))                     \
  ROW(kind, MOD, t, binary_mod_##kind(x, y))             \
  ROW(kind, FMOD, t, binary_rem_##kind(x, y))            \
  ROW(kind, PRELU, t, (below(x) ? (t)((w)x * (w)y) : x)) \
  ROW(kind, SHIFT_RIGHT, t, binary_shift_right_##kind(x, y))
#define BINARY_BITS_LIST(ROW, kind, t, w) \
  ROW(kind, ADD, t, (w)x + (w)y)          \
  ROW(kind, SUB, t, (w)x - (w)y)          \
  ROW(kind, MUL, t, (w)x *(w)y)           \
  ROW(kind, AND, t, x &y)                 \
  ROW(kind, OR, t, x | y)                 \
  ROW(kind, XOR, t, x ^ y)                \
  ROW(kind, SHIFT_LEFT, t, binary_shift_left_##kind(x, y))
#define BINARY_DOUBLE_LIST(ROW)               \
  ROW(F64, ADD, double, x + y)                \
  ROW(F64, SUB, double, x - y)                \
  ROW(F64, MUL, double, x *y)                 \
  ROW(F64, DIV, double, x / y)                \
  ROW(F64, POW, double, pow(x, y))            \
  ROW(F64, MIN, double, binary_min_F64(x, y)) \
  ROW(F64, MAX, double, binary_max_F64(x, y)) \
  ROW(F64, MOD, double, binary_mod_F64(x, y)) \
  ROW(F64, FMOD, double, fmod(x, y))          \
  ROW(F64, PRELU, double, x < 0 ? x * y : x)
#define BINARY_ROW(kind, operation, t, expression) TC_ROW(binary_##kind##_##operation, t, t, expression)
#define TC_INTEGER(kind, t, w, below, bits) BINARY_INTEGER_LIST(BINARY_ROW, kind, t, w, below)
#define TC_BITS(kind, t, w) BINARY_BITS_LIST(BINARY_ROW, kind, t, w)
TC_INTEGER_LIST
TC_BITS_LIST
BINARY_DOUBLE_LIST(BINARY_ROW)
#undef TC_INTEGER
#undef TC_BITS
#undef BINARY_ROW

enum { BINARY_OPS = TC_BINARY_SHIFT_RIGHT + 1 };

/* By type and operation; f32 has its own. */
static const element_fn binary_typed[TC_TYPES][BINARY_OPS] = {
#define BINARY_ENTRY(kind, operation, t, expression) [TC_BINARY_##operation] = binary_##kind##_##operation,
#define TC_INTEGER(kind, t, w, below, bits) \
  [TC_TYPE_##kind] = {BINARY_INTEGER_LIST(BINARY_ENTRY, kind, t, w, below) BINARY_BITS_LIST(BINARY_ENTRY, bits, t, w)},
    TC_INTEGER_LIST[TC_TYPE_F64] = {BINARY_DOUBLE_LIST(BINARY_ENTRY)},
#undef TC_INTEGER
#undef BINARY_ENTRY
};

/* ROW(kind, comparison, type, expression). A program has no others once it is read: a > b is b < a. */
#define BINARY_ORDER_LIST(ROW, kind, t) ROW(kind, LESS, t, x < y) ROW(kind, LESS_EQUAL, t, x <= y)
#define BINARY_EQUAL_LIST(ROW, kind, t) ROW(kind, EQUAL, t, x == y) ROW(kind, NOT_EQUAL, t, x != y)
#define BINARY_ROW(kind, operation, t, expression) TC_ROW(compare_##kind##_##operation, uint8_t, t, expression)
#define TC_INTEGER(kind, t, w, below, bits) BINARY_ORDER_LIST(BINARY_ROW, kind, t)
#define TC_BITS(kind, t, w) BINARY_EQUAL_LIST(BINARY_ROW, kind, t)
TC_INTEGER_LIST
TC_INTEGER(F32, float, , , )
TC_INTEGER(F64, double, , , )
TC_BITS_LIST
TC_BITS(F32, float, )
TC_BITS(F64, double, )
#undef TC_INTEGER
#undef TC_BITS
#undef BINARY_ROW

enum { COMPARE_OPS = TC_COMPARE_LESS_EQUAL + 1 };

static const element_fn compare_typed[TC_TYPES][COMPARE_OPS] = {
#define BINARY_ENTRY(kind, operation, t, expression) [TC_COMPARE_##operation] = compare_##kind##_##operation,
#define TC_INTEGER(kind, t, w, below, bits) \
  [TC_TYPE_##kind] = {BINARY_ORDER_LIST(BINARY_ENTRY, kind, t) BINARY_EQUAL_LIST(BINARY_ENTRY, bits, t)},
    TC_INTEGER_LIST TC_INTEGER(F32, float, , , F32) TC_INTEGER(F64, double, , , F64)
#undef TC_INTEGER
#undef BINARY_ENTRY
};

TC_ROW(logical_AND, uint8_t, uint8_t, (x != 0) & (y != 0))
TC_ROW(logical_OR, uint8_t, uint8_t, (x | y) != 0)
TC_ROW(logical_XOR, uint8_t, uint8_t, !x != !y)
TC_ROW(logical_EQUAL, uint8_t, uint8_t, !x == !y)

enum { LOGICAL_OPS = TC_LOGICAL_EQUAL + 1 };

static const element_fn logical_rows[LOGICAL_OPS] = {logical_AND, logical_OR, logical_XOR, logical_EQUAL};

#endif
