/* The few least of many floats, in order, without a branch that nobody can foresee.
 *
 * The floats are dealt to FEW_GROUPS groups; the k-th least of the groups' minima is above none of the k least floats
 * and, if they come in no order, above few others. All that are not above it are collected, and each is put where it
 * belongs: behind as many as are less, or equal and before it. */
#ifndef TINYCOMP_KERNELS_SELECT_FEW_LEAST_F32_H
#define TINYCOMP_KERNELS_SELECT_FEW_LEAST_F32_H

#include "vocabulary.h"

/* Of fewer floats too many would be collected; a list that overflows is given up. */
enum { FEW_MOST = 16, FEW_GROUPS = 32, FEW_LEAST_COUNT = 2 * FEW_GROUPS, FEW_COLLECTED = 32, FEW_STEP = 16 };

/* Vectors of the minima, and of the list. */
enum { FEW_VECTORS = FEW_GROUPS / TC_LANES };

/* How many of the first `count` of a list are less than each of it, or equal and before it, or equal at all. */
TC_INLINE void few_ranks(const float *list, int64_t count, const bool with_equals, float *ranks) {
  tc_vf values[FEW_VECTORS], found[FEW_VECTORS], places[FEW_VECTORS];
  const tc_vf zero = tc_vf_set1(0.0f), one = tc_vf_set1(1.0f);
  for (int v = 0; v < FEW_VECTORS; v++) {
    float numbers[TC_LANES];
    for (int i = 0; i < TC_LANES; i++) {
      numbers[i] = (float)(v * TC_LANES + i);
    }
    values[v] = tc_vf_load(list + v * TC_LANES);
    places[v] = tc_vf_load(numbers);
    found[v] = zero;
  }
  for (int64_t i = 0; i < count; i++) {
    const tc_vf value = tc_vf_set1(list[i]), place = tc_vf_set1((float)i);
    for (int v = 0; v < FEW_VECTORS; v++) {
      const tc_vf earlier = with_equals ? one : tc_vf_select(tc_vf_lt(place, places[v]), one, zero);
      const tc_vf equal = tc_vf_select(tc_vf_eq(value, values[v]), earlier, zero);
      found[v] = tc_vf_add(found[v], tc_vf_select(tc_vf_lt(value, values[v]), one, equal));
    }
  }
  for (int v = 0; v < FEW_VECTORS; v++) {
    tc_vf_store(ranks + v * TC_LANES, found[v]);
  }
}

/* A number that at least k of the floats, times a sign, do not exceed; infinity if it is none. */
TC_INLINE float few_limit(const float *x, int64_t count, float sign, int64_t k) {
  float least[FEW_GROUPS], reached[FEW_GROUPS], limit = INFINITY;
  tc_vf minima[FEW_VECTORS];
  for (int v = 0; v < FEW_VECTORS; v++) {
    minima[v] = tc_vf_set1(INFINITY);
  }
  for (int64_t i = 0; i + FEW_GROUPS <= count; i += FEW_GROUPS) {
    for (int v = 0; v < FEW_VECTORS; v++) { /* NaN is less than nothing */
      const tc_vf value = tc_vf_mul(tc_vf_load(x + i + v * TC_LANES), tc_vf_set1(sign));
      minima[v] = tc_vf_select(tc_vf_lt(value, minima[v]), value, minima[v]);
    }
  }
  for (int v = 0; v < FEW_VECTORS; v++) {
    tc_vf_store(least + v * TC_LANES, minima[v]);
  }
  few_ranks(least, FEW_GROUPS, true, reached);
  for (int i = 0; i < FEW_GROUPS; i++) {
    const float candidate = reached[i] >= (float)k ? least[i] : INFINITY;
    limit = candidate < limit ? candidate : limit;
  }
  return limit;
}

/* Finds the k least of floats times a sign, 1 or -1, in order, the first of equals first, and where they are; false if
 * that is left to others. `count` is at least FEW_LEAST_COUNT and k at most FEW_MOST. */
static bool few_least(const float *x, int64_t count, float sign, int64_t k, float *values, int64_t *places) {
  const float limit = few_limit(x, count, sign, k);
  int64_t at[FEW_COLLECTED + FEW_STEP], collected = 0;
  for (int64_t i = 0; i < count && collected <= FEW_COLLECTED; i += FEW_STEP) {
    const int64_t end = tc_min(i + FEW_STEP, count);
    for (int64_t j = i; j < end; j++) {
      at[collected] = j;
      collected += sign * x[j] <= limit;
    }
  }
  if (collected < k || collected > FEW_COLLECTED) {
    return false;
  }
  float list[FEW_COLLECTED], ranks[FEW_COLLECTED];
  for (int64_t i = 0; i < FEW_COLLECTED; i++) {
    list[i] = i < collected ? sign * x[at[i]] : 0.0f;
  }
  few_ranks(list, collected, false, ranks);
  float best[FEW_MOST + 1];
  int64_t best_at[FEW_MOST + 1];
  for (int64_t i = 0; i < collected; i++) {
    const int64_t to = tc_min((int64_t)ranks[i], k); /* the last place is for all others */
    best[to] = sign * list[i];
    best_at[to] = at[i];
  }
  memcpy(values, best, (size_t)k * sizeof(*values));
  memcpy(places, best_at, (size_t)k * sizeof(*places));
  return true;
}

#endif
