/* max_pool_indices: the maximum of every window of images or volumes, and where it lies. A unit is one channel. Of
 * equal numbers the first counts, and NaN is greater than all others. */
#ifndef TINYCOMP_KERNELS_POOL_MAX_POOL_INDICES_H
#define TINYCOMP_KERNELS_POOL_MAX_POOL_INDICES_H

#include "vocabulary.h"

#include "../common/number.h"

enum { MAX_INDICES_Y, MAX_INDICES_PLACES, MAX_INDICES_X };

static bool max_indices_axis(int64_t size, int64_t output, int64_t kernel, int64_t stride, int64_t dilation,
                             int64_t before) {
  const int64_t most = INT64_C(1) << 31;
  return size >= 0 && size <= most && output >= 0 && output <= most && kernel > 0 && kernel <= most && stride > 0 &&
         stride <= most && dilation > 0 && dilation <= most && before >= 0 && before <= most &&
         (output == 0 || size > 0);
}

static void TC_NAME(tc_max_pool_indices_prepare)(tc_prepare *prepare) {
  const tc_max_pool_indices_params *p = prepare->params;
  const int size = tc_number_size(p->type);
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

/* The window of one number of the result, and the place that counts if no cell of it lies inside. */
typedef struct max_indices_window {
  max_indices_span depth, height, width;
} max_indices_window;

static int64_t max_indices_nearest(const tc_max_pool_indices_params *p, const max_indices_window *w) {
  return max_indices_flat(p, max_indices_inside(w->depth.first, p->depth),
                          max_indices_inside(w->height.first, p->height), max_indices_inside(w->width.first, p->width));
}

/* How ONNX counts a place that is counted in the order of memory. */
static int64_t max_indices_place(const tc_max_pool_indices_params *p, int64_t at) {
  if (!p->storage_order) {
    return at;
  }
  return max_indices_flat(p, at / (p->height * p->width), at / p->width % p->height, at % p->width);
}

#define TC_NUMBER(kind, type, wide)                                                                                \
  static void max_indices_find_##kind(const tc_max_pool_indices_params *p, type *y, int64_t *place, const type *x, \
                                      const max_indices_window *w) {                                               \
    const bool any =                                                                                               \
        w->depth.first < w->depth.end && w->height.first < w->height.end && w->width.first < w->width.end;         \
    if (!any) {                                                                                                    \
      *y = (type)MAX_INDICES_LOWEST_##kind;                                                                        \
      *place = max_indices_nearest(p, w);                                                                          \
      return;                                                                                                      \
    }                                                                                                              \
    int64_t found = (w->depth.first * p->height + w->height.first) * p->width + w->width.first;                    \
    type best = x[found];                                                                                          \
    for (int64_t d = w->depth.first; d < w->depth.end; d += w->depth.step) {                                       \
      for (int64_t h = w->height.first; h < w->height.end; h += w->height.step) {                                  \
        const int64_t line = (d * p->height + h) * p->width;                                                       \
        for (int64_t at = line + w->width.first; at < line + w->width.end; at += w->width.step) {                  \
          const type cell = x[at];                                                                                 \
          const bool better = (cell > best) | ((cell != cell) & (best == best)); /* without a branch to guess */   \
          best = better ? cell : best;                                                                             \
          found = better ? at : found;                                                                             \
        }                                                                                                          \
      }                                                                                                            \
    }                                                                                                              \
    *y = best;                                                                                                     \
    *place = max_indices_place(p, found);                                                                          \
  }                                                                                                                \
  static void max_indices_image_##kind(const tc_max_pool_indices_params *p, void *to, int64_t *places,             \
                                       const void *from, int64_t image) {                                          \
    const int64_t volume = p->depth * p->height * p->width, outputs = p->out_depth * p->out_height * p->out_width; \
    const type *x = (const type *)from + image * volume;                                                           \
    type *y = (type *)to + image * outputs;                                                                        \
    places += image * outputs;                                                                                     \
    for (int64_t d = 0; d < p->out_depth; d++) {                                                                   \
      max_indices_window window = {.depth = MAX_INDICES_CELLS(p, depth, d)};                                       \
      for (int64_t h = 0; h < p->out_height; h++) {                                                                \
        window.height = MAX_INDICES_CELLS(p, height, h);                                                           \
        for (int64_t w = 0; w < p->out_width; w++, y++, places++) {                                                \
          window.width = MAX_INDICES_CELLS(p, width, w);                                                           \
          max_indices_find_##kind(p, y, places, x, &window);                                                       \
          *places += image * volume;                                                                               \
        }                                                                                                          \
      }                                                                                                            \
    }                                                                                                              \
  }
#define MAX_INDICES_LOWEST_F32 (-INFINITY)
#define MAX_INDICES_LOWEST_F64 (-INFINITY)
#define MAX_INDICES_LOWEST_I8 INT8_MIN
#define MAX_INDICES_LOWEST_U8 0
#define MAX_INDICES_LOWEST_I16 INT16_MIN
#define MAX_INDICES_LOWEST_U16 0
#define MAX_INDICES_LOWEST_I32 INT32_MIN
#define MAX_INDICES_LOWEST_U32 0
#define MAX_INDICES_LOWEST_I64 INT64_MIN
#define MAX_INDICES_LOWEST_U64 0
TC_NUMBER_LIST
#undef TC_NUMBER

static void TC_NAME(tc_max_pool_indices)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_max_pool_indices_params *p = call->params;
  for (int64_t unit = begin; unit < end; unit++) {
    switch (p->type) {
#define TC_NUMBER(kind, type, wide)                                                                \
  case TC_TYPE_##kind:                                                                             \
    max_indices_image_##kind(p, call->operands[MAX_INDICES_Y], call->operands[MAX_INDICES_PLACES], \
                             call->operands[MAX_INDICES_X], unit);                                 \
    break;
      TC_NUMBER_LIST
#undef TC_NUMBER
    }
  }
}

#endif
