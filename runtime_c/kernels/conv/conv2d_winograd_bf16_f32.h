/* conv2d_winograd_bf16_f32: F(2x2, 3x3) as conv2d_winograd_f32 has it, with transformed patches and weights rounded to
 * bfloat16. (The transforms of F(4x4, 3x3) would magnify what is rounded off.) State and scratch as there, panels in
 * the words of rounded_bf16.h. */
#ifndef TINYCOMP_KERNELS_CONV_CONV2D_WINOGRAD_BF16_F32_H
#define TINYCOMP_KERNELS_CONV_CONV2D_WINOGRAD_BF16_F32_H

#include "vocabulary.h"

#include "../gemm/rounded_bf16.h"
#include "conv2d_winograd_f32.h"

/* How many channels are transformed and packed at a time: an even number. */
enum { WINO_BF16_PACKED = 8, WINO_BF16_PRODUCTS = 16 };

static int64_t wino_bf16_words(const tc_conv2d_winograd_bf16_f32_params *p) {
  return tc_has_dot_bf16() ? tc_ceil_div(p->channels, 2) : p->channels;
}

static wino_plan wino_bf16_plan_make(const tc_conv2d_winograd_bf16_f32_params *p, int64_t l2_bytes) {
  wino_plan plan = wino_plan_make(p, l2_bytes);
  plan.panel_floats = tc_packed_floats(wino_bf16_words(p), p->out_channels);
  return plan;
}

static void TC_NAME(tc_conv2d_winograd_bf16_f32_prepare)(tc_prepare *prepare) {
  const tc_conv2d_winograd_bf16_f32_params *p = prepare->params;
  TC_REQUIRE(prepare, p->algorithm == TC_CONV_WINOGRAD_2, "there is no algorithm %lld here", (long long)p->algorithm);
  TC_REQUIRE(prepare, p->channels >= 0 && p->channels <= TC_MAX_BYTES, "%lld channels are too many",
             (long long)p->channels);
  wino_prepare(prepare, wino_bf16_words(p));
}

static void TC_NAME(tc_conv2d_winograd_bf16_f32_pack)(const tc_prepare *prepare, void *state) {
  const tc_conv2d_winograd_bf16_f32_params *p = prepare->params;
  const wino_plan plan = wino_bf16_plan_make(p, prepare->l2_bytes);
  const bool pairs = tc_has_dot_bf16();
  const int64_t words = wino_bf16_words(p);
  const float *weights = prepare->constants[CONV_W], *bias = prepare->constants[CONV_BIAS];
  float *panels = (float *)state + plan.padded_out + plan.padded_in;
  float lines[WINO_BF16_PRODUCTS][(WINO_BF16_PACKED + 1) * TC_PANEL];
  double g[WINO_IN][3];
  wino_filter_matrix(plan.out, g);
  for (int64_t o = 0; o < p->out_channels; o++) {
    ((float *)state)[o] = bias ? bias[o] : 0.0f;
  }
  for (int64_t first = 0; first < p->out_channels; first += TC_PANEL) {
    const int64_t columns = tc_min(p->out_channels - first, TC_PANEL), width = tc_round_up(columns, TC_LANES);
    float *to = panels + first * words;
    for (int64_t begin = 0; begin < p->channels; begin += WINO_BF16_PACKED) {
      const int64_t count = tc_min(p->channels - begin, WINO_BF16_PACKED);
      for (int64_t c = 0; c < count; c++) {
        for (int64_t o = 0; o < columns; o += TC_LANES) {
          wino_filter_2d(plan.out, g, weights + ((first + o) * p->channels + begin + c) * 9, p->channels * 9,
                         tc_min(columns - o, TC_LANES), lines[0] + c * width + o, (WINO_BF16_PACKED + 1) * TC_PANEL);
        }
      }
      for (int e = 0; e < plan.products; e++) {
        bf16_pack_lines(pairs, lines[e], count, width, to + e * plan.panel_floats);
      }
      to += (pairs ? tc_ceil_div(count, 2) : count) * width;
    }
  }
}

/* Rounds the transformed patches where they lie. */
static void wino_round_patches(const wino_unit *u, bool pairs) {
  const tc_conv2d_winograd_bf16_f32_params *p = u->call->params;
  for (int e = 0; e < u->plan.products; e++) {
    for (int64_t t = 0; t < u->tile_count; t++) {
      float *patch = u->patches + e * u->plan.in_stride + t * u->plan.padded_in;
      bf16_round_tap(pairs, patch, p->channels, patch);
    }
  }
}

static void TC_NAME(tc_conv2d_winograd_bf16_f32)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_conv2d_winograd_bf16_f32_params *p = call->params;
  const wino_plan plan = wino_bf16_plan_make(p, call->l2_bytes);
  wino_unit u = wino_unit_make(call, &plan);
  u.depth = wino_bf16_words(p);
#if TC_DOT_BF16
  u.tiles = tc_has_dot_bf16() ? tc_tiles_bf16 : NULL;
#endif
  int64_t block = -1; /* whose patches are in scratch */
  for (int64_t unit = begin; unit < end; unit++) {
    wino_seek(&u, unit);
    if (block != unit / plan.groups) {
      block = unit / plan.groups;
      wino_begin(&u);
      wino_round_patches(&u, tc_has_dot_bf16());
    }
    wino_multiply(&u);
    wino_end(&u);
  }
}

#endif
