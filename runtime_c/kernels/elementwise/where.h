/* Choice between two sources of 1, 2, 4 or 8 byte elements by a condition of bytes. */
#ifndef TINYCOMP_KERNELS_ELEMENTWISE_WHERE_H
#define TINYCOMP_KERNELS_ELEMENTWISE_WHERE_H

#include "vocabulary.h"

#include "rows.h"

#define WHERE_ROW(type)                                        \
  static void where_##type(const element_rows *rows) {         \
    type *restrict to = rows->to;                              \
    const uint8_t *condition = rows->x;                        \
    const type *a = rows->y, *b = rows->z;                     \
    const int64_t count = rows->count;                         \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < count; i++) { \
      const type yes = a[i], no = b[i];                        \
      to[i] = condition[i] ? yes : no;                         \
    }                                                          \
  }
WHERE_ROW(uint8_t)
WHERE_ROW(uint16_t)
WHERE_ROW(uint32_t)
WHERE_ROW(uint64_t)
#undef WHERE_ROW

static element_fn where_find(int size) {
  return size == 1 ? where_uint8_t : size == 2 ? where_uint16_t : size == 4 ? where_uint32_t : where_uint64_t;
}

#endif
