/* Packing the right operand of a product into panels, see tile_f32.h. */
#ifndef TINYCOMP_KERNELS_GEMM_PACK_F32_H
#define TINYCOMP_KERNELS_GEMM_PACK_F32_H

#include "vocabulary.h"

#include "../copy/transpose.h"
#include "tile_f32.h"

/* Where a right operand lies: element (tap, depth, column) is at data[tap*tap_stride + ...]. */
typedef struct tc_matrix_f32 {
  const float *data;
  int64_t taps, depth, columns;
  int64_t tap_stride, depth_stride, column_stride;
} tc_matrix_f32;

/* Floats that all panels of a right operand take. */
static inline int64_t tc_packed_floats(int64_t rows, int64_t columns) { return rows * tc_round_up(columns, TC_LANES); }

/* One strip of up to a vector of columns whose elements are adjacent along the depth, in squares turned in registers.
 */
static void tc_pack_turned(const float *from, int64_t column_stride, int64_t depth, int64_t filled, float *out,
                           int64_t width) {
  int64_t j = 0;
  for (; j + 4 <= filled; j += 4) {
    const float *rows = from + j * column_stride;
    float *to = out + j;
    int64_t k = 0;
    for (; k + 4 <= depth; k += 4) {
      tc_transpose_4x4((uint32_t *)(to + k * width), width, (const uint32_t *)(rows + k), column_stride);
    }
    for (; k < depth; k++) {
      for (int64_t i = 0; i < 4; i++) {
        to[k * width + i] = rows[i * column_stride + k];
      }
    }
  }
  for (; j < filled; j++) {
    for (int64_t k = 0; k < depth; k++) {
      out[k * width + j] = from[j * column_stride + k];
    }
  }
}

/* Multiplies the filled columns of a strip by alpha and makes the others zero; rows of `from` become rows of `to`,
 * which may be the same. */
static void tc_pack_scaled(const float *from, int64_t from_stride, int64_t depth, int64_t filled, float alpha,
                           float *to, int64_t to_stride) {
  const tc_vf factor = tc_vf_set1(alpha);
  for (int64_t k = 0; k < depth; k++, from += from_stride, to += to_stride) {
    const tc_vf row = filled == TC_LANES ? tc_vf_load(from) : tc_vf_load_first(from, filled);
    tc_vf_store(to, tc_vf_mul(factor, row));
  }
}

/* A strip whose elements are adjacent in neither direction. */
static void tc_pack_gathered(const float *from, int64_t depth_stride, int64_t column_stride, int64_t depth,
                             int64_t filled, float alpha, float *to, int64_t to_stride) {
  for (int64_t k = 0; k < depth; k++, from += depth_stride, to += to_stride) {
    for (int64_t j = 0; j < TC_LANES; j++) {
      to[j] = j < filled ? alpha * from[j * column_stride] : 0.0f;
    }
  }
}

/* One tap of up to a panel of columns, in strips of one vector so that few input streams are open at a time. */
static void tc_pack_tap(const tc_matrix_f32 *b, const float *tap, int64_t columns, float alpha, float *out) {
  const int64_t width = tc_round_up(columns, TC_LANES);
  for (int64_t j = 0; j < width; j += TC_LANES) {
    const int64_t filled = tc_min(columns - j, TC_LANES);
    const float *from = tap + j * b->column_stride;
    if (b->column_stride == 1) {
      tc_pack_scaled(from, b->depth_stride, b->depth, filled, alpha, out + j, width);
    } else if (b->depth_stride == 1) {
      tc_pack_turned(from, b->column_stride, b->depth, filled, out + j, width);
      if (alpha != 1.0f || filled < TC_LANES) {
        tc_pack_scaled(out + j, width, b->depth, filled, alpha, out + j, width);
      }
    } else {
      tc_pack_gathered(from, b->depth_stride, b->column_stride, b->depth, filled, alpha, out + j, width);
    }
  }
}

/* Packs alpha times one panel that starts at a column. */
static void tc_pack_panel(const tc_matrix_f32 *b, int64_t first_column, float alpha, float *out) {
  const int64_t columns = tc_min(b->columns - first_column, TC_PANEL);
  const int64_t width = tc_round_up(columns, TC_LANES);
  for (int64_t tap = 0; tap < b->taps; tap++) {
    tc_pack_tap(b, b->data + tap * b->tap_stride + first_column * b->column_stride, columns, alpha,
                out + tap * b->depth * width);
  }
}

/* Packs all panels, one after another. */
static void tc_pack_panels(const tc_matrix_f32 *b, float *out) {
  for (int64_t column = 0; column < b->columns; column += TC_PANEL) {
    tc_pack_panel(b, column, 1.0f, out);
    out += b->taps * b->depth * tc_round_up(tc_min(b->columns - column, TC_PANEL), TC_LANES);
  }
}

#endif
