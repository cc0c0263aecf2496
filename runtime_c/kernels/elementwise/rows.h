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
 * vectors. */
#define TC_ROW(name, result, type, expression)                       \
  static void name(const element_rows *rows) {                       \
    result *restrict to = rows->to;                                  \
    const type *a = rows->x, *b = rows->y;                           \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < rows->count; i++) { \
      const type x = a[i], y = b[i];                                 \
      to[i] = (result)(expression);                                  \
    }                                                                \
  }

/* One row per integer type: TC_INTEGER(kind, type, type that wraps, test for numbers below 0). */
#define TC_INTEGER_LIST                              \
  TC_INTEGER(I8, int8_t, uint32_t, ELEMENT_BELOW)    \
  TC_INTEGER(U8, uint8_t, uint32_t, ELEMENT_NEVER)   \
  TC_INTEGER(I16, int16_t, uint32_t, ELEMENT_BELOW)  \
  TC_INTEGER(U16, uint16_t, uint32_t, ELEMENT_NEVER) \
  TC_INTEGER(I32, int32_t, uint32_t, ELEMENT_BELOW)  \
  TC_INTEGER(U32, uint32_t, uint32_t, ELEMENT_NEVER) \
  TC_INTEGER(I64, int64_t, uint64_t, ELEMENT_BELOW)  \
  TC_INTEGER(U64, uint64_t, uint64_t, ELEMENT_NEVER)
#define ELEMENT_BELOW(x) ((x) < 0)
#define ELEMENT_NEVER(x) false

#endif
