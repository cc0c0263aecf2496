/* resize_taps: which cells of an axis every position of the resized axis reads, and with which weights. Units are
 * pieces of the resized axis. Coordinates are rounded step by step as ONNX's runtimes round them: no step is fused with
 * the next, so that the numbers are those of numpy. */
#ifndef TINYCOMP_KERNELS_RESIZE_RESIZE_TAPS_H
#define TINYCOMP_KERNELS_RESIZE_RESIZE_TAPS_H

#include "vocabulary.h"

enum { TAPS_CELLS, TAPS_WEIGHTS, TAPS_SCALES, TAPS_REGION };
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

/* An axis as a run finds it. */
typedef struct taps_axis {
  const tc_resize_taps_params *p;
  double scale;
  double length;    /* the scale times the size, which may be a fraction where the output is rounded down */
  double stretch;   /* of the filter */
  float start, end; /* of the region, as fractions of the axis */
} taps_axis;

static taps_axis taps_scaled(const tc_resize_taps_params *p, double scale) {
  return (taps_axis){.p = p,
                     .scale = scale,
                     .length = p->whole ? (double)p->output : (double)((float)p->size * (float)scale),
                     .stretch = p->antialias ? fmin(scale, 1.0) : 1.0,
                     .end = 1.0f};
}

/* What a call knows of the axis before it runs; where scales are an operand, the least that they may be: the output is
 * the scaled size, rounded down or to the nearest. */
static taps_axis taps_known(const tc_resize_taps_params *p, bool scales) {
  const double output = scales ? fmax((double)p->output - 0.5, 0.5) : (double)p->output;
  return taps_scaled(p, p->scale != 0.0f ? (double)p->scale : output / (double)tc_max(p->size, 1));
}

/* How many cells a position reads on either side. */
static int64_t taps_reach(const taps_axis *axis) {
  const double radius = axis->p->mode == TC_RESIZE_CUBIC ? 2.0 : 1.0;
  return (int64_t)fmin(ceil(radius / axis->stretch), (double)(INT64_C(1) << 40));
}

static void TC_NAME(tc_resize_taps_prepare)(tc_prepare *prepare) {
  const tc_resize_taps_params *p = prepare->params;
  TC_REQUIRE(prepare, p->size >= 0 && p->size <= TC_MAX_BYTES && p->output >= 0 && p->output <= TC_MAX_BYTES,
             "a size is out of range");
  TC_REQUIRE(prepare, p->size > 0 || p->output == 0, "an axis without cells is resized to %lld", (long long)p->output);
  TC_REQUIRE(prepare, p->mode >= TC_RESIZE_NEAREST && p->mode <= TC_RESIZE_CUBIC, "an unknown mode of resizing");
  TC_REQUIRE(prepare, p->coordinates >= TC_RESIZE_HALF_PIXEL && p->coordinates <= TC_RESIZE_CROP,
             "unknown coordinates of resizing");
  TC_REQUIRE(prepare, p->rounding >= TC_RESIZE_ROUND_PREFER_FLOOR && p->rounding <= TC_RESIZE_FLOOR_UNLESS_SHRINKING,
             "an unknown rounding of coordinates");
  TC_REQUIRE(prepare, p->scale >= 0.0f && p->scale < INFINITY, "a scale is not positive");
  TC_REQUIRE(prepare, tc_present(prepare, TAPS_WEIGHTS) || p->mode == TC_RESIZE_NEAREST, "taps need weights");
  TC_REQUIRE(prepare, (p->whole | 1) == 1, "whole must be 0 or 1");
  TC_REQUIRE(prepare, p->place >= 0 && p->places > p->place && p->places <= TC_MAX_RANK,
             "there is no axis %lld of %lld", (long long)p->place, (long long)p->places);
  TC_REQUIRE(prepare, p->scale == 0.0f || !tc_present(prepare, TAPS_SCALES), "the scale of an axis is given twice");
  TC_REQUIRE(prepare, p->scale != 0.0f || p->whole || tc_present(prepare, TAPS_SCALES),
             "the scale of an axis is missing");
  TC_REQUIRE(prepare, (p->coordinates == TC_RESIZE_CROP) == tc_present(prepare, TAPS_REGION),
             "a crop needs a region, and nothing else does");
  const int64_t count = TC_PRODUCT(prepare, p->output, p->taps);
  tc_touch(prepare, TAPS_CELLS, count, sizeof(int64_t));
  tc_touch(prepare, TAPS_WEIGHTS, count, sizeof(float));
  tc_touch(prepare, TAPS_SCALES, p->places, sizeof(double));
  tc_touch(prepare, TAPS_REGION, 2 * p->places, sizeof(float));
  if (tc_refused(prepare)) {
    return;
  }
  const taps_axis axis = taps_known(p, tc_present(prepare, TAPS_SCALES));
  const int64_t reach = p->output ? taps_reach(&axis) : 1;
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

static float taps_half_pixel(const taps_axis *axis, float j) {
  return taps_float(taps_float(j + 0.5f) / (float)axis->scale) - 0.5f;
}

static float taps_cropped(const taps_axis *axis, float j) {
  const float last = (float)(axis->p->size - 1);
  if (axis->p->output <= 1) {
    return taps_float(0.5f * taps_float(axis->start + axis->end)) * last;
  }
  const float along = taps_float(taps_float(j * taps_float(axis->end - axis->start)) * last);
  return taps_float(axis->start * last) + taps_float(along / (float)(axis->length - 1.0));
}

/* Where on the axis position j of the resized one lies. */
static float taps_coordinate(const taps_axis *axis, int64_t place) {
  const tc_resize_taps_params *p = axis->p;
  const float j = (float)place;
  switch (p->coordinates) {
    case TC_RESIZE_HALF_PIXEL:
      return taps_half_pixel(axis, j);
    case TC_RESIZE_HALF_PIXEL_SYMMETRIC: {
      const float adjustment = taps_float((float)p->output / (float)axis->length);
      const float start = taps_float((float)((double)p->size / 2.0) * taps_float(1.0f - adjustment));
      return start + taps_float(taps_half_pixel(axis, j));
    }
    case TC_RESIZE_PYTORCH_HALF_PIXEL:
      return p->output > 1 ? taps_half_pixel(axis, j) : 0.0f;
    case TC_RESIZE_ALIGN_CORNERS:
      return p->output > 1 ? taps_float(j * (float)(p->size - 1)) / (float)(axis->length - 1.0) : 0.0f;
    case TC_RESIZE_ASYMMETRIC:
      return (float)((double)j / axis->scale);
    case TC_RESIZE_CROP:
      return taps_cropped(axis, j);
    default:
      return taps_float(j + 0.5f) / (float)axis->scale;
  }
}

static int64_t taps_inside(double cell, int64_t size) {
  return cell > 0.0 ? (int64_t)fmin(cell, (double)(size - 1)) : 0;
}

static int64_t taps_nearest(const taps_axis *axis, float at) {
  const tc_resize_taps_params *p = axis->p;
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
      return taps_inside(axis->scale < 1.0 ? ceilf(at) : floorf(at), p->size);
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
static void taps_row(const taps_axis *axis, float coordinate, double *found, int64_t *cells, float *weights) {
  const tc_resize_taps_params *p = axis->p;
  const double at = (double)coordinate, low = floor(at), stretch = axis->stretch;
  const int64_t reach = taps_reach(axis);
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

/* Fill one row with one cell of weight 1. */
static void taps_single(const tc_resize_taps_params *p, int64_t cell, int64_t *cells, float *weights) {
  for (int64_t t = 0; t < p->taps; t++) {
    cells[t] = cell;
    if (weights) {
      weights[t] = t == 0 ? 1.0f : 0.0f;
    }
  }
}

/* Reads the axis; false where its scale is none that its sizes allow. */
static bool taps_read(const tc_call *call, taps_axis *axis) {
  const tc_resize_taps_params *p = call->params;
  const double *scales = call->operands[TAPS_SCALES];
  const float *region = call->operands[TAPS_REGION];
  *axis = taps_known(p, scales != NULL);
  if (scales) {
    const int64_t most = taps_reach(axis);
    *axis = taps_scaled(p, scales[p->place]);
    const int64_t reach = axis->scale > 0.0 && axis->scale < (double)INFINITY ? taps_reach(axis) : most + 1;
    if (reach > most || (p->mode != TC_RESIZE_NEAREST && tc_min(2 * reach, tc_max(p->size, 1)) > p->taps)) {
      tc_fail(call, "a scale does not fit the sizes of its axis");
      return false;
    }
  }
  if (region) {
    axis->start = region[p->place];
    axis->end = region[p->places + p->place];
  }
  return true;
}

static void TC_NAME(tc_resize_taps)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_resize_taps_params *p = call->params;
  int64_t *cells = call->operands[TAPS_CELLS];
  float *weights = call->operands[TAPS_WEIGHTS];
  taps_axis axis;
  if (!taps_read(call, &axis)) {
    return;
  }
  const bool crops = p->coordinates == TC_RESIZE_CROP;
  const bool same = p->output == p->size && axis.scale == 1.0 && !crops;
  const int64_t last = tc_min(end * TAPS_PIECE, p->output);
  for (int64_t j = begin * TAPS_PIECE; j < last; j++) {
    int64_t *own_cells = cells + j * p->taps;
    float *own_weights = weights ? weights + j * p->taps : NULL;
    const float at = same ? (float)j : taps_coordinate(&axis, j);
    if (crops && !(at >= 0.0f && at <= (float)(p->size - 1))) {
      taps_single(p, TC_RESIZE_OUTSIDE, own_cells, own_weights);
    } else if (same || p->mode == TC_RESIZE_NEAREST) {
      taps_single(p, same ? j : taps_nearest(&axis, at), own_cells, own_weights);
    } else {
      taps_row(&axis, at, call->scratch, own_cells, own_weights);
    }
  }
}

#endif
