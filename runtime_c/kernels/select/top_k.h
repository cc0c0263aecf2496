/* top_k: the largest or smallest elements along an axis, and where they are. The best of a row so far, if they are few,
 * are a sorted list; else those better than the worst of them are collected, and sorted with them whenever there is no
 * more room. The few best of many floats are found with vectors. A unit is one row; its scratch is the records of what
 * is collected, twice. */
#ifndef TINYCOMP_KERNELS_SELECT_TOP_K_H
#define TINYCOMP_KERNELS_SELECT_TOP_K_H

#include "vocabulary.h"

#include "../common/number.h"
#include "few_least_f32.h"
#include "radix.h"

enum { TOP_VALUES, TOP_INDICES, TOP_X };

/* In a list of so many, those that come behind a new element are moved sooner than records are sorted. Of a block of
 * elements most often none is good enough. */
enum { TOP_FEW = 16, TOP_BLOCK = 16, TOP_ROOM = 64 };

/* Records that are collected until they are sorted. */
static int64_t top_room(const tc_top_k_params *p) { return tc_min(p->axis, p->k + tc_max(p->k, TOP_ROOM)); }

static void TC_NAME(tc_top_k_prepare)(tc_prepare *prepare) {
  const tc_top_k_params *p = prepare->params;
  const int size = tc_number_size(p->type);
  TC_REQUIRE(prepare, size, "numbers of type %lld cannot be compared", (long long)p->type);
  TC_REQUIRE(prepare, p->largest >= 0 && p->largest <= 1 && p->sorted >= 0 && p->sorted <= 1,
             "largest and sorted must be 0 or 1");
  TC_REQUIRE(prepare, p->k >= 0 && p->k <= p->axis, "k does not fit the axis");
  const int64_t results = TC_PRODUCT(prepare, p->outer, p->k, p->inner);
  tc_touch(prepare, TOP_VALUES, results, size);
  tc_touch(prepare, TOP_INDICES, results, sizeof(int64_t));
  const int64_t count = TC_PRODUCT(prepare, p->outer, p->axis, p->inner);
  tc_touch(prepare, TOP_X, count, size);
  tc_operate(prepare, p->type, (double)count);
  if (tc_refused(prepare) || results == 0) {
    return;
  }
  prepare->units = TC_PRODUCT(prepare, p->outer, p->inner);
  prepare->scratch_bytes = TC_PRODUCT(prepare, 2, top_room(p), sizeof(radix_record));
  prepare->cost = 8.0 * (double)count;
}

/* One row. NaN comes last, and of equals the first comes first. */
#define TC_NUMBER(kind, type, wide)                                                                                    \
  TC_INLINE bool top_is_better_##kind(const bool largest, type new, type worst) {                                      \
    return (largest ? new > worst : new < worst) | ((worst != worst) & (new == new));                                  \
  }                                                                                                                    \
  TC_INLINE radix_record top_record_##kind(bool largest, type x, int64_t place) {                                      \
    const uint64_t key = radix_key_##kind(x);                                                                          \
    return (radix_record){largest && x == x ? ~key : key, place};                                                      \
  }                                                                                                                    \
  /* The first of the blocks from element `i` on that has what is better than `worst`, or NaN, or is not whole. */     \
  TC_INLINE int64_t top_skip_##kind(const bool largest, const type *x, type worst, int64_t i, int64_t count) {         \
    for (; i + TOP_BLOCK <= count; i += TOP_BLOCK) {                                                                   \
      int any = 0;                                                                                                     \
      for (int64_t j = i; j < i + TOP_BLOCK; j++) {                                                                    \
        any |= largest ? !(x[j] <= worst) : !(x[j] >= worst);                                                          \
      }                                                                                                                \
      if (any) {                                                                                                       \
        break;                                                                                                         \
      }                                                                                                                \
    }                                                                                                                  \
    return i;                                                                                                          \
  }                                                                                                                    \
  /* Collects from element `i` on what is better than `worst`, as long as there is room; the element to go on from. */ \
  static int64_t top_collect_##kind(const tc_top_k_params *p, const type *x, type worst, int64_t i,                    \
                                    radix_record *records, int64_t *count) {                                           \
    const int64_t step = p->inner, room = top_room(p);                                                                 \
    int64_t found = *count;                                                                                            \
    while (i < p->axis && found + TOP_BLOCK <= room) {                                                                 \
      if (step == 1) {                                                                                                 \
        i = p->largest ? top_skip_##kind(true, x, worst, i, p->axis) : top_skip_##kind(false, x, worst, i, p->axis);   \
      }                                                                                                                \
      for (const int64_t end = tc_min(i + TOP_BLOCK, p->axis); i < end; i++) {                                         \
        records[found] = top_record_##kind(p->largest, x[i * step], i);                                                \
        found += top_is_better_##kind(p->largest, x[i * step], worst);                                                 \
      }                                                                                                                \
    }                                                                                                                  \
    *count = found;                                                                                                    \
    return i;                                                                                                          \
  }                                                                                                                    \
  static void top_few_##kind(const tc_top_k_params *p, const type *x, type *values, int64_t *indices) {                \
    type best[TOP_FEW];                                                                                                \
    int64_t places[TOP_FEW], count = 0;                                                                                \
    for (int64_t i = 0; i < p->axis; i++) {                                                                            \
      const type new = x[i * p->inner];                                                                                \
      if (count == p->k) {                                                                                             \
        const type worst = best[count - 1];                                                                            \
        if (!(p->largest ? new > worst : new < worst) && (worst == worst || new != new)) {                             \
          continue;                                                                                                    \
        }                                                                                                              \
      }                                                                                                                \
      int64_t at = count < p->k ? count++ : count - 1;                                                                 \
      for (; at > 0; at--) { /* behind equals, which came before */                                                    \
        const type other = best[at - 1];                                                                               \
        if (!(p->largest ? new > other : new < other) && (other == other || new != new)) {                             \
          break;                                                                                                       \
        }                                                                                                              \
        best[at] = other;                                                                                              \
        places[at] = places[at - 1];                                                                                   \
      }                                                                                                                \
      best[at] = new;                                                                                                  \
      places[at] = i;                                                                                                  \
    }                                                                                                                  \
    for (int64_t i = 0; i < p->k; i++) {                                                                               \
      values[i * p->inner] = best[i];                                                                                  \
      indices[i * p->inner] = places[i];                                                                               \
    }                                                                                                                  \
  }                                                                                                                    \
  static void top_row_##kind(const tc_top_k_params *p, const type *x, type *values, int64_t *indices, void *scratch) { \
    const int64_t step = p->inner, room = top_room(p);                                                                 \
    if (p->sorted && p->k <= TOP_FEW) {                                                                                \
      top_few_##kind(p, x, values, indices);                                                                           \
      return;                                                                                                          \
    }                                                                                                                  \
    radix_record *both[] = {scratch, (radix_record *)scratch + room}, *records = both[0];                              \
    int64_t i = 0, count;                                                                                              \
    for (; i < room; i++) {                                                                                            \
      records[i] = top_record_##kind(p->largest, x[i * step], i);                                                      \
    }                                                                                                                  \
    for (count = room;;) {                                                                                             \
      records = radix_sort(records, records == both[0] ? both[1] : both[0], count);                                    \
      if (i == p->axis) {                                                                                              \
        break;                                                                                                         \
      }                                                                                                                \
      const type worst = x[records[p->k - 1].place * step];                                                            \
      count = p->k;                                                                                                    \
      i = top_collect_##kind(p, x, worst, i, records, &count);                                                         \
    }                                                                                                                  \
    if (!p->sorted) {                                                                                                  \
      for (i = 0; i < p->k; i++) {                                                                                     \
        records[i].key = (uint64_t)records[i].place;                                                                   \
      }                                                                                                                \
      records = radix_sort(records, records == both[0] ? both[1] : both[0], p->k);                                     \
    }                                                                                                                  \
    for (i = 0; i < p->k; i++) {                                                                                       \
      values[i * step] = x[records[i].place * step];                                                                   \
      indices[i * step] = records[i].place;                                                                            \
    }                                                                                                                  \
  }
TC_NUMBER_LIST
#undef TC_NUMBER

/* Whether a row of floats is one for few_least_f32.h. */
static bool top_is_few_of_many(const tc_top_k_params *p) {
  return TC_LANES > 1 && p->type == TC_TYPE_F32 && p->inner == 1 && p->sorted && p->k <= FEW_MOST &&
         p->axis >= FEW_LEAST_COUNT;
}

static void TC_NAME(tc_top_k)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_top_k_params *p = call->params;
  for (int64_t unit = begin; unit < end; unit++) {
    const int64_t outer = unit / p->inner, column = unit % p->inner;
    const int64_t from = outer * p->axis * p->inner + column, to = outer * p->k * p->inner + column;
    int64_t *indices = (int64_t *)call->operands[TOP_INDICES] + to;
    if (top_is_few_of_many(p) &&
        few_least((const float *)call->operands[TOP_X] + from, p->axis, p->largest ? -1.0f : 1.0f, p->k,
                  (float *)call->operands[TOP_VALUES] + to, indices)) {
      continue;
    }
    switch (p->type) {
#define TC_NUMBER(kind, type, wide)                                                                                 \
  case TC_TYPE_##kind:                                                                                              \
    top_row_##kind(p, (const type *)call->operands[TOP_X] + from, (type *)call->operands[TOP_VALUES] + to, indices, \
                   call->scratch);                                                                                  \
    break;
      TC_NUMBER_LIST
#undef TC_NUMBER
    }
  }
}

#endif
