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

#define TC_NUMBER(kind, type, wide)                                                                                \
  static void max_indices_image_##kind(const tc_max_pool_indices_params *p, void *to, int64_t *places,             \
                                       const void *from, int64_t image) {                                          \
    const int64_t volume = p->depth * p->height * p->width, outputs = p->out_depth * p->out_height * p->out_width; \
    const type *x = (const type *)from + image * volume;                                                           \
    type *y = (type *)to + image * outputs;                                                                        \
    places += image * outputs;                                                                                     \
    for (int64_t i = 0; i < outputs; i++) {                                                                        \
      const max_indices_span zs = MAX_INDICES_CELLS(p, depth, i / (p->out_height * p->out_width));                 \
      const max_indices_span ys = MAX_INDICES_CELLS(p, height, i / p->out_width % p->out_height);                  \
      const max_indices_span xs = MAX_INDICES_CELLS(p, width, i % p->out_width);                                   \
      bool any = false;                                                                                            \
      type best = 0;                                                                                               \
      int64_t place =                                                                                              \
          max_indices_flat(p, max_indices_inside(zs.first, p->depth), max_indices_inside(ys.first, p->height),     \
                           max_indices_inside(xs.first, p->width));                                                \
      for (int64_t d = zs.first; d < zs.end; d += zs.step) {                                                       \
        for (int64_t h = ys.first; h < ys.end; h += ys.step) {                                                     \
          for (int64_t w = xs.first; w < xs.end; w += xs.step) {                                                   \
            const type cell = x[(d * p->height + h) * p->width + w];                                               \
            if (!any || cell > best || (cell != cell && best == best)) {                                           \
              any = true;                                                                                          \
              best = cell;                                                                                         \
              place = max_indices_flat(p, d, h, w);                                                                \
            }                                                                                                      \
          }                                                                                                        \
        }                                                                                                          \
      }                                                                                                            \
      y[i] = any ? best : (type)MAX_INDICES_LOWEST_##kind;                                                         \
      places[i] = image * volume + place;                                                                          \
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
