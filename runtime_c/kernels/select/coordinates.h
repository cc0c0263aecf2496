/* coordinates: the positions that were found in segments, side by side and as tuples of indices. A unit is a segment.
 */
#ifndef TINYCOMP_KERNELS_SELECT_COORDINATES_H
#define TINYCOMP_KERNELS_SELECT_COORDINATES_H

#include "vocabulary.h"

enum { COORDINATES_Y, COORDINATES_COUNT, COORDINATES_POSITIONS, COORDINATES_COUNTS };

static void TC_NAME(tc_coordinates_prepare)(tc_prepare *prepare) {
  const tc_coordinates_params *p = prepare->params;
  tc_product(prepare, TC_EIGHT(p, size), TC_ND_DIMS);
  TC_REQUIRE(prepare, p->rank >= 1 && p->rank <= TC_ND_DIMS, "a tensor of %lld dimensions has no coordinates here",
             (long long)p->rank);
  const int64_t positions = TC_PRODUCT(prepare, p->segments, p->room);
  tc_touch(prepare, COORDINATES_Y, TC_PRODUCT(prepare, positions, p->rank), sizeof(int64_t));
  tc_counted(prepare, COORDINATES_Y, COORDINATES_COUNT, p->rank * (int64_t)sizeof(int64_t));
  tc_touch(prepare, COORDINATES_COUNT, 1, sizeof(int64_t));
  tc_touch(prepare, COORDINATES_POSITIONS, positions, sizeof(int64_t));
  tc_counted(prepare, COORDINATES_POSITIONS, COORDINATES_COUNTS, 0);
  tc_touch(prepare, COORDINATES_COUNTS, p->segments, sizeof(int64_t));
  prepare->units = tc_max(p->segments, 1); /* the count is wanted all the same */
  prepare->cost = 8.0 * (double)positions;
}

/* How many positions a segment has; a count that nobody could have written counts as none. */
TC_INLINE int64_t coordinates_count(const tc_coordinates_params *p, const int64_t *counts, int64_t segment) {
  return counts[segment] < 0 || counts[segment] > p->room ? 0 : counts[segment];
}

/* The indices of a position, last one first; one behind the end, which nobody could have written, wraps around. */
TC_INLINE void coordinates_tuple(const int64_t *sizes, int64_t rank, int64_t position, int64_t *to) {
  uint64_t rest = (uint64_t)position;
  for (int64_t i = rank; i-- > 0;) {
    const uint64_t size = (uint64_t)tc_max(sizes[TC_ND_DIMS - rank + i], 1);
    to[i] = (int64_t)(rest % size);
    rest /= size;
  }
}

static void TC_NAME(tc_coordinates)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_coordinates_params *p = call->params;
  const int64_t *sizes = TC_EIGHT(p, size), *counts = call->operands[COORDINATES_COUNTS];
  int64_t row = 0;
  for (int64_t segment = 0; segment < tc_min(begin, p->segments); segment++) {
    row += coordinates_count(p, counts, segment);
  }
  int64_t *y = (int64_t *)call->operands[COORDINATES_Y] + row * p->rank;
  for (int64_t segment = begin; segment < tc_min(end, p->segments); segment++) {
    const int64_t *positions = (const int64_t *)call->operands[COORDINATES_POSITIONS] + segment * p->room;
    const int64_t count = coordinates_count(p, counts, segment);
    for (int64_t i = 0; i < count; i++, y += p->rank) {
      coordinates_tuple(sizes, p->rank, positions[i], y);
    }
    row += count;
  }
  if (end >= p->segments) {
    *(int64_t *)call->operands[COORDINATES_COUNT] = row;
  }
}

#endif
