/* A walk over the windows of one line of output pixels, for pools of any type. */
#ifndef TINYCOMP_KERNELS_POOL_WALK_H
#define TINYCOMP_KERNELS_POOL_WALK_H

#include "vocabulary.h"

/* The part of a window's line or column that lies inside: positions [first, last), and how many ONNX counts. */
typedef struct pool_range {
  int64_t first, last, counted;
} pool_range;

/* start: where the window begins, negative in the padding; reach: how far positions are counted. */
static pool_range pool_clip(int64_t start, int64_t step, int64_t kernel, int64_t size, int64_t reach) {
  const int64_t first = start < 0 ? tc_min(tc_ceil_div(-start, step), kernel) : 0;
  const int64_t last = start >= size ? 0 : tc_min(tc_ceil_div(size - start, step), kernel);
  const int64_t counted = start >= reach ? 0 : tc_min(tc_ceil_div(reach - start, step), kernel);
  return (pool_range){first, tc_max(last, first), counted};
}

/* How far the padding behind an image counts. */
typedef struct pool_pads {
  int64_t bottom, right;
} pool_pads;

/* The window of one output pixel, and what leads to the next. */
typedef struct pool_walk {
  int64_t at;                     /* the first position inside, in elements from the first image */
  int64_t lines, columns;         /* of positions inside */
  int64_t line_step, column_step; /* in elements */
  int64_t counted;                /* positions, padding included */
  const tc_window *window;
  pool_range rows;
  int64_t first_line; /* inside, in elements from the first image */
  int64_t pixel, reach;
  bool was_inside;
} pool_walk;

static pool_walk pool_walk_make(const tc_window *w, pool_pads pads, int64_t pixel, int64_t line) {
  const int64_t top = line % w->out_height * w->stride_height - w->pad_top, image = line / w->out_height * w->height;
  const pool_range rows = pool_clip(top, w->dilation_height, w->kernel_height, w->height, w->height + pads.bottom);
  return (pool_walk){.line_step = rows.last - rows.first > 1 ? w->dilation_height * w->width * pixel : 0,
                     .window = w,
                     .rows = rows,
                     .first_line = (image + top + rows.first * w->dilation_height) * w->width * pixel,
                     .pixel = pixel,
                     .reach = w->width + pads.right};
}

/* Goes to an output pixel. The window behind one that is inside, and is inside itself, is the same, a stride further.
 */
static void pool_walk_to(pool_walk *walk, int64_t out_x) {
  const tc_window *w = walk->window;
  const int64_t left = out_x * w->stride_width - w->pad_left, lines = walk->rows.last - walk->rows.first;
  const bool inside = lines > 0 && left >= 0 && left + (w->kernel_width - 1) * w->dilation_width < w->width;
  if (inside && walk->was_inside) {
    walk->at += w->stride_width * walk->pixel;
    return;
  }
  const pool_range columns = pool_clip(left, w->dilation_width, w->kernel_width, w->width, walk->reach);
  const int64_t across = columns.last - columns.first;
  walk->at = lines && across ? walk->first_line + (left + columns.first * w->dilation_width) * walk->pixel : 0;
  walk->lines = across ? lines : 0;
  walk->columns = across;
  walk->column_step = across > 1 ? w->dilation_width * walk->pixel : 0;
  walk->counted = walk->rows.counted * columns.counted;
  walk->was_inside = inside;
}

#endif
