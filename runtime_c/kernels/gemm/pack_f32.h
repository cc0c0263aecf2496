/* Packing the right operand of a product into panels, see tile_f32.h. */

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

/* One tap of up to a panel of columns, in strips of one vector so that few input streams are open at a time. */
static void tc_pack_tap(const tc_matrix_f32 *b, const float *tap, int64_t columns, float alpha, float *out) {
  const int64_t width = tc_round_up(columns, TC_LANES);
  for (int64_t j0 = 0; j0 < width; j0 += TC_LANES) {
    const int64_t filled = tc_min(columns - j0, TC_LANES);
    const float *from = tap + j0 * b->column_stride;
    const bool turned = b->depth_stride == 1 && b->column_stride > 1;
    if (turned) {
      tc_pack_turned(from, b->column_stride, b->depth, filled, out + j0, width);
    }
    for (int64_t k = 0; k < b->depth; k++) {
      float *to = out + k * width + j0;
      const float *row = turned ? to : from + k * b->depth_stride;
      if (turned || b->column_stride == 1) {
        tc_vf_store(to, tc_vf_mul(tc_vf_set1(alpha), tc_vf_load_first(row, filled)));
        continue;
      }
      for (int64_t j = 0; j < filled; j++) {
        to[j] = alpha * row[j * b->column_stride];
      }
      for (int64_t j = filled; j < TC_LANES; j++) {
        to[j] = 0.0f;
      }
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
