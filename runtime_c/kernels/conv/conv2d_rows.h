/* Where a block of output pixels finds its input: through one pointer per kernel position and pixel (direct), or
 * copied to one row per pixel (im2col). Positions advance incrementally; only pixels near a border check bounds. */

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

/* The pointers of `count` output pixels from `first` on: rows[position * row_stride + pixel]. */
static void conv_point_rows(const tc_window *w, const conv_source *source, int64_t first, int64_t count,
                            const float **rows, int64_t row_stride) {
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

static inline void conv_copy(float *to, const float *from, int64_t count) {
  for (int64_t i = 0; i < count; i += TC_LANES) {
    const int64_t rest = tc_min(count - i, TC_LANES);
    tc_vf_store_first(to + i, tc_vf_load_first(from + i, rest), rest);
  }
}

/* Copies `count` values from each of `lines` lines that are `stride` apart to adjacent places. */
static void conv_copy_lines(float *to, const float *from, int64_t count, int64_t lines, int64_t stride) {
  for (int64_t i = 0; i < lines; i++) {
    conv_copy(to + i * count, from + i * stride, count);
  }
}

/* Copies a window that may leave the image, or whose line is not adjacent in memory. */
static void conv_copy_border(const tc_window *w, const conv_source *source, const conv_pixel *pixel, int64_t channels,
                             float *to) {
  for (int64_t i = 0; i < w->kernel_height; i++) {
    for (int64_t j = 0; j < w->kernel_width; j++) {
      conv_copy(
          to,
          conv_position(w, source, pixel->image, pixel->y + i * w->dilation_height, pixel->x + j * w->dilation_width),
          channels);
      to += channels;
    }
  }
}

/* The windows of `count` output pixels from `first` on, each a row of `copies`, and the pointers to these rows. */
static void conv_copy_rows(const tc_window *w, const conv_source *source, int64_t first, int64_t count,
                           int64_t channels, const float **rows, float *copies) {
  const int64_t line = w->kernel_width * channels, depth = w->kernel_height * line;
  const int64_t line_stride = w->dilation_height * w->width * source->pixel_stride;
  const bool adjacent = w->dilation_width == 1 && source->pixel_stride == channels;
  conv_pixel pixel = conv_pixel_at(w, first);
  for (int64_t m = 0; m < count; m++) {
    rows[m] = copies;
    if (adjacent && conv_is_interior(w, &pixel)) {
      const float *from = conv_position(w, source, pixel.image, pixel.y, pixel.x);
      conv_copy_lines(copies, from, line, w->kernel_height, line_stride);
    } else {
      conv_copy_border(w, source, &pixel, channels, copies);
    }
    copies += depth;
    conv_pixel_next(w, &pixel);
  }
}
