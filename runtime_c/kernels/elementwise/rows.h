/* What every step of an element-wise program is: a function of one block. */
#ifndef TINYCOMP_KERNELS_ELEMENTWISE_ROWS_H
#define TINYCOMP_KERNELS_ELEMENTWISE_ROWS_H

#include "vocabulary.h"

/* The sources follow each other with steps of 1; functions that say so also take a step of 0, which repeats. The result
 * overlaps no source. a and b are coefficients. */
typedef struct element_rows {
  void *to;
  const void *x, *y, *z;
  int64_t x_step, y_step;
  int64_t count;
  double a, b;
  const struct cast_type *from, *into; /* of a conversion */
} element_rows;

typedef void (*element_fn)(const element_rows *rows);

/* TC_ROW(function, type of the result, type of the sources, expression in x and y): a loop that the compiler turns into
 * vectors. The count is read once: what is written might be part of it, as far as the compiler knows. */
#define TC_ROW(name, result, type, expression)                 \
  static void name(const element_rows *rows) {                 \
    result *restrict to = rows->to;                            \
    const type *a = rows->x, *b = rows->y;                     \
    const int64_t count = rows->count;                         \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < count; i++) { \
      const type x = a[i], y = b[i];                           \
      to[i] = (result)(expression);                            \
    }                                                          \
  }

/* One row per integer type: TC_INTEGER(kind, type, type that wraps, test for numbers below 0, kind of the same width
 * without a sign, which shares all whose bits a sign does not change). */
#define TC_INTEGER_LIST                                   \
  TC_INTEGER(I8, int8_t, uint32_t, ELEMENT_BELOW, U8)     \
  TC_INTEGER(U8, uint8_t, uint32_t, ELEMENT_NEVER, U8)    \
  TC_INTEGER(I16, int16_t, uint32_t, ELEMENT_BELOW, U16)  \
  TC_INTEGER(U16, uint16_t, uint32_t, ELEMENT_NEVER, U16) \
  TC_INTEGER(I32, int32_t, uint32_t, ELEMENT_BELOW, U32)  \
  TC_INTEGER(U32, uint32_t, uint32_t, ELEMENT_NEVER, U32) \
  TC_INTEGER(I64, int64_t, uint64_t, ELEMENT_BELOW, U64)  \
  TC_INTEGER(U64, uint64_t, uint64_t, ELEMENT_NEVER, U64)
/* One row per width: TC_BITS(kind, type, type that wraps). */
#define TC_BITS_LIST               \
  TC_BITS(U8, uint8_t, uint32_t)   \
  TC_BITS(U16, uint16_t, uint32_t) \
  TC_BITS(U32, uint32_t, uint32_t) \
  TC_BITS(U64, uint64_t, uint64_t)
#define ELEMENT_BELOW(x) ((x) < 0)
#define ELEMENT_NEVER(x) false

#endif
