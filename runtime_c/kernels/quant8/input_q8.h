/* The left operand of 8-bit products: a copy of what a block reads of x, in the form of the micro-kernel, with the zero
 * point where there is no image. So padding costs nothing, and numbers are widened once for all columns. */
#ifndef TINYCOMP_KERNELS_QUANT8_INPUT_Q8_H
#define TINYCOMP_KERNELS_QUANT8_INPUT_Q8_H

#include "vocabulary.h"

#include "../conv/conv2d_rows.h"
#include "tile_q8.h"
#include "block_q8.h"

/* Where a product finds x, and how it is copied: line by line, so that the windows of neighbouring pixels share what
 * they have in common and each kernel line is a tap; or each window for itself, as one tap, where the windows have
 * nothing in common or lie scattered, or lines are much shorter than words. */
typedef struct q8_input {
  tc_window window;
  int64_t channels; /* of a group */
  int64_t pixel_stride;
  int64_t zero_point;
  q8_form form;
  bool lines;
} q8_input;

static bool q8_has_lines(const tc_window *w, int64_t channels, q8_form form) {
  const int64_t line = w->kernel_width * channels, numbers = q8_form_numbers(form);
  const bool is_wasteful = form == Q8_ACROSS && w->kernel_height * tc_ceil_div(line, numbers) >=
                                                    2 * tc_ceil_div(w->kernel_height * line, numbers);
  return !is_wasteful && w->dilation_height == 1 && w->dilation_width == 1 && w->kernel_height * w->kernel_width > 1 &&
         w->stride_height <= w->kernel_height && w->stride_width <= w->kernel_width;
}

static int64_t q8_taps(const q8_input *in) { return in->lines ? in->window.kernel_height : 1; }
/* Numbers of one tap. */
static int64_t q8_depth(const q8_input *in) {
  return in->window.kernel_width * in->channels * (in->lines ? 1 : in->window.kernel_height);
}
static int64_t q8_number_bytes(const q8_input *in) { return q8_form_x_bytes(in->form); }

/* Copies `count` numbers and returns where the next ones go. */
static __attribute__((noinline)) char *q8_copy(const q8_input *in, const uint8_t *from, ptrdiff_t count, char *to) {
  if (in->form == Q8_QUADS) {
    memcpy(to, from, (size_t)count);
    return to + count;
  }
#if TC_ACROSS
  if (in->form == Q8_ACROSS) {
    tc_bytes_sign(to, from, count);
    return to + count;
  }
#endif
  uint16_t *wide = (uint16_t *)to;
#if TC_WIDEN_TWO
  tc_widen_unsigned(wide, from, count);
#else
  for (ptrdiff_t i = 0; i < count; i++) {
    wide[i] = from[i];
  }
#endif
  return to + 2 * count;
}

static char *q8_fill(const q8_input *in, ptrdiff_t count, char *to) {
  if (count <= 0) {
    return to;
  }
  if (q8_form_x_bytes(in->form) == 1) {
    memset(to, (int)(in->zero_point - q8_form_x_offset(in->form)), (size_t)count);
    return to + count;
  }
  uint16_t *wide = (uint16_t *)to;
  for (ptrdiff_t i = 0; i < count; i++) {
    wide[i] = (uint16_t)in->zero_point;
  }
  return to + 2 * count;
}

/* Copies `pixels` pixels of a line of an image from x on, which may lie outside. */
static char *q8_copy_line(const q8_input *in, const uint8_t *data, ptrdiff_t image, ptrdiff_t y, ptrdiff_t x,
                          ptrdiff_t pixels, char *to) {
  const ptrdiff_t height = (ptrdiff_t)in->window.height, width = (ptrdiff_t)in->window.width;
  const ptrdiff_t channels = (ptrdiff_t)in->channels, pixel_stride = (ptrdiff_t)in->pixel_stride;
  if (y < 0 || y >= height) {
    return q8_fill(in, pixels * channels, to);
  }
  const ptrdiff_t before = x < 0 ? -x : 0, first = before < pixels ? before : pixels;
  const ptrdiff_t inside = width - x < pixels ? width - x : pixels, last = inside > first ? inside : first;
  to = q8_fill(in, first * channels, to);
  if (first < last) {
    const uint8_t *from = data + ((image * height + y) * width + x + first) * pixel_stride;
    if (pixel_stride == channels) {
      to = q8_copy(in, from, (last - first) * channels, to);
    } else {
      for (ptrdiff_t i = first; i < last; i++, from += pixel_stride) {
        to = q8_copy(in, from, channels, to);
      }
    }
  }
  return q8_fill(in, (pixels - last) * channels, to);
}

/* Pixels that one line of copies holds for `across` neighbouring output pixels. */
static int64_t q8_line_pixels(const tc_window *w, int64_t across) {
  return (across - 1) * w->stride_width + w->kernel_width;
}

/* Lines of copies for so many lines of the output: those of different images have none in common. An output may have no
 * lines at all. */
static int64_t q8_copied_lines(const tc_window *w, int64_t lines) {
  const int64_t images = (lines + w->out_height - 2) / tc_max(w->out_height, 1) + 1;
  return images * (w->kernel_height - w->stride_height) + lines * w->stride_height;
}

static void q8_point_lines(const q8_input *in, const uint8_t *data, q8_place place, int64_t row_stride,
                           const char **rows, char *copies) {
  const tc_window *w = &in->window;
  const int64_t first = place.row / w->out_width, left = place.row % w->out_width;
  const int64_t across = tc_min(place.count, w->out_width), pixels = q8_line_pixels(w, across);
  const int64_t pitch = pixels * in->channels * q8_number_bytes(in);
  const int64_t step = w->stride_width * in->channels * q8_number_bytes(in);
  const char *top = copies; /* the first line of the window */
  for (int64_t line = first; (line - first) * w->out_width < place.count; line++, rows += across) {
    const int64_t out_y = line % w->out_height, y = out_y * w->stride_height - w->pad_top;
    const bool follows = line > first && out_y > 0;
    top = follows ? top + w->stride_height * pitch : copies;
    for (int64_t i = follows ? w->kernel_height - w->stride_height : 0; i < w->kernel_height; i++) {
      copies =
          q8_copy_line(in, data, line / w->out_height, y + i, left * w->stride_width - w->pad_left, pixels, copies);
    }
    for (int64_t i = 0; i < w->kernel_height; i++) {
      for (int64_t m = 0; m < across; m++) {
        rows[i * row_stride + m] = top + i * pitch + m * step;
      }
    }
  }
}

/* Bytes from one copied window to the next; not a multiple of what would put all of them into the same few lines of the
 * first-level cache. */
static int64_t q8_window_pitch(const q8_input *in) {
  const int64_t bytes = tc_round_up(q8_depth(in) * q8_number_bytes(in), 4);
  return bytes % 4096 ? bytes : bytes + 64;
}

/* Rows that lie side by side are copied as one, unless the copies would meet in the same lines of the cache. */
static bool q8_is_contiguous(const q8_input *in) {
  return conv_is_pointwise(&in->window) && in->pixel_stride == in->channels &&
         in->channels * q8_number_bytes(in) % 4096 != 0;
}

static void q8_point_contiguous(const q8_input *in, const uint8_t *data, q8_place place, const char **rows,
                                char *copies) {
  const int64_t pitch = in->channels * q8_number_bytes(in);
  q8_copy(in, data + place.row * in->channels, place.count * in->channels, copies);
  for (int64_t m = 0; m < place.count; m++) {
    rows[m] = copies + m * pitch;
  }
}

static void q8_point_windows(const q8_input *in, const uint8_t *data, q8_place place, const char **rows, char *copies) {
  const tc_window *w = &in->window;
  const int64_t pitch = q8_window_pitch(in);
  conv_pixel pixel = conv_pixel_at(w, place.row);
  for (int64_t m = 0; m < place.count; m++, copies += pitch) {
    rows[m] = copies;
    char *to = copies;
    for (int64_t i = 0; i < w->kernel_height; i++) {
      const int64_t y = pixel.y + i * w->dilation_height, across = w->dilation_width == 1 ? w->kernel_width : 1;
      for (int64_t j = 0; j < w->kernel_width; j += across) {
        to = q8_copy_line(in, data, pixel.image, y, pixel.x + j * w->dilation_width, across, to);
      }
    }
    conv_pixel_next(w, &pixel);
  }
}

/* Copies what a block of rows reads and points at it. */
static void q8_point(const q8_input *in, const uint8_t *data, q8_place place, int64_t row_stride, const char **rows,
                     char *copies) {
  if (in->lines) {
    q8_point_lines(in, data, place, row_stride, rows, copies);
  } else if (q8_is_contiguous(in)) {
    q8_point_contiguous(in, data, place, rows, copies);
  } else {
    q8_point_windows(in, data, place, rows, copies);
  }
}

/* The bytes that the copies of any block take, with what the last word may read behind them. */
static int64_t q8_copied_bytes(tc_prepare *prepare, const q8_input *in, const q8_cut *cut) {
  const tc_window *w = &in->window;
  const int64_t rest = 16;
  if (in->lines) {
    const int64_t across = tc_min(cut->piece, w->out_width);
    return TC_PRODUCT(prepare, q8_copied_lines(w, cut->block_lines), q8_line_pixels(w, across),
                      in->channels * q8_number_bytes(in)) +
           rest;
  }
  return TC_PRODUCT(prepare, cut->piece, q8_window_pitch(in)) + rest;
}

#endif
