/* The geometry that all two-dimensional window kernels share: convolutions and pools over NHWC images. */
#ifndef TINYCOMP_WINDOW_H
#define TINYCOMP_WINDOW_H

#include "kernel.h"

typedef struct tc_window {
  int64_t batch, height, width;
  int64_t out_height, out_width;
  int64_t kernel_height, kernel_width;
  int64_t stride_height, stride_width;
  int64_t dilation_height, dilation_width;
  int64_t pad_top, pad_left;
} tc_window;

/* The geometry out of any parameter struct that has fields of these names. */
#define TC_WINDOW(p)                                                                                                \
  ((tc_window){(p)->batch, (p)->height, (p)->width, (p)->out_height, (p)->out_width, (p)->kernel_height,            \
               (p)->kernel_width, (p)->stride_height, (p)->stride_width, (p)->dilation_height, (p)->dilation_width, \
               (p)->pad_top, (p)->pad_left})

/* Refuses sizes that make no sense or that could overflow the sums and products of positions. */
TC_HOOK void tc_check_window(tc_prepare *prepare, const tc_window *window);

/* States what is touched of images whose pixels are `stride` apart. */
TC_HOOK void tc_touch_image(tc_prepare *prepare, int operand, int64_t batch, int64_t height, int64_t width,
                            int64_t stride, int64_t channels, int element_size);

#endif
