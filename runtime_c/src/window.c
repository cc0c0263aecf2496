/* Checks of window geometry. */
#include "window.h"

TC_HOOK void tc_check_window(tc_prepare *prepare, const tc_window *w) {
  enum { MOST = 1 << 24 }; /* a product of two stays far below 2^63 */
  const int64_t sizes[] = {w->batch, w->height, w->width, w->out_height, w->out_width, w->pad_top, w->pad_left};
  for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
    TC_REQUIRE(prepare, sizes[i] >= 0 && sizes[i] <= MOST, "a size or pad of %lld is out of range",
               (long long)sizes[i]);
  }
  const int64_t steps[] = {w->kernel_height, w->kernel_width,    w->stride_height,
                           w->stride_width,  w->dilation_height, w->dilation_width};
  for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
    TC_REQUIRE(prepare, steps[i] > 0 && steps[i] <= MOST, "a kernel size, stride or dilation of %lld is out of range",
               (long long)steps[i]);
  }
}

TC_HOOK void tc_touch_image(tc_prepare *prepare, int operand, int64_t batch, int64_t height, int64_t width,
                            int64_t stride, int64_t channels, int element_size) {
  tc_touch_rows(prepare, operand, TC_PRODUCT(prepare, batch, height, width), stride, channels, element_size);
}
