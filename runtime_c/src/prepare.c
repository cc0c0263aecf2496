/* What the prepare hooks of kernels call. */
#include <math.h>

#include "nd.h"

TC_HOOK void tc_share(tc_prepare *prepare, const int64_t *figures, int count) {
  prepare->shareable = count <= TC_MAX_SHARED;
  for (int i = 0; i < count && prepare->shareable; i++) {
    prepare->shared[i] = figures[i];
  }
}

TC_HOOK bool tc_refused(const tc_prepare *prepare) { return prepare->error->code != TC_OK; }

TC_HOOK int64_t tc_product(tc_prepare *prepare, const int64_t *factors, int count) {
  int64_t product = 1;
  bool zero = false;
  for (int i = 0; i < count; i++) {
    if (factors[i] < 0) {
      tc_refuse(prepare, "a size is negative: %lld", (long long)factors[i]);
      return 0;
    }
    zero |= factors[i] == 0;
    if (factors[i] > 0 && (__builtin_mul_overflow(product, factors[i], &product) || product > TC_MAX_BYTES)) {
      tc_refuse(prepare, "a size is too large: the product of dimensions passes 2^48");
      return 0;
    }
  }
  return zero ? 0 : product;
}

TC_HOOK int64_t tc_span(tc_prepare *prepare, int64_t rows, int64_t stride, int64_t columns) {
  if (rows <= 0 || columns <= 0) {
    return 0;
  }
  return TC_PRODUCT(prepare, rows - 1, stride) + TC_PRODUCT(prepare, columns);
}

TC_HOOK void tc_touch(tc_prepare *prepare, int operand, int64_t elements, int element_size) {
  prepare->extents[operand] = TC_PRODUCT(prepare, elements, element_size);
  prepare->alignments[operand] = element_size;
  prepare->moved[operand] = (double)prepare->extents[operand];
  prepare->reaches[operand] = (tc_reach){.rows = 1, .columns = prepare->extents[operand]};
}

TC_HOOK void tc_touch_rows(tc_prepare *prepare, int operand, int64_t rows, int64_t stride, int64_t columns,
                           int element_size) {
  tc_touch(prepare, operand, tc_span(prepare, rows, stride, columns), element_size);
  tc_move(prepare, operand, TC_COUNT(rows, columns), element_size);
  if (prepare->extents[operand] > 0 && rows > 1 && stride > columns && !tc_refused(prepare)) {
    prepare->reaches[operand] =
        (tc_reach){.rows = rows, .stride = stride * element_size, .columns = columns * element_size};
  }
}

TC_HOOK tc_reach tc_reach_of(const int64_t *sizes, const int64_t *strides, int dimensions, int element_size) {
  int64_t columns = 1, rows = 1, stride = 0;
  bool taken[TC_ND_DIMS] = {false};
  for (int turn = 0; turn < dimensions; turn++) {
    int least = -1;
    for (int i = 0; i < dimensions; i++) {
      least = !taken[i] && sizes[i] > 1 && strides[i] && (least < 0 || strides[i] < strides[least]) ? i : least;
    }
    if (least < 0) {
      break;
    }
    taken[least] = true;
    if (rows == 1 && strides[least] == columns) {
      columns *= sizes[least];
    } else if (rows == 1 && strides[least] > columns) {
      rows = sizes[least];
      stride = strides[least];
    } else if (rows > 1 && strides[least] == rows * stride) {
      rows *= sizes[least];
    } else {
      return (tc_reach){.rows = -1};
    }
  }
  return (tc_reach){.rows = rows, .stride = stride * element_size, .columns = columns * element_size};
}

TC_HOOK void tc_touch_matrices(tc_prepare *prepare, int operand, const int64_t sizes[4], const int64_t strides[4],
                               int element_size) {
  int64_t last = 0;
  bool empty = false;
  for (int i = 0; i < 4; i++) {
    empty |= sizes[i] <= 0;
    last += sizes[i] > 0 ? TC_PRODUCT(prepare, sizes[i] - 1, strides[i]) : 0;
  }
  tc_touch(prepare, operand, empty ? 0 : last + 1, element_size);
  tc_move(prepare, operand, tc_distinct(sizes, strides, 4), element_size);
  if (prepare->extents[operand] > 0 && !tc_refused(prepare)) {
    prepare->reaches[operand] = tc_reach_of(sizes, strides, 4, element_size);
  }
}

TC_HOOK double tc_count(const int64_t *factors, int count) {
  double product = 1;
  for (int i = 0; i < count; i++) {
    product *= (double)factors[i];
  }
  return product;
}

TC_HOOK double tc_distinct(const int64_t *sizes, const int64_t *strides, int dimensions) {
  double elements = 1;
  for (int i = 0; i < dimensions; i++) {
    elements *= (double)(strides[i] ? sizes[i] : tc_min(sizes[i], 1));
  }
  return elements;
}

TC_HOOK void tc_operate(tc_prepare *prepare, int64_t type, double operations) {
  const bool is_float = type <= TC_TYPE_BF16 || type >= TC_TYPE_F8E4M3FN;
  *(is_float ? &prepare->work.flops : &prepare->work.integer_operations) += operations;
}

TC_HOOK void tc_check_activation(tc_prepare *prepare, int64_t activation, float a, float b) {
  TC_REQUIRE(prepare, activation >= TC_ACT_NONE && activation <= TC_ACT_GELU_TANH, "there is no activation %lld",
             (long long)activation);
  TC_REQUIRE(prepare, !isnan(a) && !isnan(b), "an activation parameter is NaN");
}
