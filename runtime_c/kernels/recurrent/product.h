/* The product of hidden states with a recurrence matrix, for a few rows and one panel at a time.
 *
 * A part is a run of gates that one product computes. Its panels hold all of its gates for a few vectors of hidden
 * units: [panel][depth][unit vector][gate][TC_LANES], so that the cell can follow while the sums are in the first-level
 * cache, and, as a product for few rows takes as long as the matrix takes to arrive, while the next panel is under way.
 */
#ifndef TINYCOMP_KERNELS_RECURRENT_PRODUCT_H
#define TINYCOMP_KERNELS_RECURRENT_PRODUCT_H

#include "vocabulary.h"

enum { RECURRENT_VECTORS = 4 }; /* in a panel */
#if TC_REGISTERS == 32
enum { RECURRENT_TILE_ROWS = 6 };
#else
enum { RECURRENT_TILE_ROWS = 3 };
#endif

typedef struct recurrent_part {
  int64_t gate, gates; /* the first of them, and how many */
  int64_t wide;        /* vectors of hidden units in a panel */
  int64_t offset;      /* of its panels, in floats */
} recurrent_part;

/* Packs one part of the gates of R[gates * hidden, hidden], transposed. */
static void recurrent_pack_part(const recurrent_part *part, const float *r, int64_t hidden, float *out) {
  const int64_t panel_units = part->wide * TC_LANES;
  for (int64_t first = 0; first < hidden; first += panel_units) {
    const int64_t width = tc_round_up(tc_min(hidden - first, panel_units), TC_LANES) * part->gates;
    for (int64_t j = 0; j < width; j++) {
      const int64_t vector = j / TC_LANES, unit = first + vector / part->gates * TC_LANES + j % TC_LANES;
      const float *row = r + ((part->gate + vector % part->gates) * hidden + unit) * hidden;
      for (int64_t k = 0; k < hidden; k++) {
        out[k * width + j] = unit < hidden ? row[k] : 0.0f;
      }
    }
    out += width * hidden;
  }
}

/* One step along the depth. */
#define RECURRENT_STEP(part, k)                                           \
  _Pragma("GCC unroll 6") for (int m = 0; m < mr; m++) {                  \
    const tc_vf x = tc_vf_set1(rows[m][k]);                               \
    _Pragma("GCC unroll 4") for (int j = 0; j < nv; j++) {                \
      const tc_vf column = tc_vf_load(panel + ((k) * nv + j) * TC_LANES); \
      sum[part][m][j] = tc_vf_fma(x, column, sum[part][m][j]);            \
    }                                                                     \
  }

/* Always inlined with literal mr and nv. A small tile sums even and odd steps apart, or every fourth, since one sum
 * after another would wait for the last addition. */
TC_INLINE void recurrent_tile(const int mr, const int nv, const float *const *rows, int64_t depth, const float *panel,
                              float *sums) {
  const int parts = mr * nv <= 2 ? 4 : mr * nv <= 4 ? 2 : 1;
  tc_vf sum[4][6][4];
#pragma GCC unroll 4
  for (int p = 0; p < parts; p++) {
#pragma GCC unroll 6
    for (int m = 0; m < mr; m++) {
#pragma GCC unroll 4
      for (int j = 0; j < nv; j++) {
        sum[p][m][j] = tc_vf_set1(0.0f);
      }
    }
  }
  int64_t k = 0;
  for (; k + parts <= depth; k += parts) {
#pragma GCC unroll 4
    for (int p = 0; p < parts; p++) {
      RECURRENT_STEP(p, k + p)
    }
  }
  for (; k < depth; k++) {
    RECURRENT_STEP(0, k)
  }
#pragma GCC unroll 6
  for (int m = 0; m < mr; m++) {
#pragma GCC unroll 4
    for (int j = 0; j < nv; j++) {
#pragma GCC unroll 4
      for (int p = 1; p < parts; p++) {
        sum[0][m][j] = tc_vf_add(sum[0][m][j], sum[p][m][j]);
      }
      tc_vf_store(sums + (m * nv + j) * TC_LANES, sum[0][m][j]);
    }
  }
}
#undef RECURRENT_STEP

typedef void (*recurrent_tile_fn)(const float *const *rows, int64_t depth, const float *panel, float *sums);

#define RECURRENT_TILES_OF(mr) RECURRENT_TILE(mr, 1) RECURRENT_TILE(mr, 2) RECURRENT_TILE(mr, 3) RECURRENT_TILE(mr, 4)
#if TC_REGISTERS == 32
#define RECURRENT_TILE_LIST \
  RECURRENT_TILES_OF(1)     \
  RECURRENT_TILES_OF(2) RECURRENT_TILES_OF(3) RECURRENT_TILES_OF(4) RECURRENT_TILES_OF(5) RECURRENT_TILES_OF(6)
#else
#define RECURRENT_TILE_LIST RECURRENT_TILES_OF(1) RECURRENT_TILES_OF(2) RECURRENT_TILES_OF(3)
#endif

#define RECURRENT_TILE(mr, nv)                                                                              \
  static __attribute__((noinline)) void recurrent_tile_##mr##x##nv(const float *const *rows, int64_t depth, \
                                                                   const float *panel, float *sums) {       \
    recurrent_tile(mr, nv, rows, depth, panel, sums);                                                       \
  }
RECURRENT_TILE_LIST
#undef RECURRENT_TILE

static const recurrent_tile_fn recurrent_tiles[RECURRENT_TILE_ROWS + 1][RECURRENT_VECTORS + 1] = {
#define RECURRENT_TILE(mr, nv) [mr][nv] = recurrent_tile_##mr##x##nv,
    RECURRENT_TILE_LIST
#undef RECURRENT_TILE
};

/* The sums of all rows with one panel of some vectors: sums[row][vectors * TC_LANES]. */
static void recurrent_product(const float *const *rows, int64_t count, int64_t depth, const float *panel,
                              int64_t vectors, float *sums) {
  const int64_t tiles = tc_ceil_div(count, RECURRENT_TILE_ROWS);
  for (int64_t tile = 0; tile < tiles; tile++) {
    const int64_t m = count * tile / tiles, end = count * (tile + 1) / tiles;
    recurrent_tiles[end - m][vectors](rows + m, depth, panel, sums + m * vectors * TC_LANES);
  }
}

#endif
