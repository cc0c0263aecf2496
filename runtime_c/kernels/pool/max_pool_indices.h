/* max_pool_indices: the maximum of every window of images or volumes, and where it lies. A unit is one channel. Of
 * equal numbers the first counts, and NaN is greater than all others. */
#ifndef TINYCOMP_KERNELS_POOL_MAX_POOL_INDICES_H
#define TINYCOMP_KERNELS_POOL_MAX_POOL_INDICES_H

#include "vocabulary.h"

#include "../common/number.h"
#include "../elementwise/rows.h"

enum { MAX_INDICES_Y, MAX_INDICES_PLACES, MAX_INDICES_X };

/* What ONNX takes maxima of windows of; halves are widened. */
#define MAX_INDICES_LIST         \
  TC_NUMBER(F32, float, float)   \
  TC_NUMBER(F64, double, double) \
  TC_NUMBER(I8, int8_t, int8_t)  \
  TC_NUMBER(U8, uint8_t, uint8_t)

static int max_indices_size(int64_t type) {
  const bool is_number = type == TC_TYPE_F32 || type == TC_TYPE_F64 || type == TC_TYPE_I8 || type == TC_TYPE_U8;
  return is_number ? tc_number_size(type) : 0;
}

static bool max_indices_axis(int64_t size, int64_t output, int64_t kernel, int64_t stride, int64_t dilation,
                             int64_t before) {
  const int64_t most = INT64_C(1) << 31;
  return size >= 0 && size <= most && output >= 0 && output <= most && kernel > 0 && kernel <= most && stride > 0 &&
         stride <= most && dilation > 0 && dilation <= most && before >= 0 && before <= most &&
         (output == 0 || size > 0);
}

static void TC_NAME(tc_max_pool_indices_prepare)(tc_prepare *prepare) {
  const tc_max_pool_indices_params *p = prepare->params;
  const int size = max_indices_size(p->type);
  TC_REQUIRE(prepare, size, "numbers of type %lld cannot be compared", (long long)p->type);
  TC_REQUIRE(prepare, p->storage_order == 0 || p->storage_order == 1, "storage_order must be 0 or 1");
  TC_REQUIRE(
      prepare,
      max_indices_axis(p->depth, p->out_depth, p->kernel_depth, p->stride_depth, p->dilation_depth, p->before_depth) &&
          max_indices_axis(p->height, p->out_height, p->kernel_height, p->stride_height, p->dilation_height,
                           p->before_height) &&
          max_indices_axis(p->width, p->out_width, p->kernel_width, p->stride_width, p->dilation_width,
                           p->before_width),
      "a window does not fit its axis");
  const int64_t results = TC_PRODUCT(prepare, p->images, p->out_depth, p->out_height, p->out_width);
  tc_touch(prepare, MAX_INDICES_Y, results, size);
  tc_touch(prepare, MAX_INDICES_PLACES, results, sizeof(int64_t));
  tc_touch(prepare, MAX_INDICES_X, TC_PRODUCT(prepare, p->images, p->depth, p->height, p->width), size);
  const int64_t work = TC_PRODUCT(prepare, results, p->kernel_depth, p->kernel_height, p->kernel_width);
  if (tc_refused(prepare)) {
    return;
  }
  prepare->units = results ? p->images : 0;
  prepare->cost = 4.0 * (double)work;
  tc_operate(prepare, p->type, (double)work);
}

/* The cells of a window along an axis: [first, end) in steps of the dilation; none where it lies in the padding. */
typedef struct max_indices_span {
  int64_t first, end, step;
} max_indices_span;

static max_indices_span max_indices_cells(int64_t place, int64_t size, int64_t kernel, int64_t stride, int64_t dilation,
                                          int64_t before) {
  const int64_t start = place * stride - before;
  const int64_t skipped = start < 0 ? tc_ceil_div(-start, dilation) : 0;
  return (max_indices_span){start + skipped * dilation, tc_min(start + (kernel - 1) * dilation + 1, size), dilation};
}

#define MAX_INDICES_CELLS(p, axis, place) \
  max_indices_cells(place, (p)->axis, (p)->kernel_##axis, (p)->stride_##axis, (p)->dilation_##axis, (p)->before_##axis)

static int64_t max_indices_flat(const tc_max_pool_indices_params *p, int64_t z, int64_t y, int64_t x) {
  return p->storage_order ? (x * p->height + y) * p->depth + z : (z * p->height + y) * p->width + x;
}

static int64_t max_indices_inside(int64_t cell, int64_t size) { return tc_max(tc_min(cell, size - 1), 0); }

/* A line of the result, and which of its numbers a column of the windows lies inside for: [begin, end). */
typedef struct max_indices_line {
  max_indices_span depth, height;
  int64_t first; /* column of the first window's first cell, which may lie in the padding */
  int64_t begin, end;
} max_indices_line;

/* How ONNX counts a place that is counted in the order of memory. */
static int64_t max_indices_place(const tc_max_pool_indices_params *p, int64_t at) {
  if (!p->storage_order) {
    return at;
  }
  return max_indices_flat(p, at / (p->height * p->width), at / p->width % p->height, at % p->width);
}

/* Starts with what is below every number, at the first cell inside: so this place counts if no cell is greater. If the
 * window lies in the padding alone, it is the nearest place. Until the end, places are counted from where the window
 * begins, so that a cell has the same in all windows of a line. */
static void max_indices_start(const tc_max_pool_indices_params *p, const max_indices_line *line, int64_t *places) {
  const int64_t d = max_indices_inside(line->depth.first, p->depth);
  const int64_t from = (d * p->height + max_indices_inside(line->height.first, p->height)) * p->width;
  for (int64_t w = 0; w < p->out_width; w++) {
    places[w] = from + max_indices_inside(MAX_INDICES_CELLS(p, width, w).first, p->width) - w * p->stride_width;
  }
}

/* Where column k of the windows lies inside. */
static void max_indices_column(const tc_max_pool_indices_params *p, max_indices_line *line, int64_t k) {
  line->first = k * p->dilation_width - p->before_width;
  line->begin = tc_min(line->first < 0 ? tc_ceil_div(-line->first, p->stride_width) : 0, p->out_width);
  const int64_t inside = p->width - line->first;
  line->end = tc_max(tc_min(inside > 0 ? tc_ceil_div(inside, p->stride_width) : 0, p->out_width), line->begin);
}

enum { MAX_INDICES_STRIP = 64 };

/* Brings together what lies `stride` elements apart. */
#define TC_BITS(kind, type, wraps)                                                                             \
  static void max_indices_pick_##kind(void *to, const void *from, const int64_t stride, const int64_t count) { \
    type *restrict picked = to;                                                                                \
    const type *x = from;                                                                                      \
    if (stride == 2) {                                                                                         \
      for (int64_t i = 0; i < count; i++) {                                                                    \
        picked[i] = x[2 * i];                                                                                  \
      }                                                                                                        \
      return;                                                                                                  \
    }                                                                                                          \
    for (int64_t i = 0; i < count; i++) {                                                                      \
      picked[i] = x[stride * i];                                                                               \
    }                                                                                                          \
  }
TC_BITS_LIST
#undef TC_BITS

static void max_indices_pick(void *to, const void *from, size_t size, int64_t stride, int64_t count) {
  void (*const pick)(void *, const void *, int64_t, int64_t) = size == 1   ? max_indices_pick_U8
                                                               : size == 2 ? max_indices_pick_U16
                                                               : size == 4 ? max_indices_pick_U32
                                                                           : max_indices_pick_U64;
  pick(to, from, stride, count);
}

/* One cell of every window of a line at a time, without a branch to guess. */
#define TC_NUMBER(kind, type, wide)                                                                                  \
  static void max_indices_join_##kind(type *restrict y, int64_t *restrict places, const type *restrict cells,        \
                                      const int64_t place, const int64_t count) {                                    \
    for (int64_t i = 0; i < count; i++) {                                                                            \
      const type cell = cells[i], best = y[i];                                                                       \
      const bool better = (cell > best) | ((cell != cell) & (best == best));                                         \
      y[i] = better ? cell : best;                                                                                   \
      places[i] = better ? place : places[i];                                                                        \
    }                                                                                                                \
  }                                                                                                                  \
  static void max_indices_cells_##kind(const tc_max_pool_indices_params *p, type *y, int64_t *places, const type *x, \
                                       const max_indices_line *line, int64_t from) {                                 \
    type picked[MAX_INDICES_STRIP];                                                                                  \
    for (int64_t w = line->begin; w < line->end; w += MAX_INDICES_STRIP) {                                           \
      const int64_t count = tc_min(line->end - w, MAX_INDICES_STRIP);                                                \
      const type *cells = x + from + line->first + w * p->stride_width;                                              \
      if (p->stride_width > 1) {                                                                                     \
        max_indices_pick(picked, cells, sizeof(type), p->stride_width, count);                                       \
        cells = picked;                                                                                              \
      }                                                                                                              \
      max_indices_join_##kind(y + w, places + w, cells, from + line->first, count);                                  \
    }                                                                                                                \
  }                                                                                                                  \
  static void max_indices_line_##kind(const tc_max_pool_indices_params *p, void *to, int64_t *places,                \
                                      const void *from, max_indices_line *line) {                                    \
    type *y = to;                                                                                                    \
    for (int64_t w = 0; w < p->out_width; w++) {                                                                     \
      y[w] = (type)MAX_INDICES_LOWEST_##kind;                                                                        \
    }                                                                                                                \
    for (int64_t d = line->depth.first; d < line->depth.end; d += line->depth.step) {                                \
      for (int64_t h = line->height.first; h < line->height.end; h += line->height.step) {                           \
        for (int64_t k = 0; k < p->kernel_width && k * p->dilation_width - p->before_width < p->width; k++) {        \
          max_indices_column(p, line, k);                                                                            \
          max_indices_cells_##kind(p, y, places, from, line, (d * p->height + h) * p->width);                        \
        }                                                                                                            \
      }                                                                                                              \
    }                                                                                                                \
  }
#define MAX_INDICES_LOWEST_F32 (-INFINITY)
#define MAX_INDICES_LOWEST_F64 (-INFINITY)
#define MAX_INDICES_LOWEST_I8 INT8_MIN
#define MAX_INDICES_LOWEST_U8 0
MAX_INDICES_LIST
#undef TC_NUMBER

/* One line of the result, whose elements have this size; the places count from the start of the image. */
static void max_indices_line_of(const tc_max_pool_indices_params *p, void *y, int64_t *places, const void *x,
                                max_indices_line *line) {
  max_indices_start(p, line, places);
  switch (p->type) {
#define TC_NUMBER(kind, type, wide)                 \
  case TC_TYPE_##kind:                              \
    max_indices_line_##kind(p, y, places, x, line); \
    break;
    MAX_INDICES_LIST
#undef TC_NUMBER
  }
}

static void TC_NAME(tc_max_pool_indices)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_max_pool_indices_params *p = call->params;
  const int64_t volume = p->depth * p->height * p->width, lines = p->out_depth * p->out_height;
  const int64_t size = tc_number_size(p->type);
  for (int64_t unit = begin; unit < end; unit++) {
    const char *x = (const char *)call->operands[MAX_INDICES_X] + unit * volume * size;
    for (int64_t i = 0; i < lines; i++) {
      const int64_t at = (unit * lines + i) * p->out_width;
      int64_t *places = (int64_t *)call->operands[MAX_INDICES_PLACES] + at;
      max_indices_line line = {.depth = MAX_INDICES_CELLS(p, depth, i / p->out_height),
                               .height = MAX_INDICES_CELLS(p, height, i % p->out_height)};
      max_indices_line_of(p, (char *)call->operands[MAX_INDICES_Y] + at * size, places, x, &line);
      for (int64_t w = 0; w < p->out_width; w++) {
        places[w] = unit * volume + max_indices_place(p, places[w] + w * p->stride_width);
      }
    }
  }
}

#endif
