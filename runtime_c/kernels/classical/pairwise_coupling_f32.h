/* pairwise_coupling_f32: probabilities of classes from decisions about every two, as libsvm finds them. A unit is some
 * rows; its scratch is a matrix, the probabilities, and their product. */
#ifndef TINYCOMP_KERNELS_CLASSICAL_PAIRWISE_COUPLING_F32_H
#define TINYCOMP_KERNELS_CLASSICAL_PAIRWISE_COUPLING_F32_H

#include "vocabulary.h"

enum { COUPLING_Y, COUPLING_X, COUPLING_A, COUPLING_B };

enum { COUPLING_ROWS = 16, COUPLING_ROUNDS = 100, COUPLING_MOST = 1 << 15 };

static void TC_NAME(tc_pairwise_coupling_f32_prepare)(tc_prepare *prepare) {
  const tc_pairwise_coupling_f32_params *p = prepare->params;
  TC_REQUIRE(prepare, p->classes > 1 && p->classes < COUPLING_MOST, "%lld classes", (long long)p->classes);
  if (tc_refused(prepare)) {
    return;
  }
  const int64_t pairs = p->classes * (p->classes - 1) / 2;
  tc_touch(prepare, COUPLING_Y, TC_PRODUCT(prepare, p->rows, p->classes), sizeof(float));
  tc_touch(prepare, COUPLING_X, TC_PRODUCT(prepare, p->rows, pairs), sizeof(float));
  tc_touch(prepare, COUPLING_A, pairs, sizeof(float));
  tc_touch(prepare, COUPLING_B, pairs, sizeof(float));
  prepare->scratch_bytes = TC_PRODUCT(prepare, p->classes, p->classes + 2, sizeof(double));
  prepare->units = tc_refused(prepare) ? 0 : tc_ceil_div(p->rows, COUPLING_ROWS);
  prepare->cost = 100.0 * (double)p->rows * (double)pairs;
  prepare->work.flops = prepare->cost;
}

/* Fills in the matrix Q: its diagonal is the sum of the squares of what speaks for the others. */
static void coupling_matrix(int64_t classes, const float *x, const float *a, const float *b, double *q) {
  for (int64_t i = 0; i < classes; i++) {
    q[i * classes + i] = 0.0;
  }
  for (int64_t i = 0; i < classes; i++) {
    for (int64_t j = i + 1; j < classes; j++, x++, a++, b++) {
      /* No pair is surer than 1e-7, as in libsvm. */
      const double sure = 1.0 / (1.0 + exp((double)*x * (double)*a + (double)*b));
      const double first = sure < 1e-7 ? 1e-7 : sure > 1.0 - 1e-7 ? 1.0 - 1e-7 : sure, second = 1.0 - first;
      q[i * classes + i] += second * second;
      q[j * classes + j] += first * first;
      q[i * classes + j] = q[j * classes + i] = -first * second;
    }
  }
}

/* Finds p that makes p Q p least, one class at a time. */
static void coupling_solve(int64_t classes, const double *q, double *p, double *qp) {
  for (int64_t i = 0; i < classes; i++) {
    p[i] = 1.0 / (double)classes;
  }
  for (int64_t round = 0; round < tc_max(COUPLING_ROUNDS, classes); round++) {
    double pqp = 0.0, most = 0.0;
    for (int64_t i = 0; i < classes; i++) {
      qp[i] = 0.0;
      for (int64_t j = 0; j < classes; j++) {
        qp[i] += q[i * classes + j] * p[j];
      }
      pqp += p[i] * qp[i];
    }
    for (int64_t i = 0; i < classes; i++) {
      most = fabs(qp[i] - pqp) > most ? fabs(qp[i] - pqp) : most;
    }
    if (most < 0.005 / (double)classes) {
      return;
    }
    for (int64_t i = 0; i < classes; i++) {
      const double *row = q + i * classes;
      const double step = (pqp - qp[i]) / row[i], share = 1.0 / (1.0 + step);
      pqp = (pqp + step * (step * row[i] + 2.0 * qp[i])) * share * share;
      p[i] += step;
      for (int64_t j = 0; j < classes; j++) {
        qp[j] = (qp[j] + step * row[j]) * share;
        p[j] *= share;
      }
    }
  }
}

static void TC_NAME(tc_pairwise_coupling_f32)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_pairwise_coupling_f32_params *p = call->params;
  const int64_t classes = p->classes, pairs = classes * (classes - 1) / 2;
  const float *x = call->operands[COUPLING_X], *a = call->operands[COUPLING_A], *b = call->operands[COUPLING_B];
  float *y = call->operands[COUPLING_Y];
  double *q = call->scratch, *found = q + classes * classes, *product = found + classes;
  const int64_t last = tc_min(end * COUPLING_ROWS, p->rows);
  for (int64_t row = begin * COUPLING_ROWS; row < last; row++) {
    coupling_matrix(classes, x + row * pairs, a, b, q);
    coupling_solve(classes, q, found, product);
    for (int64_t i = 0; i < classes; i++) {
      y[row * classes + i] = (float)found[i];
    }
  }
}

#endif
