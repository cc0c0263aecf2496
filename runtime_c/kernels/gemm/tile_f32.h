/* The f32 micro-kernel: a tile of up to 12 rows by up to 4 vectors of columns, held in registers.
 *
 * The left operand comes as row pointers: rows[t * row_stride + m] points at the `depth` values of tap t for row m. A
 * matrix has one tap; a convolution has one per kernel position. The right operand is one packed panel: for every tap
 * and every depth, the panel's columns side by side, padded with zeros to whole vectors. */
#ifndef TINYCOMP_KERNELS_GEMM_TILE_F32_H
#define TINYCOMP_KERNELS_GEMM_TILE_F32_H

#include "vocabulary.h"

typedef struct tc_tile_f32 {
  const float *const *rows;
  int64_t row_stride;
  int64_t taps;
  uint64_t skipped;    /* a bit for each of the first taps: whether all rows are zero there */
  int64_t depth_begin; /* added to every row pointer */
  int64_t depth;
  const float *panel;
  const float *bias; /* padded like the panel; NULL to continue from what is in c */
  const float *residual;
  int64_t residual_stride;
  float *c;
  int64_t c_stride;
  int64_t last; /* columns in the last vector, 1..TC_LANES */
  float low, high;
  const char *ahead; /* what will be read next: fetched into the second-level cache, ahead_step bytes per depth */
  int64_t ahead_step;
} tc_tile_f32;

typedef void (*tc_tile_f32_fn)(const tc_tile_f32 *tile);

TC_INLINE tc_vf tc_load_column(const float *p, bool is_last, int64_t last) {
  return is_last && last < TC_LANES ? tc_vf_load_first(p, last) : tc_vf_load(p);
}

/* The sums of a tile. All functions of a tile are inlined with literal sizes, so that these live in registers; the
 * array bounds must be literals too. */
typedef struct tc_tile_sums {
  tc_vf v[12][4];
} tc_tile_sums;

/* Starts the sums from the result of an earlier part of the depth in c, or from bias and residual. */
TC_INLINE void tc_tile_start(const int mr, const int nv, const bool partial, const tc_tile_f32 *t, tc_tile_sums *sum) {
  const float *from = t->bias ? t->residual : t->c;
  const int64_t stride = t->bias ? t->residual_stride : t->c_stride;
#pragma GCC unroll 4
  for (int j = 0; j < nv; j++) {
    const tc_vf bias = t->bias ? tc_vf_load(t->bias + j * TC_LANES) : tc_vf_set1(0.0f);
#pragma GCC unroll 12
    for (int m = 0; m < mr; m++) {
      sum->v[m][j] = bias;
    }
  }
  if (from) {
#pragma GCC unroll 12
    for (int m = 0; m < mr; m++) {
#pragma GCC unroll 4
      for (int j = 0; j < nv; j++) {
        const float *added = from + m * stride + j * TC_LANES;
        sum->v[m][j] = tc_vf_add(sum->v[m][j], tc_load_column(added, partial && j == nv - 1, t->last));
      }
    }
  }
}

/* Prefetches the residual of the tile below, one line of each row, because the hardware does not foresee lines that far
 * apart: without this, a residual outside the second-level cache made products of little depth take half as long again.
 * (Prefetching the lines that this tile will write made them slower.) */
TC_INLINE void tc_tile_fetch(const int mr, const tc_tile_f32 *t) {
  if (t->residual) {
#pragma GCC unroll 12
    for (int m = 0; m < mr; m++) {
      __builtin_prefetch(t->residual + (mr + m) * t->residual_stride);
    }
  }
}

/* The pointers of further rows are loaded again for every depth. Compilers would otherwise keep them in vector
 * registers when the general registers run out, and moving them back costs as much as a multiplication. */
enum { TC_ROW_POINTERS = 7 };

/* One depth: a line of the panel times the values of all rows. */
TC_INLINE void tc_tile_step(const int mr, const int nv, const float *panel, const float *const *row,
                            const float *const *rows, int64_t k, tc_tile_sums *sum) {
  tc_vf column[4];
#pragma GCC unroll 4
  for (int j = 0; j < nv; j++) {
    column[j] = tc_vf_load(panel + j * TC_LANES);
  }
#pragma GCC unroll 12
  for (int m = 0; m < mr; m++) {
    const float *values = m < TC_ROW_POINTERS ? row[m] : ((const float *const volatile *)rows)[m];
    const tc_vf x = tc_vf_set1(values[k]);
#pragma GCC unroll 4
    for (int j = 0; j < nv; j++) {
      sum->v[m][j] = tc_vf_fma(x, column[j], sum->v[m][j]);
    }
  }
}

/* Two depths: the same for pairs of bfloat16, each pair in the place of a float. */
TC_INLINE void tc_tile_step_bf16(const int mr, const int nv, const float *panel, const float *const *row,
                                 const float *const *rows, int64_t k, tc_tile_sums *sum) {
#if TC_DOT_BF16
  tc_vi column[4];
#pragma GCC unroll 4
  for (int j = 0; j < nv; j++) {
    column[j] = tc_vi_load(panel + j * TC_LANES);
  }
#pragma GCC unroll 12
  for (int m = 0; m < mr; m++) {
    const float *values = m < TC_ROW_POINTERS ? row[m] : ((const float *const volatile *)rows)[m];
    const tc_vi x = tc_vi_load_pair(values + k);
#pragma GCC unroll 4
    for (int j = 0; j < nv; j++) {
      sum->v[m][j] = tc_vf_dot_bf16(sum->v[m][j], x, column[j]);
    }
  }
#else
  (void)mr, (void)nv, (void)panel, (void)row, (void)rows, (void)k, (void)sum;
#endif
}

/* Clamps and stores. */
TC_INLINE void tc_tile_finish(const int mr, const int nv, const bool partial, const tc_tile_f32 *t,
                              const tc_tile_sums *sum) {
  const tc_vf low = tc_vf_set1(t->low), high = tc_vf_set1(t->high);
#pragma GCC unroll 12
  for (int m = 0; m < mr; m++) {
#pragma GCC unroll 4
    for (int j = 0; j < nv; j++) {
      float *c = t->c + m * t->c_stride + j * TC_LANES;
      const tc_vf y = tc_vf_min(high, tc_vf_max(low, sum->v[m][j]));
      if (partial && j == nv - 1) {
        tc_vf_store_first(c, y, t->last);
      } else {
        tc_vf_store(c, y);
      }
    }
  }
}

/* Every element is one sum in the order of the depth, so cutting rows into other tiles does not change a bit. */
TC_INLINE void tc_tile_body(const bool pairs, const int mr, const int nv, const bool partial, const tc_tile_f32 *t) {
  tc_tile_sums sum;
  tc_tile_start(mr, nv, partial, t, &sum);
  tc_tile_fetch(mr, t);
  const float *panel = t->panel;
  const char *ahead = t->ahead;
  const int held = mr < TC_ROW_POINTERS ? mr : TC_ROW_POINTERS;
  uint64_t skipped = t->skipped;
  for (int64_t tap = 0; tap < t->taps; tap++, skipped >>= 1) {
    if (skipped & 1) {
      panel += t->depth * nv * TC_LANES;
      continue;
    }
    const float *const *rows = t->rows + tap * t->row_stride, *row[TC_ROW_POINTERS];
#pragma GCC unroll 12
    for (int m = 0; m < held; m++) {
      row[m] = rows[m];
    }
    for (int64_t k = t->depth_begin; k < t->depth_begin + t->depth; k++) {
      __builtin_prefetch(ahead, 0, 2);
      ahead += t->ahead_step;
      if (pairs) {
        tc_tile_step_bf16(mr, nv, panel, row, rows, k, &sum);
      } else {
        tc_tile_step(mr, nv, panel, row, rows, k, &sum);
      }
      panel += nv * TC_LANES;
    }
  }
  tc_tile_finish(mr, nv, partial, t, &sum);
}

/* The tiles that this instruction set has: as many sums as its registers hold beside the columns and one row value. */
#define TC_TILES_UP_TO_6(nv) TC_TILE(1, nv) TC_TILE(2, nv) TC_TILE(3, nv) TC_TILE(4, nv) TC_TILE(5, nv) TC_TILE(6, nv)
#define TC_TILES_UP_TO_8(nv) TC_TILES_UP_TO_6(nv) TC_TILE(7, nv) TC_TILE(8, nv)
#define TC_TILES_UP_TO_12(nv) TC_TILES_UP_TO_8(nv) TC_TILE(9, nv) TC_TILE(10, nv) TC_TILE(11, nv) TC_TILE(12, nv)
#if TC_REGISTERS == 32
enum { TC_TILE_VECTORS = 4 };
static const int tc_tile_rows[] = {0, 12, 12, 8, 6};
#define TC_TILE_LIST TC_TILES_UP_TO_12(1) TC_TILES_UP_TO_12(2) TC_TILES_UP_TO_8(3) TC_TILES_UP_TO_6(4)
#elif TC_REGISTERS == 8
enum { TC_TILE_VECTORS = 2 };
static const int tc_tile_rows[] = {0, 6, 3};
#define TC_TILE_LIST TC_TILES_UP_TO_6(1) TC_TILE(1, 2) TC_TILE(2, 2) TC_TILE(3, 2)
#else
enum { TC_TILE_VECTORS = 2 };
/* Of one vector, twelve would fit, but not the pointers to their rows into the general registers. */
static const int tc_tile_rows[] = {0, 9, 6};
#define TC_TILE_LIST TC_TILES_UP_TO_8(1) TC_TILE(9, 1) TC_TILES_UP_TO_6(2)
#endif

/* Most rows of a tile. */
enum { TC_TILE_MOST = 12 };

/* Columns of a whole panel. */
enum { TC_PANEL = TC_TILE_VECTORS * TC_LANES };

#define TC_TILE_OF(type, pairs, mr, nv)                                                         \
  static __attribute__((noinline)) void tc_tile_##type##_##mr##x##nv(const tc_tile_f32 *tile) { \
    if (tile->last == TC_LANES) {                                                               \
      tc_tile_body(pairs, mr, nv, false, tile);                                                 \
    } else {                                                                                    \
      tc_tile_body(pairs, mr, nv, true, tile);                                                  \
    }                                                                                           \
  }
#define TC_TILE(mr, nv) TC_TILE_OF(f32, false, mr, nv)
TC_TILE_LIST
#undef TC_TILE

static const tc_tile_f32_fn tc_tiles_f32[TC_TILE_VECTORS + 1][TC_TILE_MOST + 1] = {
#define TC_TILE(mr, nv) [nv][mr] = tc_tile_f32_##mr##x##nv,
    TC_TILE_LIST
#undef TC_TILE
};

#endif
