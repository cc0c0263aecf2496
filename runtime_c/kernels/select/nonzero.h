/* nonzero: the positions of the elements other than zero. A unit is a segment. */
#ifndef TINYCOMP_KERNELS_SELECT_NONZERO_H
#define TINYCOMP_KERNELS_SELECT_NONZERO_H

#include "vocabulary.h"

enum { NONZERO_POSITIONS, NONZERO_COUNTS, NONZERO_X };

static void TC_NAME(tc_nonzero_prepare)(tc_prepare *prepare) {
  const tc_nonzero_params *p = prepare->params;
  const int64_t size = p->element_size;
  TC_REQUIRE(prepare, size == 1 || size == 2 || size == 4 || size == 8, "no elements have %lld bytes", (long long)size);
  TC_REQUIRE(prepare, p->is_float == 0 || p->is_float == 1, "is_float must be 0 or 1");
  TC_REQUIRE(prepare, p->room > 0, "segments of %lld elements", (long long)p->room);
  tc_touch(prepare, NONZERO_X, p->elements, size);
  if (tc_refused(prepare)) {
    return;
  }
  const int64_t segments = tc_ceil_div(p->elements, p->room);
  tc_touch(prepare, NONZERO_POSITIONS, TC_PRODUCT(prepare, segments, p->room), sizeof(int64_t));
  tc_counted(prepare, NONZERO_POSITIONS, NONZERO_COUNTS, 0);
  tc_touch(prepare, NONZERO_COUNTS, segments, sizeof(int64_t));
  prepare->units = segments;
  prepare->cost = 4.0 * (double)p->elements;
  prepare->work.integer_operations = (double)p->elements;
}

/* Every position is written, and kept if its element counts: no branch has to be foreseen. */
#define NONZERO_OF(bits, unsigned_type)                                                                           \
  TC_INLINE int64_t nonzero_##bits(const void *x, const bool is_float, int64_t begin, int64_t end, int64_t *to) { \
    const unsigned_type *from = x;                                                                                \
    int64_t count = 0;                                                                                            \
    for (int64_t i = begin; i < end; i++) {                                                                       \
      to[count] = i;                                                                                              \
      count += (unsigned_type)(from[i] << is_float) != 0;                                                         \
    }                                                                                                             \
    return count;                                                                                                 \
  }
NONZERO_OF(8, uint8_t)
NONZERO_OF(16, uint16_t)
NONZERO_OF(32, uint32_t)
NONZERO_OF(64, uint64_t)
#undef NONZERO_OF

TC_INLINE int64_t nonzero_find(const tc_nonzero_params *p, const void *x, int64_t begin, int64_t end, int64_t *to) {
  switch (p->element_size) {
    case 1:
      return p->is_float ? nonzero_8(x, true, begin, end, to) : nonzero_8(x, false, begin, end, to);
    case 2:
      return p->is_float ? nonzero_16(x, true, begin, end, to) : nonzero_16(x, false, begin, end, to);
    case 4:
      return p->is_float ? nonzero_32(x, true, begin, end, to) : nonzero_32(x, false, begin, end, to);
    default:
      return p->is_float ? nonzero_64(x, true, begin, end, to) : nonzero_64(x, false, begin, end, to);
  }
}

static void TC_NAME(tc_nonzero)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_nonzero_params *p = call->params;
  int64_t *positions = call->operands[NONZERO_POSITIONS], *counts = call->operands[NONZERO_COUNTS];
  for (int64_t segment = begin; segment < end; segment++) {
    const int64_t first = segment * p->room, behind = tc_min(first + p->room, p->elements);
    counts[segment] = nonzero_find(p, call->operands[NONZERO_X], first, behind, positions + first);
  }
}

#endif
