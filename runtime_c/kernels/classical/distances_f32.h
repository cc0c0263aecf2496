/* distances_f32: how far each row is from each point of a constant set. State: panels of points, the features of a
 * panel one after another. A unit is some rows; each panel meets all of them while it is in the first-level cache. */
#ifndef TINYCOMP_KERNELS_CLASSICAL_DISTANCES_F32_H
#define TINYCOMP_KERNELS_CLASSICAL_DISTANCES_F32_H

#include "vocabulary.h"

enum { DISTANCES_Y, DISTANCES_X, DISTANCES_POINTS };

enum { DISTANCES_ROWS = 4, DISTANCES_VECTORS = 2, DISTANCES_PANEL = DISTANCES_VECTORS * TC_LANES, DISTANCES_UNIT = 32 };

/* What numbers of any size have in common. */
static void distances_check(tc_prepare *prepare, const tc_distances_f32_params *p, int size) {
  TC_REQUIRE(prepare, p->metric >= TC_DISTANCE_SQUARED && p->metric <= TC_DISTANCE_MANHATTAN, "there is no metric %lld",
             (long long)p->metric);
  TC_REQUIRE(prepare, p->points > 0 && p->features > 0, "%lld points of %lld features", (long long)p->points,
             (long long)p->features);
  tc_touch(prepare, DISTANCES_Y, TC_PRODUCT(prepare, p->rows, p->points), size);
  tc_touch(prepare, DISTANCES_X, TC_PRODUCT(prepare, p->rows, p->features), size);
  tc_touch(prepare, DISTANCES_POINTS, TC_PRODUCT(prepare, p->points, p->features), size);
  TC_SHARE(prepare, p->points, p->features);
  prepare->units = tc_refused(prepare) ? 0 : tc_ceil_div(p->rows, DISTANCES_UNIT);
  prepare->work.flops = 3.0 * (double)p->rows * (double)p->points * (double)p->features;
}

static void TC_NAME(tc_distances_f32_prepare)(tc_prepare *prepare) {
  const tc_distances_f32_params *p = prepare->params;
  distances_check(prepare, p, sizeof(float));
  if (tc_refused(prepare)) {
    return;
  }
  const int64_t panels = tc_ceil_div(p->points, DISTANCES_PANEL);
  tc_state_of(prepare, TC_PRODUCT(prepare, panels, DISTANCES_PANEL, p->features, sizeof(float)), sizeof(float));
  prepare->cost = prepare->work.flops / TC_LANES;
}

static void TC_NAME(tc_distances_f32_pack)(const tc_prepare *prepare, void *state) {
  const tc_distances_f32_params *p = prepare->params;
  const float *points = prepare->constants[DISTANCES_POINTS];
  float *to = state;
  for (int64_t first = 0; first < p->points; first += DISTANCES_PANEL) {
    for (int64_t feature = 0; feature < p->features; feature++) {
      for (int64_t i = 0; i < DISTANCES_PANEL; i++) {
        *to++ = first + i < p->points ? points[(first + i) * p->features + feature] : 0.0f;
      }
    }
  }
}

/* Some rows and one panel; rows that are not there repeat the last one. */
TC_INLINE void distances_tile(const bool manhattan, int64_t features, const float *const *x, const float *panel,
                              tc_vf sums[DISTANCES_ROWS][DISTANCES_VECTORS]) {
  tc_vf sum[DISTANCES_ROWS][DISTANCES_VECTORS];
#pragma GCC unroll 4
  for (int r = 0; r < DISTANCES_ROWS; r++) {
#pragma GCC unroll 2
    for (int v = 0; v < DISTANCES_VECTORS; v++) {
      sum[r][v] = tc_vf_set1(0.0f);
    }
  }
  for (int64_t feature = 0; feature < features; feature++, panel += DISTANCES_PANEL) {
    const tc_vf points[DISTANCES_VECTORS] = {tc_vf_load(panel), tc_vf_load(panel + TC_LANES)};
#pragma GCC unroll 4
    for (int r = 0; r < DISTANCES_ROWS; r++) {
      const tc_vf value = tc_vf_set1(x[r][feature]);
#pragma GCC unroll 2
      for (int v = 0; v < DISTANCES_VECTORS; v++) {
        const tc_vf apart = tc_vf_sub(value, points[v]);
        sum[r][v] = manhattan ? tc_vf_add(sum[r][v], tc_vf_abs(apart)) : tc_vf_fma(apart, apart, sum[r][v]);
      }
    }
  }
  memcpy(sums, sum, sizeof(sum));
}

static void TC_NAME(tc_distances_f32)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_distances_f32_params *p = call->params;
  const float *x = call->operands[DISTANCES_X], *panels = call->state;
  float *y = call->operands[DISTANCES_Y];
  const int64_t last = tc_min(end * DISTANCES_UNIT, p->rows);
  for (int64_t unit = begin * DISTANCES_UNIT; unit < last; unit += DISTANCES_UNIT) {
    const int64_t bottom = tc_min(unit + DISTANCES_UNIT, last);
    for (int64_t point = 0; point < p->points; point += DISTANCES_PANEL) {
      const float *panel = panels + point * p->features;
      for (int64_t row = unit; row < bottom; row += DISTANCES_ROWS) {
        const float *rows[DISTANCES_ROWS];
        tc_vf sums[DISTANCES_ROWS][DISTANCES_VECTORS];
        for (int r = 0; r < DISTANCES_ROWS; r++) {
          rows[r] = x + tc_min(row + r, bottom - 1) * p->features;
        }
        if (p->metric == TC_DISTANCE_MANHATTAN) {
          distances_tile(true, p->features, rows, panel, sums);
        } else {
          distances_tile(false, p->features, rows, panel, sums);
        }
        for (int r = 0; r < DISTANCES_ROWS && row + r < bottom; r++) {
          for (int v = 0; v < DISTANCES_VECTORS; v++) {
            const int64_t at = point + v * TC_LANES, count = tc_min(p->points - at, TC_LANES);
            const tc_vf sum = p->metric == TC_DISTANCE_EUCLIDEAN ? tc_vf_sqrt(sums[r][v]) : sums[r][v];
            if (count == TC_LANES) {
              tc_vf_store(y + (row + r) * p->points + at, sum);
            } else if (count > 0) {
              tc_vf_store_first(y + (row + r) * p->points + at, sum, count);
            }
          }
        }
      }
    }
  }
}

#endif
