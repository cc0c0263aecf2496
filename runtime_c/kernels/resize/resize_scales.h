/* resize_scales: by which factor every axis is resized, where a run says so. One unit: there are eight axes at most. */
#ifndef TINYCOMP_KERNELS_RESIZE_RESIZE_SCALES_H
#define TINYCOMP_KERNELS_RESIZE_RESIZE_SCALES_H

#include "vocabulary.h"

enum { SCALES_Y, SCALES_GIVEN, SCALES_ASKED };

static void TC_NAME(tc_resize_scales_prepare)(tc_prepare *prepare) {
  const tc_resize_scales_params *p = prepare->params;
  const int64_t *size = TC_EIGHT(p, size), *output = TC_EIGHT(p, output);
  const bool given = p->policy == TC_RESIZE_BY_SCALES;
  TC_REQUIRE(prepare, p->policy >= TC_RESIZE_BY_SCALES && p->policy <= TC_RESIZE_NOT_SMALLER,
             "an unknown way to keep a ratio");
  TC_REQUIRE(prepare, tc_present(prepare, SCALES_GIVEN) == given && tc_present(prepare, SCALES_ASKED) != given,
             "either scales or sizes are given");
  TC_REQUIRE(prepare, p->count >= 0 && p->count <= TC_MAX_RANK, "%lld axes are too many", (long long)p->count);
  for (int64_t i = 0; i < p->count && i < TC_MAX_RANK; i++) {
    TC_REQUIRE(prepare, size[i] >= 0 && size[i] <= TC_MAX_BYTES && output[i] >= 0 && output[i] <= TC_MAX_BYTES,
               "a size is out of range");
  }
  if (tc_refused(prepare)) {
    return;
  }
  tc_touch(prepare, SCALES_Y, p->count, sizeof(double));
  tc_touch(prepare, SCALES_GIVEN, p->count, sizeof(float));
  tc_touch(prepare, SCALES_ASKED, p->count, sizeof(int64_t));
  prepare->units = p->count ? 1 : 0;
  prepare->cost = (double)p->count;
}

/* The scale of all axes by which none becomes longer, or none shorter, than asked. */
static double scales_common(const tc_resize_scales_params *p, const int64_t *asked) {
  const int64_t *size = TC_EIGHT(p, size);
  double common = (double)asked[0] / (double)tc_max(size[0], 1);
  for (int64_t i = 1; i < p->count; i++) {
    const double own = (double)asked[i] / (double)tc_max(size[i], 1);
    common = p->policy == TC_RESIZE_NOT_LARGER ? fmin(common, own) : fmax(common, own);
  }
  return common;
}

static void TC_NAME(tc_resize_scales)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_resize_scales_params *p = call->params;
  const int64_t *size = TC_EIGHT(p, size), *output = TC_EIGHT(p, output);
  const float *given = call->operands[SCALES_GIVEN];
  double *y = call->operands[SCALES_Y];
  const double common = given || begin >= end ? 1.0 : scales_common(p, call->operands[SCALES_ASKED]);
  for (int64_t i = 0; i < (begin < end ? p->count : 0); i++) {
    y[i] = given ? (double)given[i] : common;
    if (!(y[i] > 0.0 && y[i] < (double)INFINITY) && !(y[i] == 0.0 && !given)) {
      tc_fail(call, "a scale of Resize is not positive and finite");
      return;
    }
    float length = (float)size[i] * (float)y[i];
    __asm__("" : "+m"(length)); /* rounded by itself */
    if (floorf(given ? length : length + 0.5f) != (float)output[i]) {
      tc_fail(call, "a scale gives an axis another size than the result is declared with");
      return;
    }
  }
}

#endif
