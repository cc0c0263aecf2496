/* pad: a tensor with borders made of its own elements. A unit is one row of the result along the last padded dimension;
 * what lies behind that dimension moves as one block. */
#ifndef TINYCOMP_KERNELS_COPY_PAD_H
#define TINYCOMP_KERNELS_COPY_PAD_H

#include "vocabulary.h"

enum { PAD_Y, PAD_X };

static const int64_t PAD_FARTHEST = (int64_t)1 << 40;

/* The dimensions up to the last padded one, and the bytes of a block behind it. */
typedef struct pad_plan {
  int dims;
  int64_t sizes[TC_ND_DIMS], before[TC_ND_DIMS], results[TC_ND_DIMS];
  int64_t strides[TC_ND_DIMS]; /* of the operand, in bytes */
  int64_t block;
} pad_plan;

static pad_plan pad_plan_of(const tc_pad_params *p) {
  pad_plan plan = {.block = p->element_size};
  const int64_t *sizes = TC_EIGHT(p, size), *before = TC_EIGHT(p, before), *after = TC_EIGHT(p, after);
  for (int i = 0; i < TC_ND_DIMS; i++) {
    plan.sizes[i] = sizes[i];
    plan.before[i] = before[i];
    plan.results[i] = before[i] + sizes[i] + after[i];
    if (before[i] || after[i] || !plan.dims) {
      plan.dims = i + 1;
    }
  }
  int64_t bytes = p->element_size;
  for (int i = TC_ND_DIMS - 1; i >= 0; i--) {
    plan.strides[i] = bytes;
    bytes *= sizes[i];
  }
  plan.block = plan.strides[plan.dims - 1];
  return plan;
}

/* Which element of a dimension of `size` stands at a place that may lie outside of it. */
static int64_t pad_source(int64_t mode, int64_t place, int64_t size) {
  if (place >= 0 && place < size) {
    return place;
  }
  if (mode == TC_PAD_EDGE) {
    return tc_min(tc_max(place, 0), size - 1);
  }
  if (size == 1) {
    return 0;
  }
  const int64_t period = mode == TC_PAD_REFLECT ? 2 * (size - 1) : size;
  const int64_t within = (place % period + period) % period;
  return within < size ? within : period - within;
}

static void TC_NAME(tc_pad_prepare)(tc_prepare *prepare) {
  const tc_pad_params *p = prepare->params;
  const int64_t size = p->element_size;
  const int64_t *sizes = TC_EIGHT(p, size), *before = TC_EIGHT(p, before), *after = TC_EIGHT(p, after);
  TC_REQUIRE(prepare, size == 1 || size == 2 || size == 4 || size == 8, "elements of %lld bytes cannot be padded",
             (long long)size);
  TC_REQUIRE(prepare, p->mode >= TC_PAD_EDGE && p->mode <= TC_PAD_WRAP, "there is no padding mode %lld",
             (long long)p->mode);
  int64_t results[TC_ND_DIMS];
  for (int i = 0; i < TC_ND_DIMS; i++) {
    TC_REQUIRE(prepare, sizes[i] >= 0 && sizes[i] <= PAD_FARTHEST, "dimension %d has size %lld", i,
               (long long)sizes[i]);
    TC_REQUIRE(prepare,
               before[i] >= -PAD_FARTHEST && before[i] <= PAD_FARTHEST && after[i] >= -PAD_FARTHEST &&
                   after[i] <= PAD_FARTHEST && before[i] + sizes[i] + after[i] >= 0,
               "dimension %d of %lld elements is padded by %lld and %lld", i, (long long)sizes[i], (long long)before[i],
               (long long)after[i]);
    results[i] = before[i] + sizes[i] + after[i];
    TC_REQUIRE(prepare, sizes[i] || (!before[i] && !after[i]), "dimension %d is empty: there is nothing to pad from",
               i);
  }
  const int64_t count = tc_product(prepare, results, TC_ND_DIMS);
  tc_touch(prepare, PAD_Y, count, (int)size);
  tc_touch(prepare, PAD_X, tc_product(prepare, sizes, TC_ND_DIMS), (int)size);
  if (tc_refused(prepare) || !count) {
    return;
  }
  const pad_plan plan = pad_plan_of(p);
  prepare->units = tc_product(prepare, plan.results, plan.dims - 1);
  prepare->cost = (double)count * (double)size;
}

/* Blocks of a literal number of bytes, or of `block` if that is 0. */
TC_INLINE void pad_blocks_of(const size_t literal, char *to, const char *row, const pad_plan *plan, int64_t mode,
                             int64_t place, int64_t count) {
  const int64_t size = plan->sizes[plan->dims - 1], block = literal ? (int64_t)literal : plan->block;
  for (int64_t i = 0; i < count; i++) {
    memcpy(to + i * block, row + pad_source(mode, place + i, size) * block, (size_t)block);
  }
}

static void pad_blocks(char *to, const char *row, const pad_plan *plan, int64_t mode, int64_t place, int64_t count) {
  if (plan->block == 4) {
    pad_blocks_of(4, to, row, plan, mode, place, count);
  } else {
    pad_blocks_of(0, to, row, plan, mode, place, count);
  }
}

/* A row of the result by its place along each dimension but the last. */
typedef struct pad_walk {
  int64_t places[TC_ND_DIMS];
  const char *rows[TC_ND_DIMS]; /* what each place, with those before it, stands for in the operand */
} pad_walk;

/* Finds the operand's elements for the places along the dimensions from `first` on. */
static void pad_point(pad_walk *walk, const pad_plan *plan, int64_t mode, const char *x, int first) {
  for (int i = first; i < plan->dims - 1; i++) {
    const int64_t source = pad_source(mode, walk->places[i] - plan->before[i], plan->sizes[i]);
    walk->rows[i] = (i ? walk->rows[i - 1] : x) + source * plan->strides[i];
  }
}

/* Goes to the next row; returns the first dimension whose place is another one. */
static int pad_next(pad_walk *walk, const pad_plan *plan) {
  int i = plan->dims - 2;
  while (i > 0 && walk->places[i] + 1 == plan->results[i]) {
    walk->places[i--] = 0;
  }
  if (i >= 0) {
    walk->places[i]++;
  }
  return i > 0 ? i : 0;
}

static void TC_NAME(tc_pad)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_pad_params *p = call->params;
  const pad_plan plan = pad_plan_of(p);
  const int last = plan.dims - 1;
  const int64_t before = plan.before[last], width = plan.results[last];
  const int64_t left = tc_min(tc_max(before, 0), width);
  const int64_t right = tc_min(before + plan.sizes[last], width); /* where the operand's own elements end */
  const int64_t inside = tc_max(right, left);
  const char *x = call->operands[PAD_X];
  pad_walk walk = {.places = {0}};
  for (int64_t i = last - 1, rest = begin; i >= 0; i--) {
    walk.places[i] = rest % plan.results[i];
    rest /= plan.results[i];
  }
  for (int64_t unit = begin, first = 0; unit < end; unit++) {
    pad_point(&walk, &plan, p->mode, x, (int)first);
    const char *row = last ? walk.rows[last - 1] : x;
    char *y = (char *)call->operands[PAD_Y] + unit * width * plan.block;
    pad_blocks(y, row, &plan, p->mode, -before, left);
    memcpy(y + left * plan.block, row + (left - before) * plan.block, (size_t)((inside - left) * plan.block));
    pad_blocks(y + inside * plan.block, row, &plan, p->mode, inside - before, width - inside);
    first = unit + 1 < end ? pad_next(&walk, &plan) : 0;
  }
}

#endif
