/* group_slices: which slices along an axis are equal. They are sorted by a stable merge sort of their numbers, or
 * by their keys if they have one element each, in one unit. Scratch: the numbers or the keys, twice. */
#ifndef TINYCOMP_KERNELS_SELECT_GROUP_SLICES_H
#define TINYCOMP_KERNELS_SELECT_GROUP_SLICES_H

#include "vocabulary.h"

#include "../cast/half.h"
#include "../common/number.h"
#include "radix.h"

enum { GROUP_FIRST, GROUP_RANK, GROUP_X };

static int group_size(int64_t type) {
  const bool half = type == TC_TYPE_F16 || type == TC_TYPE_BF16;
  return half ? 2 : type == TC_TYPE_BOOL ? 1 : tc_number_size(type);
}

static bool group_has_keys(const tc_group_slices_params *p) { return p->outer == 1 && p->inner == 1; }

static void TC_NAME(tc_group_slices_prepare)(tc_prepare *prepare) {
  const tc_group_slices_params *p = prepare->params;
  const int size = group_size(p->type);
  TC_REQUIRE(prepare, size, "numbers of type %lld cannot be compared", (long long)p->type);
  const int64_t elements = TC_PRODUCT(prepare, p->outer, p->count, p->inner);
  tc_touch(prepare, GROUP_FIRST, p->count, sizeof(int64_t));
  tc_touch(prepare, GROUP_RANK, p->count, sizeof(int64_t));
  tc_touch(prepare, GROUP_X, elements, size);
  prepare->scratch_bytes = TC_PRODUCT(prepare, 2, p->count, group_has_keys(p) ? sizeof(radix_record) : sizeof(int64_t));
  if (tc_refused(prepare)) {
    return;
  }
  prepare->units = p->count ? 1 : 0;
  prepare->cost = 8.0 * (double)elements;
  prepare->work.integer_operations = (double)elements;
}

/* Whether one slice comes before (-1), is equal to (0) or comes behind (1) another; NaN comes last and equals NaN. */
#define GROUP_COMPARE(kind, type, value, number)                                                             \
  static int group_compare_##kind(const tc_group_slices_params *p, const void *from, int64_t i, int64_t k) { \
    const type *x = (const type *)from + i * p->inner, *y = (const type *)from + k * p->inner;               \
    for (int64_t outer = 0; outer < p->outer; outer++) {                                                     \
      for (int64_t inner = 0; inner < p->inner; inner++) {                                                   \
        const number a = value(x[inner]), b = value(y[inner]);                                               \
        const int order = (a > b) - (a < b) + (a != a) - (b != b);                                           \
        if (order) {                                                                                         \
          return order;                                                                                      \
        }                                                                                                    \
      }                                                                                                      \
      x += p->count * p->inner;                                                                              \
      y += p->count * p->inner;                                                                              \
    }                                                                                                        \
    return 0;                                                                                                \
  }
#define GROUP_SELF(x) (x)
#define TC_NUMBER(kind, type, wide) GROUP_COMPARE(kind, type, GROUP_SELF, type)
TC_NUMBER_LIST
#undef TC_NUMBER
GROUP_COMPARE(F16, uint16_t, tc_f32_of_f16, float)
GROUP_COMPARE(BF16, uint16_t, tc_f32_of_bf16, float)
#undef GROUP_SELF
#undef GROUP_COMPARE

typedef int (*group_compare_fn)(const tc_group_slices_params *p, const void *from, int64_t i, int64_t k);

/* Merges two sorted runs of numbers of slices. */
static void group_merge(const tc_group_slices_params *p, group_compare_fn compare, const void *from,
                        const int64_t *left, const int64_t *middle, const int64_t *end, int64_t *to) {
  const int64_t *right = middle, *left_end = middle;
  while (left < left_end && right < end) {
    *to++ = compare(p, from, *right, *left) < 0 ? *right++ : *left++;
  }
  memcpy(to, left, (size_t)(left_end - left) * sizeof(int64_t));
  memcpy(to + (left_end - left), right, (size_t)(end - right) * sizeof(int64_t));
}

/* Sorts, then numbers the groups in their order; the first of a group is the first to be sorted, too. */
static __attribute__((noinline)) void group_sort(const tc_group_slices_params *p, group_compare_fn compare,
                                                 const void *from, int64_t *order, int64_t *other, int64_t *first,
                                                 int64_t *rank) {
  for (int64_t i = 0; i < p->count; i++) {
    order[i] = i;
  }
  for (int64_t run = 1; run < p->count; run *= 2) {
    for (int64_t begin = 0; begin < p->count; begin += 2 * run) {
      const int64_t middle = tc_min(begin + run, p->count), end = tc_min(begin + 2 * run, p->count);
      group_merge(p, compare, from, order + begin, order + middle, order + end, other + begin);
    }
    int64_t *sorted = other;
    other = order;
    order = sorted;
  }
  int64_t groups = 0, lead = order[0];
  for (int64_t i = 0; i < p->count; i++) {
    if (i && compare(p, from, order[i - 1], order[i]) != 0) {
      groups++;
      lead = order[i];
    }
    first[order[i]] = lead;
    rank[order[i]] = groups;
  }
}

/* Numbers the groups of slices of one element, whose keys are there. */
static void group_records(radix_record *records, int64_t count, int64_t *first, int64_t *rank) {
  const radix_record *sorted = radix_sort(records, records + count, count);
  int64_t groups = 0, lead = sorted[0].place;
  for (int64_t i = 0; i < count; i++) {
    if (i && sorted[i].key != sorted[i - 1].key) {
      groups++;
      lead = sorted[i].place;
    }
    first[sorted[i].place] = lead;
    rank[sorted[i].place] = groups;
  }
}

#define GROUP_SORT(kind, type, key)                                                                               \
  static void group_sort_##kind(const tc_group_slices_params *p, const void *from, void *scratch, int64_t *first, \
                                int64_t *rank) {                                                                  \
    if (!group_has_keys(p)) {                                                                                     \
      int64_t *order = scratch;                                                                                   \
      group_sort(p, group_compare_##kind, from, order, order + p->count, first, rank);                            \
      return;                                                                                                     \
    }                                                                                                             \
    radix_record *records = scratch;                                                                              \
    for (int64_t i = 0; i < p->count; i++) {                                                                      \
      const type x = ((const type *)from)[i];                                                                     \
      records[i] = (radix_record){key, i};                                                                        \
    }                                                                                                             \
    group_records(records, p->count, first, rank);                                                                \
  }
#define TC_NUMBER(kind, type, wide) GROUP_SORT(kind, type, radix_key_##kind(x))
TC_NUMBER_LIST
#undef TC_NUMBER
GROUP_SORT(F16, uint16_t, radix_key_F32(tc_f32_of_f16(x)))
GROUP_SORT(BF16, uint16_t, radix_key_F32(tc_f32_of_bf16(x)))
#undef GROUP_SORT

static void TC_NAME(tc_group_slices)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_group_slices_params *p = call->params;
  int64_t *first = call->operands[GROUP_FIRST], *rank = call->operands[GROUP_RANK];
  if (begin >= end) {
    return;
  }
  switch (p->type == TC_TYPE_BOOL ? TC_TYPE_U8 : p->type) {
#define TC_NUMBER(kind, type, wide)                                            \
  case TC_TYPE_##kind:                                                         \
    group_sort_##kind(p, call->operands[GROUP_X], call->scratch, first, rank); \
    break;
    TC_NUMBER_LIST
    TC_NUMBER(F16, , )
    TC_NUMBER(BF16, , )
#undef TC_NUMBER
  }
}

#endif
