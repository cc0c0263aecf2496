/* grid_sample_f32: interpolation at arbitrary places. A unit is a piece of the points of one image. A point is a sum of
 * up to 64 pixels: cells and weights are found per axis, combined, and applied to all channels. Coordinates are rounded
 * step by step, so that the nearest cell is the one that numpy finds. */
#ifndef TINYCOMP_KERNELS_SAMPLE_GRID_SAMPLE_F32_H
#define TINYCOMP_KERNELS_SAMPLE_GRID_SAMPLE_F32_H

#include "vocabulary.h"

#include "../common/partial.h"

enum { GRID_Y, GRID_X, GRID_GRID };
enum { GRID_PIECE = 32, GRID_AXES = 3, GRID_TAPS = 4, GRID_MOST = 64, GRID_FEW = 4 };

/* The cells that a place reads along one axis. */
typedef struct grid_axis {
  int count;
  int64_t cells[GRID_TAPS];
  float weights[GRID_TAPS];
} grid_axis;

enum { GRID_CELLS = 2 };

/* Values pass through memory, so that the compiler fuses nothing with them. */
TC_INLINE float grid_float(float x) {
  __asm__("" : "+m"(x));
  return x;
}

static void TC_NAME(tc_grid_sample_f32_prepare)(tc_prepare *prepare) {
  const tc_grid_sample_f32_params *p = prepare->params;
  TC_REQUIRE(prepare, p->axes >= 1 && p->axes <= GRID_AXES, "images of %lld axes", (long long)p->axes);
  TC_REQUIRE(prepare, (p->axes > 2 || p->depth == 1) && (p->axes > 1 || p->height == 1),
             "a size is given of an axis that is not there");
  TC_REQUIRE(prepare, p->mode >= TC_RESIZE_NEAREST && p->mode <= TC_RESIZE_CUBIC, "an unknown mode of sampling");
  TC_REQUIRE(prepare, p->aligned >= 0 && p->aligned <= GRID_CELLS, "unknown coordinates of sampling");
  TC_REQUIRE(prepare, p->padding >= TC_GRID_ZEROS && p->padding <= TC_GRID_REFLECTION, "an unknown padding");
  TC_REQUIRE(prepare, p->x_pixel_stride >= p->channels && p->y_pixel_stride >= p->channels,
             "a pixel stride is smaller than the number of channels");
  const int64_t pixels = TC_PRODUCT(prepare, p->depth, p->height, p->width);
  const int64_t points = TC_PRODUCT(prepare, p->batch, p->points);
  const int64_t count = TC_PRODUCT(prepare, points, p->channels);
  tc_touch_rows(prepare, GRID_Y, points, p->y_pixel_stride, p->channels, sizeof(float));
  tc_touch_rows(prepare, GRID_X, TC_PRODUCT(prepare, p->batch, pixels), p->x_pixel_stride, p->channels, sizeof(float));
  tc_touch(prepare, GRID_GRID, TC_PRODUCT(prepare, points, p->axes), sizeof(float));
  if (tc_refused(prepare)) {
    return;
  }
  TC_REQUIRE(prepare, pixels > 0 || count == 0, "an image without pixels is sampled");
  prepare->units = count ? p->batch * tc_ceil_div(p->points, GRID_PIECE) : 0;
  const int64_t taps = p->mode == TC_RESIZE_NEAREST ? 1 : p->mode == TC_RESIZE_LINEAR ? 2 : 4;
  const double reads = pow((double)taps, (double)p->axes);
  prepare->cost = (double)count * reads + 40.0 * (double)points;
  prepare->work.flops = taps > 1 ? 2.0 * (double)count * reads : 0.0;
  tc_move(prepare, GRID_X, fmin((double)count * reads, TC_COUNT(p->batch, pixels, p->channels)), sizeof(float));
}

/* Folds a place into [low, high] by reflecting it at both ends as often as needed. */
static float grid_reflect(float x, float low, float high) {
  const float span = high - low;
  if (!(span > 0.0f)) {
    return low;
  }
  float distance = fmodf(grid_float(x - low), 2.0f * span);
  distance = distance < 0.0f ? distance + 2.0f * span : distance;
  return low + (distance > span ? 2.0f * span - distance : distance);
}

/* Keys' cubic convolution kernel with a = -0.75, as PyTorch has it. */
static float grid_cubic(float d) {
  const float a = -0.75f;
  return d <= 1.0f ? ((a + 2.0f) * d - (a + 3.0f)) * d * d + 1.0f : ((a * d - 5.0f * a) * d + 8.0f * a) * d - 4.0f * a;
}

TC_INLINE float grid_place(const tc_grid_sample_f32_params *p, float coordinate, int64_t size) {
  const float n = (float)size;
  float x = coordinate;
  if (p->aligned == GRID_CELLS) {
    /* as it is */
  } else if (p->mode == TC_RESIZE_NEAREST) { /* where a rounding may decide on the cell */
    const float moved = grid_float(coordinate + 1.0f);
    x = p->aligned ? moved / 2.0f * (n - 1.0f) : grid_float(grid_float(moved * n) - 1.0f) / 2.0f;
  } else {
    x = p->aligned ? (coordinate + 1.0f) * 0.5f * (n - 1.0f) : ((coordinate + 1.0f) * n - 1.0f) * 0.5f;
  }
  x = p->mode == TC_RESIZE_NEAREST ? rintf(x) : x;
  const float low = p->aligned ? 0.0f : -0.5f, high = p->aligned ? n - 1.0f : n - 0.5f;
  if (x < low || x > high) {
    if (p->padding == TC_GRID_BORDER && p->mode != TC_RESIZE_CUBIC) {
      return fminf(fmaxf(x, 0.0f), n - 1.0f);
    }
    return p->padding == TC_GRID_REFLECTION ? grid_reflect(x, low, high) : x;
  }
  return x;
}

TC_INLINE void grid_add(const tc_grid_sample_f32_params *p, grid_axis *axis, float cell, float weight, int64_t size) {
  const float last = (float)(size - 1);
  if (p->padding == TC_GRID_REFLECTION) {
    cell = grid_reflect(cell, p->aligned ? 0.0f : -0.5f, p->aligned ? last : last + 0.5f);
  } else if (p->padding == TC_GRID_ZEROS && !(cell >= 0.0f && cell <= last)) {
    return;
  }
  /* what is no number reads the first cell; sizes beyond 2^24 are not exact as floats */
  const int64_t index = cell > 0.0f ? (cell >= last ? size - 1 : (int64_t)cell) : 0;
  axis->cells[axis->count] = tc_min(index, size - 1);
  axis->weights[axis->count++] = weight;
}

TC_INLINE void grid_taps(const tc_grid_sample_f32_params *p, float coordinate, int64_t size, grid_axis *axis) {
  const float x = grid_place(p, coordinate, size);
  axis->count = 0;
  if (p->mode == TC_RESIZE_NEAREST) {
    grid_add(p, axis, x, 1.0f, size);
    return;
  }
  const float base = floorf(x), t = x - base;
  if (p->mode == TC_RESIZE_LINEAR) {
    grid_add(p, axis, base, 1.0f - t, size);
    grid_add(p, axis, base + 1.0f, t, size);
    return;
  }
  for (int i = -1; i < 3; i++) {
    grid_add(p, axis, base + (float)i, grid_cubic(fabsf(t - (float)i)), size);
  }
}

/* y = the sum of weights times pixels */
TC_INLINE void grid_blend(float *y, const float *image, const int64_t *places, const float *weights, int taps,
                          int64_t channels) {
  if (channels <= GRID_FEW) { /* such as colours: a vector would be loaded through a mask */
    for (int64_t c = 0; c < channels; c++) {
      float sum = 0.0f;
      for (int i = 0; i < taps; i++) {
        sum += weights[i] * image[places[i] + c];
      }
      y[c] = sum;
    }
    return;
  }
  for (int64_t c = 0; c < channels; c += TC_LANES) {
    tc_vf sum = tc_vf_set1(0.0f);
    for (int i = 0; i < taps; i++) {
      sum = tc_vf_fma(tc_vf_set1(weights[i]), tc_load_up_to(image + places[i] + c, channels - c), sum);
    }
    tc_store_up_to(y + c, sum, channels - c);
  }
}

/* The usual point of an image, between four pixels that exist; returns false for any other. */
TC_INLINE bool grid_bilinear(const tc_grid_sample_f32_params *p, float *y, const float *image, const float *at) {
  const float x = grid_place(p, at[0], p->width), line = grid_place(p, at[1], p->height);
  if (!(x >= 0.0f && x < (float)(p->width - 1) && line >= 0.0f && line < (float)(p->height - 1))) {
    return false;
  }
  const int64_t column = (int64_t)x, row = (int64_t)line, stride = p->x_pixel_stride, below = p->width * stride;
  const float right = x - (float)column, down = line - (float)row, left = 1.0f - right, up = 1.0f - down;
  const int64_t places[4] = {0, stride, below, below + stride};
  const float weights[4] = {up * left, up * right, down * left, down * right};
  grid_blend(y, image + row * below + column * stride, places, weights, 4, p->channels);
  return true;
}

static void TC_NAME(tc_grid_sample_f32)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_grid_sample_f32_params *p = call->params;
  const int64_t pieces = tc_ceil_div(p->points, GRID_PIECE), stride = p->x_pixel_stride;
  const int64_t sizes[GRID_AXES] = {p->depth, p->height, p->width};
  const bool bilinear = p->axes == 2 && p->mode == TC_RESIZE_LINEAR && p->width < 1 << 24 && p->height < 1 << 24;
  grid_axis axes[GRID_AXES];
  for (int i = 0; i < GRID_AXES; i++) {
    axes[i] = (grid_axis){.count = 1, .weights = {1.0f}};
  }
  for (int64_t unit = begin; unit < end; unit++) {
    const int64_t batch = unit / pieces, first = unit % pieces * GRID_PIECE;
    const int64_t last = tc_min(first + GRID_PIECE, p->points);
    const float *image = (const float *)call->operands[GRID_X] + batch * p->depth * p->height * p->width * stride;
    for (int64_t point = batch * p->points + first; point < batch * p->points + last; point++) {
      const float *at = (const float *)call->operands[GRID_GRID] + point * p->axes;
      float *y = (float *)call->operands[GRID_Y] + point * p->y_pixel_stride;
      if (bilinear && grid_bilinear(p, y, image, at)) {
        continue;
      }
      for (int i = 0; i < p->axes; i++) {
        const int64_t place = GRID_AXES - 1 - i;
        grid_taps(p, at[i], sizes[place], &axes[place]);
      }
      int64_t places[GRID_MOST];
      float weights[GRID_MOST];
      int taps = 0;
      for (int i = 0; i < axes[0].count; i++) {
        for (int j = 0; j < axes[1].count; j++) {
          const int64_t line = (axes[0].cells[i] * p->height + axes[1].cells[j]) * p->width;
          const float weight = axes[0].weights[i] * axes[1].weights[j];
          for (int k = 0; k < axes[2].count; k++) {
            places[taps] = (line + axes[2].cells[k]) * stride;
            weights[taps++] = weight * axes[2].weights[k];
          }
        }
      }
      grid_blend(y, image, places, weights, taps, p->channels);
    }
  }
}

#endif
