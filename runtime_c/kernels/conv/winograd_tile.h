/* The transforms of Winograd's minimal filtering F(m x m, 3x3) (Lavin and Gray, "Fast Algorithms for Convolutional
 * Neural Networks", 2015) in the Cook-Toom form, for tiles of m = 2 and m = 4 output pixels a side: with the points 0,
 * +-1 and infinity, and with 0, +-3/4, +-3/2 and infinity. These keep the error of float at that of a direct
 * convolution; for m = 4 the usual 0, +-1, +-2 lose about two bits. Functions that take `out` = m as a literal are
 * inlined, so that the branches on it vanish. */
#ifndef TINYCOMP_KERNELS_CONV_WINOGRAD_TILE_H
#define TINYCOMP_KERNELS_CONV_WINOGRAD_TILE_H

#include "vocabulary.h"

#include "../gemm/tile_f32.h"

/* The largest tile's sides, and its number of products. */
enum { WINO_OUT = 4, WINO_IN = WINO_OUT + 2, WINO_PRODUCTS = WINO_IN * WINO_IN };

#define WINO_A 0.75f
#define WINO_B 1.5f
#define WINO_A2 (WINO_A * WINO_A)
#define WINO_B2 (WINO_B * WINO_B)

/* One dimension of the input transform: the values of the polynomials that vanish at all other points. */
TC_INLINE void wino_input_1d(const int out, const tc_vf d[WINO_IN], tc_vf t[WINO_IN]) {
  if (out == 2) {
    t[0] = tc_vf_sub(d[2], d[0]);
    t[1] = tc_vf_add(d[2], d[1]);
    t[2] = tc_vf_sub(d[2], d[1]);
    t[3] = tc_vf_sub(d[3], d[1]);
    return;
  }
  const tc_vf sum = tc_vf_set1(-(WINO_A2 + WINO_B2)), product = tc_vf_set1(WINO_A2 * WINO_B2);
  const tc_vf a2 = tc_vf_set1(-WINO_A2), b2 = tc_vf_set1(-WINO_B2);
  const tc_vf even_a = tc_vf_fma(b2, d[2], d[4]), even_b = tc_vf_fma(a2, d[2], d[4]);
  const tc_vf odd_a = tc_vf_mul(tc_vf_set1(WINO_A), tc_vf_fma(b2, d[1], d[3]));
  const tc_vf odd_b = tc_vf_mul(tc_vf_set1(WINO_B), tc_vf_fma(a2, d[1], d[3]));
  t[0] = tc_vf_fma(product, d[0], tc_vf_fma(sum, d[2], d[4]));
  t[1] = tc_vf_add(even_a, odd_a);
  t[2] = tc_vf_sub(even_a, odd_a);
  t[3] = tc_vf_add(even_b, odd_b);
  t[4] = tc_vf_sub(even_b, odd_b);
  t[5] = tc_vf_fma(product, d[1], tc_vf_fma(sum, d[3], d[5]));
}

/* One dimension of the output transform: the sums over all points of point^i times the product there. */
TC_INLINE void wino_output_1d(const int out, const tc_vf m[WINO_IN], tc_vf y[WINO_OUT]) {
  if (out == 2) {
    y[0] = tc_vf_add(m[0], tc_vf_add(m[1], m[2]));
    y[1] = tc_vf_add(tc_vf_sub(m[1], m[2]), m[3]);
    return;
  }
  const tc_vf even_a = tc_vf_add(m[1], m[2]), odd_a = tc_vf_sub(m[1], m[2]);
  const tc_vf even_b = tc_vf_add(m[3], m[4]), odd_b = tc_vf_sub(m[3], m[4]);
  y[0] = tc_vf_add(m[0], tc_vf_add(even_a, even_b));
  y[1] = tc_vf_fma(tc_vf_set1(WINO_A), odd_a, tc_vf_mul(tc_vf_set1(WINO_B), odd_b));
  y[2] = tc_vf_fma(tc_vf_set1(WINO_A2), even_a, tc_vf_mul(tc_vf_set1(WINO_B2), even_b));
  y[3] = tc_vf_fma(tc_vf_set1(WINO_A2 * WINO_A), odd_a, tc_vf_fma(tc_vf_set1(WINO_B2 * WINO_B), odd_b, m[5]));
}

/* The matrix of the filter transform for tiles of `out` pixels: the values of 1, x and x^2 at every point, over the
 * product of the point's distances from the others. */
static void wino_filter_matrix(int out, double g[WINO_IN][3]) {
  static const double points_2[] = {0, 1, -1}, points_4[] = {0, WINO_A, -WINO_A, WINO_B, -WINO_B};
  const double *points = out == 2 ? points_2 : points_4;
  const int last = out + 1;
  for (int j = 0; j < last; j++) {
    double scale = 1;
    for (int k = 0; k < last; k++) {
      scale *= k == j ? 1 : points[j] - points[k];
    }
    g[j][0] = 1 / scale;
    g[j][1] = points[j] / scale;
    g[j][2] = points[j] * points[j] / scale;
  }
  g[last][0] = g[last][1] = 0;
  g[last][2] = 1;
}

/* Transforms a vector of 3x3 filters for tiles of `out` pixels, first down their columns and then along their rows, in
 * double precision because it happens once. Filters are `filter_stride` floats apart, products `stride`; lanes past
 * `count` become zero. */
TC_INLINE void wino_filter_2d(const int out, double g[WINO_IN][3], const float *filters, int64_t filter_stride,
                              int64_t count, float *to, int64_t stride) {
  double taps[9][TC_LANES] = {{0}}, lines[WINO_IN][3][TC_LANES];
  for (int64_t lane = 0; lane < count; lane++) {
    for (int k = 0; k < 9; k++) {
      taps[k][lane] = filters[lane * filter_stride + k];
    }
  }
  for (int i = 0; i < out + 2; i++) {
    for (int k = 0; k < 3; k++) {
      for (int lane = 0; lane < TC_LANES; lane++) {
        lines[i][k][lane] = g[i][0] * taps[k][lane] + g[i][1] * taps[3 + k][lane] + g[i][2] * taps[6 + k][lane];
      }
    }
  }
  for (int i = 0; i < out + 2; i++) {
    for (int j = 0; j < out + 2; j++) {
      float *product = to + (i * (out + 2) + j) * stride;
      for (int lane = 0; lane < TC_LANES; lane++) {
        const double sum = g[j][0] * lines[i][0][lane] + g[j][1] * lines[i][1][lane] + g[j][2] * lines[i][2][lane];
        product[lane] = (float)sum;
      }
    }
  }
}

/* Transforms one vector of channels of a patch, given by its pixels, to `to`; products are `stride` apart. */
TC_INLINE void wino_input_2d(const int out, const bool partial, const float *const pixels[WINO_PRODUCTS],
                             int64_t channel, int64_t count, float *to, int64_t stride) {
  const int in = out + 2;
  tc_vf columns[WINO_IN][WINO_IN];
#pragma GCC unroll 1
  for (int j = 0; j < in; j++) {
    tc_vf d[WINO_IN], t[WINO_IN];
#pragma GCC unroll 6
    for (int i = 0; i < in; i++) {
      d[i] = tc_load_column(pixels[i * in + j] + channel, partial, count);
    }
    wino_input_1d(out, d, t);
#pragma GCC unroll 6
    for (int i = 0; i < in; i++) {
      columns[i][j] = t[i];
    }
  }
#pragma GCC unroll 1
  for (int i = 0; i < in; i++) {
    tc_vf t[WINO_IN];
    wino_input_1d(out, columns[i], t);
#pragma GCC unroll 6
    for (int j = 0; j < in; j++) {
      tc_vf_store(to + (i * in + j) * stride, t[j]);
    }
  }
}

/* The first half of the output transform of one vector of columns of the products, which are `stride` apart: down their
 * columns. wino_output_1d of each line of the result is a line of sums. */
TC_INLINE void wino_output_columns(const int out, const float *products, int64_t stride,
                                   tc_vf lines[WINO_OUT][WINO_IN]) {
  const int in = out + 2;
#pragma GCC unroll 1
  for (int j = 0; j < in; j++) {
    tc_vf m[WINO_IN], y[WINO_OUT];
#pragma GCC unroll 6
    for (int i = 0; i < in; i++) {
      m[i] = tc_vf_load(products + (i * in + j) * stride);
    }
    wino_output_1d(out, m, y);
#pragma GCC unroll 4
    for (int i = 0; i < out; i++) {
      lines[i][j] = y[i];
    }
  }
}

#endif
