/* inverse: inverses by Gauss-Jordan elimination with partial pivoting, in double. A unit is one matrix. Scratch: the
 * matrix and its inverse, row by row side by side. */
#ifndef TINYCOMP_KERNELS_CLASSICAL_INVERSE_H
#define TINYCOMP_KERNELS_CLASSICAL_INVERSE_H

#include "vocabulary.h"

enum { INVERSE_Y, INVERSE_X };

static void TC_NAME(tc_inverse_prepare)(tc_prepare *prepare) {
  const tc_inverse_params *p = prepare->params;
  TC_REQUIRE(prepare, p->type == TC_TYPE_F32 || p->type == TC_TYPE_F64, "no inverses of numbers of type %lld",
             (long long)p->type);
  const int size = p->type == TC_TYPE_F32 ? sizeof(float) : sizeof(double);
  const int64_t steps = TC_PRODUCT(prepare, 2, p->batch, p->n, p->n, p->n);
  tc_touch(prepare, INVERSE_Y, TC_PRODUCT(prepare, p->batch, p->n, p->n), size);
  tc_touch(prepare, INVERSE_X, TC_PRODUCT(prepare, p->batch, p->n, p->n), size);
  prepare->scratch_bytes = TC_PRODUCT(prepare, 2, p->n, p->n, sizeof(double));
  if (tc_refused(prepare)) {
    return;
  }
  prepare->units = p->batch;
  prepare->cost = prepare->work.flops = (double)steps;
}

/* Turn a matrix with the identity beside it, 2 n numbers a row, into the identity with the inverse beside it; return
 * whether there is one. */
static bool inverse_of(double *a, int64_t n) {
  const int64_t width = 2 * n;
  for (int64_t k = 0; k < n; k++) {
    int64_t pivot = k;
    for (int64_t i = k + 1; i < n; i++) {
      pivot = fabs(a[i * width + k]) > fabs(a[pivot * width + k]) ? i : pivot;
    }
    const double lead = a[pivot * width + k];
    if (!(fabs(lead) > 0.0)) {
      return false;
    }
    for (int64_t j = k; j < width; j++) {
      const double other = a[k * width + j];
      a[k * width + j] = a[pivot * width + j] / lead;
      a[pivot * width + j] = pivot == k ? a[k * width + j] : other;
    }
    for (int64_t i = 0; i < n; i++) {
      const double factor = a[i * width + k];
      for (int64_t j = k; j < width && i != k; j++) {
        a[i * width + j] -= factor * a[k * width + j];
      }
    }
  }
  return true;
}

static double TC_NAME(inverse_read)(const tc_inverse_params *p, const void *x, int64_t place) {
  return p->type == TC_TYPE_F64 ? ((const double *)x)[place] : (double)((const float *)x)[place];
}

static void TC_NAME(tc_inverse)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_inverse_params *p = call->params;
  const int64_t n = p->n;
  double *matrix = call->scratch;
  for (int64_t unit = begin; unit < end; unit++) {
    for (int64_t i = 0; i < n; i++) {
      for (int64_t j = 0; j < n; j++) {
        matrix[i * 2 * n + j] = TC_NAME(inverse_read)(p, call->operands[INVERSE_X], (unit * n + i) * n + j);
        matrix[i * 2 * n + n + j] = i == j ? 1.0 : 0.0;
      }
    }
    const bool exists = inverse_of(matrix, n);
    for (int64_t i = 0; i < n; i++) {
      for (int64_t j = 0; j < n; j++) {
        const int64_t place = (unit * n + i) * n + j;
        const double value = exists ? matrix[i * 2 * n + n + j] : (double)NAN;
        if (p->type == TC_TYPE_F64) {
          ((double *)call->operands[INVERSE_Y])[place] = value;
        } else {
          ((float *)call->operands[INVERSE_Y])[place] = (float)value;
        }
      }
    }
  }
}

#endif
