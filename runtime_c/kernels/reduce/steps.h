/* The loops of all reductions: along a row of adjacent elements, and down columns that lie side by side.
 *
 * Long sums are cut into parts that are added up at the end, so that rounding errors grow with the length of a part. */
#ifndef TINYCOMP_KERNELS_REDUCE_STEPS_H
#define TINYCOMP_KERNELS_REDUCE_STEPS_H

#include "vocabulary.h"

#include "../common/math.h"
#include "../common/log.h"
#include "../common/partial.h"

enum { REDUCE_PART = 4096, REDUCE_PART_ROWS = 32, REDUCE_VECTORS = 4, REDUCE_STRIP = REDUCE_VECTORS * TC_LANES };

/* One row per step: TC_REDUCE(kind, start, an x that changes nothing, step in sum, x and shift, how sums join, how the
 * lanes of a vector join). */
#define TC_REDUCE_LIST                                                                                          \
  TC_REDUCE(SUM, 0.0f, 0.0f, tc_vf_add(sum, x), tc_vf_add, tc_vf_reduce_add)                                    \
  TC_REDUCE(L1, 0.0f, 0.0f, tc_vf_add(sum, tc_vf_abs(x)), tc_vf_add, tc_vf_reduce_add)                          \
  TC_REDUCE(SQUARE, 0.0f, shift, reduce_square(tc_vf_sub(x, shifts), sum), tc_vf_add, tc_vf_reduce_add)         \
  TC_REDUCE(EXP, 0.0f, -INFINITY, tc_vf_add(sum, tc_vf_exp(tc_vf_sub(x, shifts))), tc_vf_add, tc_vf_reduce_add) \
  TC_REDUCE(PROD, 1.0f, 1.0f, tc_vf_mul(sum, x), tc_vf_mul, reduce_lanes_PROD)                                  \
  TC_REDUCE(MAX, -INFINITY, -INFINITY, tc_vf_maximum(sum, x), tc_vf_maximum, reduce_lanes_MAX)                  \
  TC_REDUCE(MIN, INFINITY, INFINITY, tc_vf_minimum(sum, x), tc_vf_minimum, reduce_lanes_MIN)

TC_INLINE tc_vf reduce_square(tc_vf x, tc_vf sum) { return tc_vf_fma(x, x, sum); }

/* Rows of `columns` adjacent elements: `planes` times `lines` of them. */
typedef struct reduce_span {
  const float *x;
  int64_t planes, plane_stride;
  int64_t lines, line_stride;
  int64_t columns;
  bool adds; /* to the sums of parts that there are */
} reduce_span;

/* Results of adjacent elements: each of `count` in every one of `planes`. */
typedef struct reduce_rows {
  const float *x;
  int64_t rows, row_stride;
  int64_t planes, plane_stride, count;
} reduce_rows;

/* Up to a vector of elements, and behind them what changes no sum. */
TC_INLINE tc_vf reduce_load(const float *p, int64_t count, float neutral) {
  static const float lanes[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  if (count >= TC_LANES) {
    return tc_vf_load(p);
  }
  const tc_vm there = tc_vf_lt(tc_vf_load(lanes), tc_vf_set1((float)count));
  return tc_vf_select(there, tc_vf_load_first(p, count), tc_vf_set1(neutral));
}

/* The product of the lanes, in order. */
TC_INLINE float reduce_lanes_PROD(tc_vf v) {
  float lanes[TC_LANES];
  tc_vf_store(lanes, v);
  for (int i = 1; i < TC_LANES; i++) {
    lanes[0] *= lanes[i];
  }
  return lanes[0];
}

/* The largest or smallest lane, NaN if any is. */
TC_INLINE float reduce_lanes_MAX(tc_vf v) {
  const tc_vf unordered = tc_vf_select(tc_vf_eq(v, v), tc_vf_set1(0.0f), tc_vf_set1(1.0f));
  return tc_vf_reduce_max(unordered) > 0.0f ? NAN : tc_vf_reduce_max(v);
}
TC_INLINE float reduce_lanes_MIN(tc_vf v) { return -reduce_lanes_MAX(tc_vf_sub(tc_vf_set1(-0.0f), v)); }

/* reduce_part_*: neighbouring elements of some planes. reduce_one_*: all that one result is made of, in parts of whole
 * planes or of a plane each. reduce_row_*: one plane, joined to a sum that there is already. */
#define REDUCE_ROW(kind, start, neutral, step, join, join_lanes)                                                       \
  TC_INLINE float reduce_part_##kind(const float *first, int64_t count, int64_t planes, int64_t stride, float shift) { \
    const tc_vf shifts __attribute__((unused)) = tc_vf_set1(shift);                                                    \
    tc_vf sums[REDUCE_VECTORS];                                                                                        \
    for (int v = 0; v < REDUCE_VECTORS; v++) {                                                                         \
      sums[v] = tc_vf_set1(start);                                                                                     \
    }                                                                                                                  \
    for (const float *row = first; planes > 0; planes--, row += stride) {                                              \
      int64_t i = 0;                                                                                                   \
      for (; i + REDUCE_STRIP <= count; i += REDUCE_STRIP) {                                                           \
        _Pragma("GCC unroll 4") for (int v = 0; v < REDUCE_VECTORS; v++) {                                             \
          const tc_vf sum = sums[v], x = tc_vf_load(row + i + v * TC_LANES);                                           \
          sums[v] = step;                                                                                              \
        }                                                                                                              \
      }                                                                                                                \
      for (; i < count; i += TC_LANES) {                                                                               \
        const tc_vf sum = sums[0], x = reduce_load(row + i, count - i, neutral);                                       \
        sums[0] = step;                                                                                                \
      }                                                                                                                \
    }                                                                                                                  \
    return join_lanes(join(join(sums[0], sums[1]), join(sums[2], sums[3])));                                           \
  }                                                                                                                    \
  static float reduce_one_##kind(const float *x, int64_t count, int64_t planes, int64_t stride, float shift,           \
                                 float sum) {                                                                          \
    const int64_t together = planes > 1 ? tc_max(REDUCE_PART / tc_max(count, 1), 1) : 1;                               \
    for (int64_t plane = 0; plane < planes; plane += together) {                                                       \
      for (int64_t i = 0; i < count; i += REDUCE_PART) {                                                               \
        const float part = reduce_part_##kind(x + plane * stride + i, tc_min(count - i, REDUCE_PART),                  \
                                              tc_min(planes - plane, together), stride, shift);                        \
        tc_vf_store_first(&sum, join(tc_vf_set1(sum), tc_vf_set1(part)), 1);                                           \
      }                                                                                                                \
    }                                                                                                                  \
    return sum;                                                                                                        \
  }                                                                                                                    \
  TC_INLINE float reduce_row_##kind(const float *row, int64_t count, float shift, float sum) {                         \
    return reduce_one_##kind(row, count, 1, 0, shift, sum);                                                            \
  }                                                                                                                    \
  static void reduce_rows_##kind(float *y, const reduce_rows *r, const float *shifts) {                                \
    const float *x = r->x;                                                                                             \
    for (int64_t row = 0; row < r->rows; row++, x += r->row_stride) {                                                  \
      y[row] = reduce_one_##kind(x, r->count, r->planes, r->plane_stride, shifts ? shifts[row] : 0.0f, start);         \
    }                                                                                                                  \
  }

/* reduce_columns_*: the sums of up to a strip of columns; shifts: one number per column, or NULL for zeros. */
#define REDUCE_COLUMNS(kind, start, neutral, step, join)                                                            \
  TC_INLINE void reduce_lines_##kind(const int vectors, const reduce_span *span, const float *first, int64_t lines, \
                                     const tc_vf *columns_shift, tc_vf *totals) {                                   \
    tc_vf sums[REDUCE_VECTORS];                                                                                     \
    _Pragma("GCC unroll 4") for (int v = 0; v < vectors; v++) { sums[v] = tc_vf_set1(start); }                      \
    for (int64_t i = 0; i < lines; i++, first += span->line_stride) {                                               \
      _Pragma("GCC unroll 4") for (int v = 0; v < vectors; v++) {                                                   \
        const tc_vf x = vectors > 1 ? tc_vf_load(first + v * TC_LANES) : tc_load_up_to(first, span->columns);       \
        const tc_vf sum = sums[v], shifts __attribute__((unused)) = columns_shift[v];                               \
        sums[v] = step;                                                                                             \
      }                                                                                                             \
    }                                                                                                               \
    _Pragma("GCC unroll 4") for (int v = 0; v < vectors; v++) { totals[v] = join(totals[v], sums[v]); }             \
  }                                                                                                                 \
  TC_INLINE void reduce_vectors_##kind(const int vectors, float *y, const reduce_span *span, const float *shifts) { \
    tc_vf totals[REDUCE_VECTORS], columns_shift[REDUCE_VECTORS];                                                    \
    for (int v = 0; v < vectors; v++) {                                                                             \
      totals[v] = span->adds ? tc_load_up_to(y + v * TC_LANES, span->columns) : tc_vf_set1(start);                  \
      columns_shift[v] = shifts ? tc_load_up_to(shifts + v * TC_LANES, span->columns) : tc_vf_set1(0.0f);           \
    }                                                                                                               \
    for (int64_t plane = 0; plane < span->planes; plane++) {                                                        \
      for (int64_t line = 0; line < span->lines; line += REDUCE_PART_ROWS) {                                        \
        const float *first = span->x + plane * span->plane_stride + line * span->line_stride;                       \
        const int64_t lines = tc_min(span->lines - line, REDUCE_PART_ROWS);                                         \
        reduce_lines_##kind(vectors, span, first, lines, columns_shift, totals);                                    \
      }                                                                                                             \
    }                                                                                                               \
    for (int v = 0; v < vectors; v++) {                                                                             \
      tc_store_up_to(y + v * TC_LANES, totals[v], span->columns);                                                   \
    }                                                                                                               \
  }                                                                                                                 \
  static void reduce_columns_##kind(float *y, const reduce_span *span, const float *shifts) {                       \
    if (span->columns == REDUCE_STRIP) {                                                                            \
      reduce_vectors_##kind(REDUCE_VECTORS, y, span, shifts);                                                       \
      return;                                                                                                       \
    }                                                                                                               \
    for (int64_t c = 0; c < span->columns; c += TC_LANES) {                                                         \
      reduce_span rest = *span;                                                                                     \
      rest.x += c;                                                                                                  \
      rest.columns = tc_min(span->columns - c, TC_LANES);                                                           \
      reduce_vectors_##kind(1, y + c, &rest, shifts ? shifts + c : NULL);                                           \
    }                                                                                                               \
  }

#define TC_REDUCE(kind, start, neutral, step, join, join_lanes) \
  REDUCE_ROW(kind, start, neutral, step, join, join_lanes)      \
  REDUCE_COLUMNS(kind, start, neutral, step, join)
TC_REDUCE_LIST
#undef TC_REDUCE
#undef REDUCE_ROW
#undef REDUCE_COLUMNS

#endif
