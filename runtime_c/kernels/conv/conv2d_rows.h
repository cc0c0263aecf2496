/* Where a block of output pixels finds its input: through one pointer per kernel position and pixel (direct), or
 * through one per line of the kernel (lines), whose values are adjacent in memory unless the line leaves the image.
 * Positions advance incrementally; only pixels near a border check bounds. */
#ifndef TINYCOMP_KERNELS_CONV_CONV2D_ROWS_H
#define TINYCOMP_KERNELS_CONV_CONV2D_ROWS_H

#include "vocabulary.h"

/* The first input position of an output pixel's window; may lie outside the image. */
typedef struct conv_pixel {
  int64_t image, out_y, out_x;
  int64_t y, x;
} conv_pixel;

static conv_pixel conv_pixel_at(const tc_window *w, int64_t index) {
  const int64_t line = index / w->out_width, out_x = index % w->out_width, out_y = line % w->out_height;
  return (conv_pixel){line / w->out_height, out_y, out_x, out_y * w->stride_height - w->pad_top,
                      out_x * w->stride_width - w->pad_left};
}

static inline void conv_pixel_next(const tc_window *w, conv_pixel *pixel) {
  pixel->x += w->stride_width;
  if (++pixel->out_x < w->out_width) {
    return;
  }
  pixel->out_x = 0;
  pixel->x = -w->pad_left;
  pixel->y += w->stride_height;
  if (++pixel->out_y == w->out_height) {
    pixel->out_y = 0;
    pixel->y = -w->pad_top;
    pixel->image++;
  }
}

static inline bool conv_is_interior(const tc_window *w, const conv_pixel *pixel) {
  return pixel->y >= 0 && pixel->x >= 0 && pixel->y + (w->kernel_height - 1) * w->dilation_height < w->height &&
         pixel->x + (w->kernel_width - 1) * w->dilation_width < w->width;
}

/* An input image and what stands for positions outside it. */
typedef struct conv_source {
  const float *data; /* of the group's first channel */
  int64_t pixel_stride;
  const float *zeros;
} conv_source;

static inline const float *conv_position(const tc_window *w, const conv_source *source, int64_t image, int64_t y,
                                         int64_t x) {
  if (y < 0 || y >= w->height || x < 0 || x >= w->width) {
    return source->zeros;
  }
  return source->data + ((image * w->height + y) * w->width + x) * source->pixel_stride;
}

/* One pixel's pointers by kernel position; consecutive ones are `row_stride` apart. */
static void conv_point_border(const tc_window *w, const conv_source *source, const conv_pixel *pixel,
                              const float **rows, int64_t row_stride) {
  for (int64_t i = 0; i < w->kernel_height; i++) {
    for (int64_t j = 0; j < w->kernel_width; j++) {
      *rows =
          conv_position(w, source, pixel->image, pixel->y + i * w->dilation_height, pixel->x + j * w->dilation_width);
      rows += row_stride;
    }
  }
}

static void conv_point_interior(const tc_window *w, const conv_source *source, const conv_pixel *pixel,
                                const float **rows, int64_t row_stride) {
  const float *line = conv_position(w, source, pixel->image, pixel->y, pixel->x);
  const int64_t line_step = w->dilation_height * w->width * source->pixel_stride;
  const int64_t step = w->dilation_width * source->pixel_stride;
  for (int64_t i = 0; i < w->kernel_height; i++, line += line_step) {
    for (int64_t j = 0; j < w->kernel_width; j++) {
      *rows = line + j * step;
      rows += row_stride;
    }
  }
}

/* Whether every output pixel sees the one input pixel of its own index. */
static inline bool conv_is_pointwise(const tc_window *w) {
  return w->kernel_height == 1 && w->kernel_width == 1 && w->stride_height == 1 && w->stride_width == 1 &&
         w->pad_top == 0 && w->pad_left == 0 && w->out_height == w->height && w->out_width == w->width;
}

/* The pointers of `count` output pixels from `first` on: rows[position * row_stride + pixel]. */
static void conv_point_rows(const tc_window *w, const conv_source *source, int64_t first, int64_t count,
                            const float **rows, int64_t row_stride) {
  if (conv_is_pointwise(w)) {
    for (int64_t m = 0; m < count; m++) {
      rows[m] = source->data + (first + m) * source->pixel_stride;
    }
    return;
  }
  conv_pixel pixel = conv_pixel_at(w, first);
  for (int64_t m = 0; m < count; m++) {
    if (conv_is_interior(w, &pixel)) {
      conv_point_interior(w, source, &pixel, rows + m, row_stride);
    } else {
      conv_point_border(w, source, &pixel, rows + m, row_stride);
    }
    conv_pixel_next(w, &pixel);
  }
}

/* Whole vectors up to the end of `count` values; what follows in `to` is overwritten, `from` is not read beyond them.
 */
TC_INLINE void conv_copy_short(const float *from, int64_t count, float *to) {
  int64_t i = 0;
  for (; i + TC_LANES <= count; i += TC_LANES) {
    tc_vf_store(to + i, tc_vf_load(from + i));
  }
  if (i < count) {
    tc_vf_store(to + i, tc_vf_load_first(from + i, count - i));
  }
}

/* Lines [begin, end) of the window of a pixel near a border, one behind the other, with zeros where there is no image.
 * Up to a vector behind them is overwritten as well. */
static void conv_copy_border(const tc_window *w, const conv_source *source, const conv_pixel *pixel, int64_t begin,
                             int64_t end, float *to) {
  const int64_t channels = source->pixel_stride, line = w->kernel_width * channels;
  const int64_t first = tc_max(-pixel->x, 0), last = tc_min(w->width - pixel->x, w->kernel_width);
  for (int64_t i = 0; i < (end - begin) * line; i += TC_LANES) {
    tc_vf_store(to + i, tc_vf_set1(0.0f));
  }
  for (int64_t i = begin; i < end; i++, to += line) {
    const int64_t y = pixel->y + i * w->dilation_height;
    if (y >= 0 && y < w->height && first < last) { /* what a copy overwrites behind itself is zero or yet to come */
      conv_copy_short(conv_position(w, source, pixel->image, y, pixel->x + first), (last - first) * channels,
                      to + first * channels);
    }
  }
}

/* One pixel's pointers by kernel line, near a border; `copies` has room for all of its lines. */
static void conv_point_border_lines(const tc_window *w, const conv_source *source, const conv_pixel *pixel,
                                    const float **rows, int64_t row_stride, float *copies) {
  const int64_t line = w->kernel_width * source->pixel_stride;
  const bool inside = pixel->x >= 0 && pixel->x + w->kernel_width <= w->width;
  for (int64_t i = 0; i < w->kernel_height; i++, rows += row_stride, copies += line) {
    const int64_t y = pixel->y + i * w->dilation_height;
    if (y < 0 || y >= w->height) {
      *rows = source->zeros;
    } else if (inside) {
      *rows = conv_position(w, source, pixel->image, y, pixel->x);
    } else {
      conv_copy_border(w, source, pixel, i, i + 1, copies);
      *rows = copies;
    }
  }
}

/* The pointers of `count` output pixels from `first` on: rows[line * row_stride + pixel]. For images whose pixels are
 * adjacent in memory and windows without dilation in x. */
static void conv_point_lines(const tc_window *w, const conv_source *source, int64_t first, int64_t count,
                             const float **rows, int64_t row_stride, float *copies) {
  const int64_t window = w->kernel_height * w->kernel_width * source->pixel_stride;
  const int64_t line_step = w->dilation_height * w->width * source->pixel_stride;
  conv_pixel pixel = conv_pixel_at(w, first);
  for (int64_t m = 0; m < count; m++) {
    if (conv_is_interior(w, &pixel)) {
      const float *line = conv_position(w, source, pixel.image, pixel.y, pixel.x);
      for (int64_t i = 0; i < w->kernel_height; i++) {
        rows[i * row_stride + m] = line + i * line_step;
      }
    } else {
      conv_point_border_lines(w, source, &pixel, rows + m, row_stride, copies + m * window);
    }
    conv_pixel_next(w, &pixel);
  }
}

/* Copies the windows of `count` output pixels from `first` on, one after another, and makes rows[pixel] point at each.
 * For images whose pixels are adjacent in memory and windows without dilation in x; `copies` has room for a vector more
 * than the windows. */
static void conv_copy_patches(const tc_window *w, const conv_source *source, int64_t first, int64_t count,
                              const float **rows, float *copies) {
  const int64_t line = w->kernel_width * source->pixel_stride;
  const int64_t line_step = w->dilation_height * w->width * source->pixel_stride;
  conv_pixel pixel = conv_pixel_at(w, first);
  for (int64_t m = 0; m < count; m++) {
    rows[m] = copies;
    if (conv_is_interior(w, &pixel)) {
      const float *from = conv_position(w, source, pixel.image, pixel.y, pixel.x);
      for (int64_t i = 0; i < w->kernel_height; i++, copies += line) {
        conv_copy_short(from + i * line_step, line, copies);
      }
    } else {
      conv_copy_border(w, source, &pixel, 0, w->kernel_height, copies);
      copies += w->kernel_height * line;
    }
    conv_pixel_next(w, &pixel);
  }
}

#endif
