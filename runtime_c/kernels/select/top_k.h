/* top_k: the largest or smallest elements along an axis, and where they are. The best of a row so far, if they are few,
 * are a sorted list; else a heap holds them, the worst at its root, and is sorted at the end. The few best of many
 * floats are found with vectors. A unit is one row; its scratch is the heap, of positions. */
#ifndef TINYCOMP_KERNELS_SELECT_TOP_K_H
#define TINYCOMP_KERNELS_SELECT_TOP_K_H

#include "vocabulary.h"

#include "../common/number.h"
#include "few_least_f32.h"

enum { TOP_VALUES, TOP_INDICES, TOP_X };

/* In a list of so many, those that come behind a new element are moved sooner than a heap is mended. */
enum { TOP_FEW = 16 };

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
  prepare->scratch_bytes = TC_PRODUCT(prepare, p->k, sizeof(int64_t));
  prepare->cost = 8.0 * (double)count;
}

/* One row of elements that are `step` apart. A heap of `size` positions in which no parent comes before its children;
 * NaN comes last, and of equals the first comes first. */
#define TC_NUMBER(kind, type, wide)                                                                                    \
  TC_INLINE bool top_before_##kind(const type *x, int64_t step, bool largest, int64_t a, int64_t b) {                  \
    const type left = x[a * step], right = x[b * step];                                                                \
    if (left == right || (left != left && right != right)) {                                                           \
      return a < b;                                                                                                    \
    }                                                                                                                  \
    return right != right || (largest ? left > right : left < right);                                                  \
  }                                                                                                                    \
  static void top_sink_##kind(const type *x, int64_t step, const tc_top_k_params *p, bool by_index, int64_t *heap,     \
                              int64_t size, int64_t root) {                                                            \
    const int64_t moved = heap[root];                                                                                  \
    for (int64_t child; (child = 2 * root + 1) < size; root = child) {                                                 \
      if (child + 1 < size && (by_index ? heap[child] < heap[child + 1]                                                \
                                        : top_before_##kind(x, step, p->largest, heap[child], heap[child + 1]))) {     \
        child++;                                                                                                       \
      }                                                                                                                \
      if (!(by_index ? moved < heap[child] : top_before_##kind(x, step, p->largest, moved, heap[child]))) {            \
        break;                                                                                                         \
      }                                                                                                                \
      heap[root] = heap[child];                                                                                        \
    }                                                                                                                  \
    heap[root] = moved;                                                                                                \
  }                                                                                                                    \
  static void top_make_##kind(const type *x, int64_t step, const tc_top_k_params *p, bool by_index, int64_t *heap) {   \
    for (int64_t i = p->k / 2; i-- > 0;) {                                                                             \
      top_sink_##kind(x, step, p, by_index, heap, p->k, i);                                                            \
    }                                                                                                                  \
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
  static void top_row_##kind(const tc_top_k_params *p, const type *x, type *values, int64_t *indices, int64_t *heap) { \
    const int64_t step = p->inner;                                                                                     \
    if (p->sorted && p->k <= TOP_FEW) {                                                                                \
      top_few_##kind(p, x, values, indices);                                                                           \
      return;                                                                                                          \
    }                                                                                                                  \
    for (int64_t i = 0; i < p->k; i++) {                                                                               \
      heap[i] = i;                                                                                                     \
    }                                                                                                                  \
    top_make_##kind(x, step, p, false, heap);                                                                          \
    type worst = x[heap[0] * step];                                                                                    \
    for (int64_t i = p->k; i < p->axis; i++) {                                                                         \
      const type new = x[i * step];                                                                                    \
      if (worst == worst && !(p->largest ? new > worst : new < worst)) {                                               \
        continue; /* most come behind the worst: equals and NaN, too */                                                \
      }                                                                                                                \
      if (top_before_##kind(x, step, p->largest, i, heap[0])) {                                                        \
        heap[0] = i;                                                                                                   \
        top_sink_##kind(x, step, p, false, heap, p->k, 0);                                                             \
        worst = x[heap[0] * step];                                                                                     \
      }                                                                                                                \
    }                                                                                                                  \
    if (!p->sorted) {                                                                                                  \
      top_make_##kind(x, step, p, true, heap);                                                                         \
    }                                                                                                                  \
    for (int64_t size = p->k; size-- > 0;) {                                                                           \
      const int64_t worst = heap[0];                                                                                   \
      heap[0] = heap[size];                                                                                            \
      top_sink_##kind(x, step, p, !p->sorted, heap, size, 0);                                                          \
      values[size * step] = x[worst * step];                                                                           \
      indices[size * step] = worst;                                                                                    \
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
