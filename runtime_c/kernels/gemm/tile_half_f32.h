/* The micro-kernel for up to half a vector of columns, such as the channels of narrow groups, on processors that
 * multiply two vectors of half the width in the time of a whole one. Panels are those of tile_f32.h, of which the lower
 * halves of vectors are read; every sum has the same order. */
#ifndef TINYCOMP_KERNELS_GEMM_TILE_HALF_F32_H
#define TINYCOMP_KERNELS_GEMM_TILE_HALF_F32_H

#include "vocabulary.h"

#include "tile_f32.h"

#if TC_HALVES
enum { TC_HALF = TC_LANES / 2, TC_HALF_STEPS = 8 };

TC_INLINE void tc_half_start(const int mr, const bool partial, const tc_tile_f32 *t, tc_vh *sum) {
  const float *from = t->bias ? t->residual : t->c;
  const int64_t stride = t->bias ? t->residual_stride : t->c_stride;
  const tc_vh bias = t->bias ? tc_vh_load(t->bias) : tc_vh_set1(0.0f);
#pragma GCC unroll 12
  for (int m = 0; m < mr; m++) {
    sum[m] = bias;
  }
  if (from) {
#pragma GCC unroll 12
    for (int m = 0; m < mr; m++) {
      const float *added = from + m * stride;
      sum[m] = tc_vh_add(sum[m], partial ? tc_vh_load_first(added, t->last) : tc_vh_load(added));
    }
  }
}

TC_INLINE void tc_half_finish(const int mr, const bool partial, const tc_tile_f32 *t, const tc_vh *sum) {
  const tc_vh low = tc_vh_set1(t->low), high = tc_vh_set1(t->high);
#pragma GCC unroll 12
  for (int m = 0; m < mr; m++) {
    const tc_vh y = tc_vh_min(high, tc_vh_max(low, sum[m]));
    if (partial) {
      tc_vh_store_first(t->c + m * t->c_stride, y, t->last);
    } else {
      tc_vh_store(t->c + m * t->c_stride, y);
    }
  }
}

/* A few depths: the lines of the panel stay in registers for all rows. */
TC_INLINE void tc_half_steps(const int mr, const int steps, const float *panel, const float *const *rows, int64_t k,
                             tc_vh *sum) {
  tc_vh column[TC_HALF_STEPS];
#pragma GCC unroll 8
  for (int i = 0; i < steps; i++) {
    column[i] = tc_vh_keep(tc_vh_load(panel + i * TC_LANES));
  }
#pragma GCC unroll 12
  for (int m = 0; m < mr; m++) {
    const float *values = rows[m] + k;
#pragma GCC unroll 8
    for (int i = 0; i < steps; i++) {
      sum[m] = tc_vh_fma(tc_vh_set1(values[i]), column[i], sum[m]);
    }
  }
}

TC_INLINE void tc_half_body(const int mr, const bool partial, const tc_tile_f32 *t) {
  tc_vh sum[12];
  tc_half_start(mr, partial, t, sum);
  const float *panel = t->panel;
  const int64_t end = t->depth_begin + t->depth;
  uint64_t skipped = t->skipped;
  for (int64_t tap = 0; tap < t->taps; tap++, skipped >>= 1) {
    if (skipped & 1) {
      panel += t->depth * TC_LANES;
      continue;
    }
    const float *const *rows = t->rows + tap * t->row_stride;
    int64_t k = t->depth_begin;
    for (; k + TC_HALF_STEPS <= end; k += TC_HALF_STEPS, panel += TC_HALF_STEPS * TC_LANES) {
      tc_half_steps(mr, TC_HALF_STEPS, panel, rows, k, sum);
    }
    for (; k < end; k++, panel += TC_LANES) {
      tc_half_steps(mr, 1, panel, rows, k, sum);
    }
  }
  tc_half_finish(mr, partial, t, sum);
}

#define TC_TILE(mr, nv)                                                                     \
  static __attribute__((noinline)) void tc_tile_half_##mr##x##nv(const tc_tile_f32 *tile) { \
    if (tile->last == TC_HALF) {                                                            \
      tc_half_body(mr, false, tile);                                                        \
    } else {                                                                                \
      tc_half_body(mr, true, tile);                                                         \
    }                                                                                       \
  }
TC_TILES_UP_TO_12(1)
#undef TC_TILE

static const tc_tile_f32_fn tc_tiles_half_f32[][TC_TILE_MOST + 1] = {
#define TC_TILE(mr, nv) [nv][mr] = tc_tile_half_##mr##x##nv,
    TC_TILES_UP_TO_12(1)
#undef TC_TILE
};
#endif

/* The tiles of floats for so many columns. */
static const tc_tile_f32_fn (*tc_tiles_for(int64_t columns)) [TC_TILE_MOST + 1] {
#if TC_HALVES
  if (columns <= TC_HALF) {
    return tc_tiles_half_f32;
  }
#endif
  (void)columns;
  return tc_tiles_f32;
}

#endif
