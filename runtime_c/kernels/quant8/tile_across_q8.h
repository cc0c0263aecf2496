/* The micro-kernel of 8-bit products where the processor adds up all products of two vectors of bytes: one row by four
 * columns, whose sums become a vector to be requantised and stored.
 *
 * Rows are as in tile_q8.h, of bytes with signs. A panel is cut into vectors of four columns, each one stream through
 * memory: for every tap and every sixteen numbers of it, those of the four columns one after another. */
#ifndef TINYCOMP_KERNELS_QUANT8_TILE_ACROSS_Q8_H
#define TINYCOMP_KERNELS_QUANT8_TILE_ACROSS_Q8_H

#include "vocabulary.h"

#include "requantize.h"
#include "tile_q8.h"

enum { Q8_ACROSS_COLUMNS = 4, Q8_ACROSS_STEP = 16 * Q8_ACROSS_COLUMNS };

/* Where in a panel of taps of `words` words the number d of a tap of a column lies. */
static inline int64_t q8_across_place(int64_t taps, int64_t words, int64_t column, int64_t tap, int64_t d) {
  const int64_t step = (column / Q8_ACROSS_COLUMNS * taps + tap) * words + d / 16;
  return step * Q8_ACROSS_STEP + column % Q8_ACROSS_COLUMNS * 16 + d % 16;
}

#if TC_ACROSS
/* The sums of one row: `rows` points at its first tap, the next is row_stride pointers on. */
TC_INLINE tc_vi q8_across_row(const bool is_one_tap, const char *const *rows, ptrdiff_t row_stride, int32_t taps,
                              int32_t words, const char *panel, const int32_t *start) {
  int32_t sums[4] = {start[0], start[1], start[2], start[3]};
  for (;;) {
    panel = tc_bytes_dot_four(sums, *rows, panel, words);
    if (is_one_tap || --taps <= 0) {
      return tc_vi_set(sums);
    }
    rows += row_stride;
  }
}

/* All rows of a block by the vector of columns that a tile begins with, whole or the last one. */
TC_INLINE void q8_across_rows(const bool is_whole, const bool is_one_tap, const q8_tile *t, int32_t row_count) {
  const ptrdiff_t row_stride = t->row_stride, y_stride = t->y_stride;
  const int32_t taps = (int32_t)t->taps, words = (int32_t)t->words;
  const q8_bytes bytes = t->scale->bytes;
  const tc_vf factors = tc_vf_load(t->factors);
  const char *const *rows = t->rows, *panel = t->panel;
  const int32_t *start = t->start;
  uint8_t *y = t->y;
  for (; row_count > 0; row_count--, rows++, y += y_stride) {
    const tc_vi sums = q8_across_row(is_one_tap, rows, row_stride, taps, words, panel, start);
    q8_store(&bytes, q8_by_float(sums, factors), is_whole ? TC_LANES : t->last, y);
  }
}

/* All rows of a block by one panel of so many vectors. */
static __attribute__((noinline)) void q8_tile_across(q8_tile t, int32_t row_count, int32_t vectors) {
  const ptrdiff_t panel_step = t.taps * t.words * Q8_ACROSS_STEP;
  for (; vectors > 0; vectors--) {
    if (t.sums) {
      for (int32_t m = 0; m < row_count; m++) {
        const tc_vi sums =
            q8_across_row(false, t.rows + m, t.row_stride, (int32_t)t.taps, (int32_t)t.words, t.panel, t.start);
        tc_vi_store_first(t.sums + m * t.sums_stride, sums, vectors > 1 ? TC_LANES : t.last);
      }
      t.sums += TC_LANES;
    } else if (vectors == 1 && t.last < TC_LANES) {
      q8_across_rows(false, false, &t, row_count);
    } else if (t.taps == 1) {
      q8_across_rows(true, true, &t, row_count);
    } else {
      q8_across_rows(true, false, &t, row_count);
    }
    t.panel += panel_step;
    t.start += TC_LANES;
    t.factors += TC_LANES;
    t.y += TC_LANES;
  }
}
#endif

#endif
