/* distances_f64: how far each row is from each point of a constant set, in double. State: panels of points, the
 * features of a panel one after another. A unit is some rows, each of which meets all panels. */
#ifndef TINYCOMP_KERNELS_CLASSICAL_DISTANCES_F64_H
#define TINYCOMP_KERNELS_CLASSICAL_DISTANCES_F64_H

#include "vocabulary.h"

#include "distances_f32.h"

enum { DISTANCES_POINTS_F64 = 16 };

static void TC_NAME(tc_distances_f64_prepare)(tc_prepare *prepare) {
  const tc_distances_f64_params *p = prepare->params;
  distances_check(prepare, p, sizeof(double));
  if (tc_refused(prepare)) {
    return;
  }
  const int64_t panels = tc_ceil_div(p->points, DISTANCES_POINTS_F64);
  tc_state_of(prepare, TC_PRODUCT(prepare, panels, DISTANCES_POINTS_F64, p->features, sizeof(double)), sizeof(double));
  prepare->cost = 2.0 * prepare->work.flops / TC_LANES;
}

static void TC_NAME(tc_distances_f64_pack)(const tc_prepare *prepare, void *state) {
  const tc_distances_f64_params *p = prepare->params;
  const double *points = prepare->constants[DISTANCES_POINTS];
  double *to = state;
  for (int64_t first = 0; first < p->points; first += DISTANCES_POINTS_F64) {
    for (int64_t feature = 0; feature < p->features; feature++) {
      for (int64_t i = 0; i < DISTANCES_POINTS_F64; i++) {
        *to++ = first + i < p->points ? points[(first + i) * p->features + feature] : 0.0;
      }
    }
  }
}

TC_INLINE void distances_panel_f64(const bool manhattan, int64_t features, const double *x, const double *panel,
                                   double *sums) {
  double sum[DISTANCES_POINTS_F64] = {0};
  for (int64_t feature = 0; feature < features; feature++, panel += DISTANCES_POINTS_F64) {
    const double value = x[feature];
    for (int i = 0; i < DISTANCES_POINTS_F64; i++) {
      const double apart = value - panel[i];
      sum[i] += manhattan ? fabs(apart) : apart * apart;
    }
  }
  memcpy(sums, sum, sizeof(sum));
}

static void TC_NAME(tc_distances_f64)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_distances_f64_params *p = call->params;
  const double *panels = call->state;
  const int64_t last = tc_min(end * DISTANCES_UNIT, p->rows);
  for (int64_t row = begin * DISTANCES_UNIT; row < last; row++) {
    const double *x = (const double *)call->operands[DISTANCES_X] + row * p->features;
    double *y = (double *)call->operands[DISTANCES_Y] + row * p->points;
    for (int64_t point = 0; point < p->points; point += DISTANCES_POINTS_F64) {
      double sums[DISTANCES_POINTS_F64];
      if (p->metric == TC_DISTANCE_MANHATTAN) {
        distances_panel_f64(true, p->features, x, panels + point * p->features, sums);
      } else {
        distances_panel_f64(false, p->features, x, panels + point * p->features, sums);
      }
      for (int i = 0; i < DISTANCES_POINTS_F64 && p->metric == TC_DISTANCE_EUCLIDEAN; i++) {
        sums[i] = sqrt(sums[i]);
      }
      memcpy(y + point, sums, (size_t)tc_min(p->points - point, DISTANCES_POINTS_F64) * sizeof(*sums));
    }
  }
}

#endif
