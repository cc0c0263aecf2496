/* resize_taps: which cells of an axis every position of the resized axis reads, and with which weights. Units are
 * pieces of the resized axis. Coordinates are rounded step by step as ONNX's runtimes round them: no step is fused with
 * the next, so that the numbers are those of numpy. */
#ifndef TINYCOMP_KERNELS_RESIZE_RESIZE_TAPS_H
#define TINYCOMP_KERNELS_RESIZE_RESIZE_TAPS_H

#include "vocabulary.h"

enum { TAPS_CELLS, TAPS_WEIGHTS };
enum { TAPS_PIECE = 64, TAPS_SUM_BLOCK = 128, TAPS_MOST = 1 << 22 };

/* Values pass through memory, so that the compiler fuses nothing with them. */
TC_INLINE float taps_float(float x) {
  __asm__("" : "+m"(x));
  return x;
}

TC_INLINE double taps_double(double x) {
  __asm__("" : "+m"(x));
  return x;
}

static double taps_scale(const tc_resize_taps_params *p) {
  return p->scale != 0.0f ? (double)p->scale : (double)p->output / (double)tc_max(p->size, 1);
}

/* The scale times the size, which may be a fraction where the output is rounded down. */
static double taps_length(const tc_resize_taps_params *p) {
  return p->scale != 0.0f ? (double)((float)p->size * p->scale) : (double)p->output;
}

static double taps_stretch(const tc_resize_taps_params *p) { return p->antialias ? fmin(taps_scale(p), 1.0) : 1.0; }

/* How many cells a position reads on either side. */
static int64_t taps_reach(const tc_resize_taps_params *p) {
  return (int64_t)fmin(ceil((p->mode == TC_RESIZE_CUBIC ? 2.0 : 1.0) / taps_stretch(p)), (double)(INT64_C(1) << 40));
}

static void TC_NAME(tc_resize_taps_prepare)(tc_prepare *prepare) {
  const tc_resize_taps_params *p = prepare->params;
  TC_REQUIRE(prepare, p->size >= 0 && p->size <= TC_MAX_BYTES && p->output >= 0 && p->output <= TC_MAX_BYTES,
             "a size is out of range");
  TC_REQUIRE(prepare, p->size > 0 || p->output == 0, "an axis without cells is resized to %lld", (long long)p->output);
  TC_REQUIRE(prepare, p->mode >= TC_RESIZE_NEAREST && p->mode <= TC_RESIZE_CUBIC, "an unknown mode of resizing");
  TC_REQUIRE(prepare, p->coordinates >= TC_RESIZE_HALF_PIXEL && p->coordinates <= TC_RESIZE_HALF_PIXEL_FOR_NEAREST,
             "unknown coordinates of resizing");
  TC_REQUIRE(prepare, p->rounding >= TC_RESIZE_ROUND_PREFER_FLOOR && p->rounding <= TC_RESIZE_FLOOR_UNLESS_SHRINKING,
             "an unknown rounding of coordinates");
  TC_REQUIRE(prepare, p->scale >= 0.0f && p->scale < INFINITY, "a scale is not positive");
  TC_REQUIRE(prepare, tc_present(prepare, TAPS_WEIGHTS) || p->mode == TC_RESIZE_NEAREST, "taps need weights");
  const int64_t count = TC_PRODUCT(prepare, p->output, p->taps);
  tc_touch(prepare, TAPS_CELLS, count, sizeof(int64_t));
  tc_touch(prepare, TAPS_WEIGHTS, count, sizeof(float));
  if (tc_refused(prepare)) {
    return;
  }
  const int64_t reach = p->output ? taps_reach(p) : 1;
  const int64_t used = p->mode == TC_RESIZE_NEAREST ? 1 : tc_min(2 * reach, tc_max(p->size, 1));
  TC_REQUIRE(prepare, p->taps >= used, "%lld taps, but %lld cells are read", (long long)p->taps, (long long)used);
  TC_REQUIRE(prepare, reach >= 0 && reach <= TAPS_MOST, "%lld cells are read on either side", (long long)reach);
  prepare->scratch_bytes = TC_PRODUCT(prepare, 2, reach, sizeof(double));
  if (tc_refused(prepare)) {
    return;
  }
  prepare->units = tc_ceil_div(p->output, TAPS_PIECE);
  prepare->cost = 8.0 * (double)p->output * (double)(2 * reach);
  prepare->work.flops = prepare->cost;
}

static float taps_half_pixel(const tc_resize_taps_params *p, float j) {
  return taps_float(taps_float(j + 0.5f) / (float)taps_scale(p)) - 0.5f;
}

/* Where on the axis position j of the resized one lies. */
static float taps_coordinate(const tc_resize_taps_params *p, int64_t place) {
  const float j = (float)place;
  switch (p->coordinates) {
    case TC_RESIZE_HALF_PIXEL:
      return taps_half_pixel(p, j);
    case TC_RESIZE_HALF_PIXEL_SYMMETRIC: {
      const float adjustment = taps_float((float)p->output / (float)taps_length(p));
      const float start = taps_float((float)((double)p->size / 2.0) * taps_float(1.0f - adjustment));
      return start + taps_float(taps_half_pixel(p, j));
    }
    case TC_RESIZE_PYTORCH_HALF_PIXEL:
      return p->output > 1 ? taps_half_pixel(p, j) : 0.0f;
    case TC_RESIZE_ALIGN_CORNERS:
      return p->output > 1 ? taps_float(j * (float)(p->size - 1)) / (float)(taps_length(p) - 1.0) : 0.0f;
    case TC_RESIZE_ASYMMETRIC:
      return (float)((double)j / taps_scale(p));
    default:
      return taps_float(j + 0.5f) / (float)taps_scale(p);
  }
}

static int64_t taps_inside(double cell, int64_t size) {
  return cell > 0.0 ? (int64_t)fmin(cell, (double)(size - 1)) : 0;
}

static int64_t taps_nearest(const tc_resize_taps_params *p, float at) {
  switch (p->rounding) {
    case TC_RESIZE_ROUND_PREFER_FLOOR:
      return taps_inside(ceilf(taps_float(at - 0.5f)), p->size);
    case TC_RESIZE_ROUND_PREFER_CEIL:
      return taps_inside(floorf(taps_float(at + 0.5f)), p->size);
    case TC_RESIZE_FLOOR:
      return taps_inside(floorf(at), p->size);
    case TC_RESIZE_CEIL:
      return taps_inside(ceilf(at), p->size);
    default:
      return taps_inside(taps_scale(p) < 1.0 ? ceilf(at) : floorf(at), p->size);
  }
}

static double taps_triangle(double distance) { return fmin(fmax(1.0 - fabs(distance), 0.0), 1.0); }

/* Keys' cubic convolution kernel, IEEE ASSP 29(6), 1981. */
static double taps_cubic(double distance, double a) {
  const double x = fabs(distance);
  if (x <= 1.0) {
    const double slope = taps_double(taps_double((a + 2.0) * x) - (a + 3.0));
    return taps_double(taps_double(slope * x) * x) + 1.0;
  }
  if (!(x < 2.0)) {
    return 0.0;
  }
  const double third = taps_double(taps_double(a * x) - taps_double(5.0 * a));
  const double second = taps_double(taps_double(third * x) + taps_double(8.0 * a));
  return taps_double(second * x) - taps_double(4.0 * a);
}

/* The sum of up to TAPS_SUM_BLOCK numbers in numpy's order. */
static double taps_block_sum(const double *x, int64_t count) {
  if (count < 8) {
    double sum = 0.0;
    for (int64_t i = 0; i < count; i++) {
      sum += x[i];
    }
    return sum;
  }
  double parts[8];
  memcpy(parts, x, sizeof(parts));
  int64_t i = 8;
  for (; i < count - count % 8; i += 8) {
    for (int k = 0; k < 8; k++) {
      parts[k] += x[i + k];
    }
  }
  double sum = ((parts[0] + parts[1]) + (parts[2] + parts[3])) + ((parts[4] + parts[5]) + (parts[6] + parts[7]));
  for (; i < count; i++) {
    sum += x[i];
  }
  return sum;
}

/* Do so for any number of them: halves of whole eights are added up by themselves. */
static double taps_sum(const double *x, int64_t count) {
  if (count <= TAPS_SUM_BLOCK) {
    return taps_block_sum(x, count);
  }
  const int64_t half = count / 2 - count / 2 % 8;
  return taps_sum(x, half) + taps_sum(x + half, count - half);
}

/* Fill one row of the tables: cells in their order, each once, those without weight left out. */
static void taps_row(const tc_resize_taps_params *p, int64_t place, double *found, int64_t *cells, float *weights) {
  const double at = (double)taps_coordinate(p, place), low = floor(at), stretch = taps_stretch(p);
  const int64_t reach = taps_reach(p);
  for (int64_t t = 0; t < 2 * reach; t++) {
    const double cell = low + (double)(t + 1 - reach), distance = taps_double((cell - at) * stretch);
    const bool left_out = p->exclude_outside && (cell < 0.0 || cell >= (double)p->size);
    found[t] = left_out                     ? 0.0
               : p->mode == TC_RESIZE_CUBIC ? taps_cubic(distance, (double)p->cubic_a)
                                            : taps_triangle(distance);
  }
  const double sum = p->exclude_outside || p->antialias ? taps_sum(found, 2 * reach) : 1.0;
  int64_t used = 0, last = 0;
  for (int64_t t = 0; t < 2 * reach;) {
    const int64_t cell = taps_inside(low + (double)(t + 1 - reach), p->size);
    float weight = 0.0f;
    for (; t < 2 * reach && taps_inside(low + (double)(t + 1 - reach), p->size) == cell; t++) {
      weight += taps_float((float)(found[t] / sum));
    }
    if (weight != 0.0f) { /* a weight that is no number is one, too */
      cells[used] = last = cell;
      weights[used++] = weight;
    }
  }
  for (; used < p->taps; used++) {
    cells[used] = last;
    weights[used] = 0.0f;
  }
}

static void TC_NAME(tc_resize_taps)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_resize_taps_params *p = call->params;
  int64_t *cells = call->operands[TAPS_CELLS];
  float *weights = call->operands[TAPS_WEIGHTS];
  const bool same = p->output == p->size && taps_scale(p) == 1.0, is_nearest = p->mode == TC_RESIZE_NEAREST;
  const int64_t last = tc_min(end * TAPS_PIECE, p->output);
  for (int64_t j = begin * TAPS_PIECE; j < last; j++) {
    int64_t *own_cells = cells + j * p->taps;
    if (!same && !is_nearest) {
      taps_row(p, j, call->scratch, own_cells, weights + j * p->taps);
      continue;
    }
    const int64_t cell = same ? j : taps_nearest(p, taps_coordinate(p, j));
    for (int64_t t = 0; t < p->taps; t++) {
      own_cells[t] = cell;
      if (weights) {
        weights[j * p->taps + t] = t == 0 ? 1.0f : 0.0f;
      }
    }
  }
}

#endif
