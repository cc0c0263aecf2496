/* det: determinants by elimination with partial pivoting, in double. A unit is one matrix. Scratch: the matrix. */
#ifndef TINYCOMP_KERNELS_CLASSICAL_DET_H
#define TINYCOMP_KERNELS_CLASSICAL_DET_H

#include "vocabulary.h"

enum { DET_Y, DET_X };

static void TC_NAME(tc_det_prepare)(tc_prepare *prepare) {
  const tc_det_params *p = prepare->params;
  TC_REQUIRE(prepare, p->type == TC_TYPE_F32 || p->type == TC_TYPE_F64, "no determinants of numbers of type %lld",
             (long long)p->type);
  const int size = p->type == TC_TYPE_F32 ? sizeof(float) : sizeof(double);
  const int64_t steps = TC_PRODUCT(prepare, p->batch, p->n, p->n, p->n);
  tc_touch(prepare, DET_Y, p->batch, size);
  tc_touch(prepare, DET_X, TC_PRODUCT(prepare, p->batch, p->n, p->n), size);
  prepare->scratch_bytes = TC_PRODUCT(prepare, p->n, p->n, sizeof(double));
  if (tc_refused(prepare)) {
    return;
  }
  prepare->units = p->batch;
  prepare->cost = prepare->work.flops = (double)steps;
}

/* The determinant of a matrix, which is overwritten. */
static double det_of(double *a, int64_t n) {
  double product = 1.0;
  for (int64_t k = 0; k < n; k++) {
    int64_t pivot = k;
    for (int64_t i = k + 1; i < n; i++) {
      pivot = fabs(a[i * n + k]) > fabs(a[pivot * n + k]) ? i : pivot;
    }
    const double lead = a[pivot * n + k];
    product *= pivot == k ? lead : -lead;
    if (lead == 0.0) {
      return lead != lead ? lead : 0.0;
    }
    for (int64_t j = k; j < n && pivot != k; j++) {
      const double other = a[k * n + j];
      a[k * n + j] = a[pivot * n + j];
      a[pivot * n + j] = other;
    }
    for (int64_t i = k + 1; i < n; i++) {
      const double factor = a[i * n + k] / lead;
      for (int64_t j = k + 1; j < n; j++) {
        a[i * n + j] -= factor * a[k * n + j];
      }
    }
  }
  return product;
}

static void TC_NAME(tc_det)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_det_params *p = call->params;
  const int64_t elements = p->n * p->n;
  double *matrix = call->scratch;
  for (int64_t unit = begin; unit < end; unit++) {
    if (p->type == TC_TYPE_F64) {
      memcpy(matrix, (const double *)call->operands[DET_X] + unit * elements, (size_t)elements * sizeof(double));
      ((double *)call->operands[DET_Y])[unit] = det_of(matrix, p->n);
      continue;
    }
    const float *x = (const float *)call->operands[DET_X] + unit * elements;
    for (int64_t i = 0; i < elements; i++) {
      matrix[i] = (double)x[i];
    }
    ((float *)call->operands[DET_Y])[unit] = (float)det_of(matrix, p->n);
  }
}

#endif
