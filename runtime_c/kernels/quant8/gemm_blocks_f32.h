/* gemm_blocks_f32: rows of bytes with a scale per block times constant codes of 2, 4 or 8 bits with a scale, and
 * perhaps a zero point, per block of each column.
 *
 * Few rows are limited by the memory that the codes come from: a tile of one or two rows goes down several panels side
 * by side. With more rows a tile is one panel wide, so that codes are taken apart once for a dozen of them. A unit is
 * some panels times a block of rows.
 *
 * State: the padded bias, then for each panel of one vector of columns its codes, then its scales and zero points
 * [block][columns]. In a vector of codes, the bytes of a lane hold, from the lowest bits up, depths 0 to 3, then 4 to
 * 7, and so on. Where no instruction multiplies large codes exactly, those of 8 bits are taken as two of 4. */
#ifndef TINYCOMP_KERNELS_QUANT8_GEMM_BLOCKS_F32_H
#define TINYCOMP_KERNELS_QUANT8_GEMM_BLOCKS_F32_H

#include "vocabulary.h"

#include "../common/math.h"
#include "../common/partial.h"
#include "../common/activation.h"
#include "../cast/half.h"
#include "quantize_blocks_f32.h"

enum { NBITS_Y, NBITS_BYTES, NBITS_FIGURES, NBITS_CODES, NBITS_SCALES, NBITS_ZEROS, NBITS_BIAS };

enum { NBITS_VECTOR = 4 * TC_LANES, NBITS_UNIT_PANELS = 4, NBITS_BLOCK_ROWS = 96, NBITS_MOST_ROWS = 12 };

/* Up to so many rows wait for the memory: they ask for the codes of the next panels, and for scales that many bytes
 * ahead. What the processor fetches by itself ends with every page, and panels side by side begin many pages. */
enum { NBITS_FEW_ROWS = 2, NBITS_SCALES_AHEAD = 512 };

typedef struct nbits_plan {
  int64_t blocks, panels, groups, row_blocks, block_rows;
  int64_t codes_bytes; /* of a block of a panel */
  int64_t scale_size, zero_size;
  int64_t scales_at, zeros_at, panel_bytes; /* in a panel */
} nbits_plan;

static nbits_plan nbits_plan_make(const tc_gemm_blocks_f32_params *p) {
  nbits_plan plan = {.blocks = tc_ceil_div(p->k, p->block),
                     .panels = tc_ceil_div(p->n, TC_LANES),
                     .codes_bytes = p->block * p->bits / 8 * TC_LANES,
                     .scale_size = p->scale_type == TC_TYPE_F16 ? 2 : 4,
                     .zero_size = p->zero_type == TC_TYPE_F32 ? 4 : p->zero_type == TC_TYPE_U8};
  plan.groups = tc_ceil_div(plan.panels, NBITS_UNIT_PANELS);
  plan.row_blocks = tc_ceil_div(p->m, NBITS_BLOCK_ROWS);
  plan.block_rows = tc_round_up(tc_ceil_div(p->m, tc_max(plan.row_blocks, 1)), NBITS_MOST_ROWS);
  plan.row_blocks = tc_ceil_div(p->m, tc_max(plan.block_rows, 1));
  plan.scales_at = plan.blocks * plan.codes_bytes;
  plan.zeros_at = plan.scales_at + plan.blocks * plan.scale_size * TC_LANES;
  plan.panel_bytes = tc_round_up(plan.zeros_at + plan.blocks * plan.zero_size * TC_LANES, TC_ALIGNMENT);
  return plan;
}

/* Where the panels of a state begin. */
static int64_t nbits_panels_at(const nbits_plan *plan) {
  return tc_round_up(plan->panels * TC_LANES * (int64_t)sizeof(float), TC_ALIGNMENT);
}

static void TC_NAME(tc_gemm_blocks_f32_prepare)(tc_prepare *prepare) {
  const tc_gemm_blocks_f32_params *p = prepare->params;
  TC_REQUIRE(prepare, p->bits == 2 || p->bits == 4 || p->bits == 8, "no codes have %lld bits", (long long)p->bits);
  TC_REQUIRE(prepare, p->block > 0 && p->block % BLOCKS_SHORTEST == 0 && p->block <= BLOCKS_LONGEST,
             "a block of %lld is no multiple of 16 up to 256", (long long)p->block);
  TC_REQUIRE(prepare, p->scale_type == TC_TYPE_F32 || p->scale_type == TC_TYPE_F16, "no scales are of type %lld",
             (long long)p->scale_type);
  TC_REQUIRE(prepare, p->zero_type == TC_TYPE_F32 || p->zero_type == TC_TYPE_U8 || p->zero_type == -1,
             "no zero points are of type %lld", (long long)p->zero_type);
  TC_REQUIRE(prepare, tc_present(prepare, NBITS_ZEROS) == (p->zero_type != -1),
             "zero points are there or not, as their type says");
  tc_check_activation(prepare, p->activation, p->activation_a, p->activation_b);
  const int64_t macs = TC_PRODUCT(prepare, p->m, p->n, p->k);
  TC_PRODUCT(prepare, tc_plus(p->n, TC_LANES), tc_plus(p->k, p->block), 16); /* more than the state */
  if (tc_refused(prepare)) {
    return;
  }
  const nbits_plan plan = nbits_plan_make(p);
  TC_REQUIRE(prepare, p->pitch >= plan.blocks * p->block && p->ldc >= p->n, "a row stride is shorter than its row");
  tc_touch_rows(prepare, NBITS_Y, p->m, p->ldc, p->n, sizeof(float));
  tc_touch_rows(prepare, NBITS_BYTES, p->m, p->pitch, plan.blocks * p->block, 1);
  tc_touch(prepare, NBITS_FIGURES, TC_PRODUCT(prepare, p->m, 3, plan.blocks), sizeof(float));
  tc_touch(prepare, NBITS_CODES, TC_PRODUCT(prepare, p->n, plan.blocks, p->block * p->bits / 8), 1);
  tc_touch(prepare, NBITS_SCALES, TC_PRODUCT(prepare, p->n, plan.blocks), (int)plan.scale_size);
  if (p->zero_type == TC_TYPE_U8) {
    tc_touch(prepare, NBITS_ZEROS, TC_PRODUCT(prepare, p->n, tc_ceil_div(plan.blocks * p->bits, 8)), 1);
  } else {
    tc_touch(prepare, NBITS_ZEROS, TC_PRODUCT(prepare, p->n, plan.blocks), sizeof(float));
  }
  tc_touch(prepare, NBITS_BIAS, p->n, sizeof(float));
  if (tc_refused(prepare)) {
    return;
  }
  prepare->units = plan.groups * plan.row_blocks;
  prepare->cost = (double)macs;
  prepare->work.integer_operations = 2.0 * (double)macs;
  prepare->state_bytes = TC_PRODUCT(prepare, plan.panels, plan.panel_bytes + TC_LANES * (int64_t)sizeof(float)) +
                         TC_ALIGNMENT; /* of the bias */
  const int64_t bias = plan.panels * TC_LANES, panels = nbits_panels_at(&plan);
  tc_state_numbers(prepare, 0, bias, sizeof(float));
  tc_state_repeats(prepare, panels + plan.scales_at, plan.blocks * TC_LANES, plan.scale_size, plan.panels,
                   plan.panel_bytes);
  if (plan.zero_size > 1) {
    tc_state_repeats(prepare, panels + plan.zeros_at, plan.blocks * TC_LANES, plan.zero_size, plan.panels,
                     plan.panel_bytes);
  }
  TC_SHARE(prepare, p->n, p->k, p->bits, p->block, p->scale_type, p->zero_type);
}

static char *nbits_panel(const nbits_plan *plan, const void *state, int64_t panel) {
  return (char *)state + nbits_panels_at(plan) + panel * plan->panel_bytes;
}

/* The number at a place of a run of bytes that hold several each. */
TC_INLINE uint32_t nbits_code(const uint8_t *bytes, int64_t bits, int64_t at) {
  const int64_t bit = at * bits;
  return (uint32_t)bytes[bit / 8] >> bit % 8 & ((1u << bits) - 1);
}

static void nbits_pack_column(const tc_prepare *prepare, const nbits_plan *plan, int64_t column, void *state) {
  const tc_gemm_blocks_f32_params *p = prepare->params;
  char *panel = nbits_panel(plan, state, column / TC_LANES);
  const int64_t lane = column % TC_LANES, of_column = plan->blocks * p->block * p->bits / 8;
  const uint8_t *codes = (const uint8_t *)prepare->constants[NBITS_CODES] + column * of_column;
  const int64_t planes = 8 / p->bits, deep = 4 * planes; /* depths in a vector */
  for (int64_t k = 0; k < plan->blocks * p->block; k += deep) {
    uint8_t *to = (uint8_t *)panel + k / deep * NBITS_VECTOR + lane * 4;
    for (int64_t i = 0; i < deep; i++) {
      to[i % 4] |= (uint8_t)(nbits_code(codes, p->bits, k + i) << i / 4 * p->bits);
    }
  }
  const char *scales = (const char *)prepare->constants[NBITS_SCALES] + column * plan->blocks * plan->scale_size;
  const char *zeros = prepare->constants[NBITS_ZEROS];
  for (int64_t b = 0; b < plan->blocks; b++) {
    memcpy(panel + plan->scales_at + (b * TC_LANES + lane) * plan->scale_size, scales + b * plan->scale_size,
           (size_t)plan->scale_size);
    char *zero = panel + plan->zeros_at + (b * TC_LANES + lane) * plan->zero_size;
    if (plan->zero_size == 1) {
      const char *of_this = zeros + column * tc_ceil_div(plan->blocks * p->bits, 8);
      *zero = (char)nbits_code((const uint8_t *)of_this, p->bits, b);
    } else if (plan->zero_size) {
      memcpy(zero, zeros + (column * plan->blocks + b) * plan->zero_size, sizeof(float));
    }
  }
}

static void TC_NAME(tc_gemm_blocks_f32_pack)(const tc_prepare *prepare, void *state) {
  const tc_gemm_blocks_f32_params *p = prepare->params;
  const nbits_plan plan = nbits_plan_make(p);
  if (prepare->constants[NBITS_BIAS] && p->n) {
    memcpy(state, prepare->constants[NBITS_BIAS], (size_t)p->n * sizeof(float));
  }
  for (int64_t column = 0; column < p->n; column++) {
    nbits_pack_column(prepare, &plan, column, state);
  }
}

/* Rows times adjacent panels. */
typedef struct nbits_tile {
  const nbits_plan *plan;
  int64_t block;
  const char *panel;
  const float *bias;
  const uint8_t *rows[NBITS_MOST_ROWS];
  const float *figures[NBITS_MOST_ROWS];
  float *y[NBITS_MOST_ROWS];
  int64_t columns; /* of the last panel */
  float low, high;
} nbits_tile;

/* All functions of a tile are inlined with literal sizes, so that these live in registers. */
typedef struct nbits_sums {
  tc_vi v[NBITS_MOST_ROWS][4];
} nbits_sums;

/* Adds what the bits from `plane` on, of 16 depths after 16, contribute to the sums of a block. */
TC_INLINE void nbits_block(const int width, const int bits, const int first, const int planes, const bool native,
                           const int mr, const int nv, const nbits_tile *tile, const char *codes, int64_t from,
                           nbits_sums *sums) {
  const tc_vi mask = tc_vi_set1(bits == 8 ? -1 : ((1 << bits) - 1) * 0x01010101);
  for (int64_t k = 0; k < tile->block; k += BLOCKS_SHORTEST) {
#pragma GCC unroll 4
    for (int t = 0; t < width / 2; t++) { /* 16 depths are so many vectors */
      tc_vi both[4];
#pragma GCC unroll 4
      for (int v = 0; v < nv; v++) {
        const char *vector = codes + v * tile->plan->panel_bytes + (k * width / 32 + t) * NBITS_VECTOR;
        if (mr <= NBITS_FEW_ROWS) {
          __builtin_prefetch(vector + nv * tile->plan->panel_bytes);
        }
        both[v] = tc_vi_load(vector);
      }
#pragma GCC unroll 4
      for (int plane = first; plane < first + planes; plane++) {
        tc_vi part[4];
#pragma GCC unroll 4
        for (int v = 0; v < nv; v++) {
          part[v] = bits == 8 ? both[v] : tc_vi_and(plane ? tc_vi_down(both[v], plane * bits) : both[v], mask);
        }
#pragma GCC unroll 12
        for (int m = 0; m < mr; m++) {
          const int64_t depth = k + t * (32 / width) + (planes == 1 ? 0 : 4 * plane);
          const tc_vi x = tc_vi_load_quad(tile->rows[m] + from + depth);
#pragma GCC unroll 4
          for (int v = 0; v < nv; v++) {
            sums->v[m][v] = tc_vi_dot4_codes(native, sums->v[m][v], part[v], x);
          }
        }
      }
    }
  }
}

TC_INLINE void nbits_tile_run(const int bits, const bool native, const int mr, const int nv, const nbits_tile *tile) {
  const nbits_plan *plan = tile->plan;
  tc_vf total[NBITS_MOST_ROWS][4];
#pragma GCC unroll 12
  for (int m = 0; m < mr; m++) {
#pragma GCC unroll 4
    for (int v = 0; v < nv; v++) {
      total[m][v] = tc_vf_load(tile->bias + v * TC_LANES);
    }
  }
  for (int64_t b = 0; b < plan->blocks; b++) {
    const char *codes = tile->panel + b * plan->codes_bytes;
    const bool halves = bits == 8 && !(native && TC_DOT4_CODES_MOST >= 255);
    nbits_sums sums;
#pragma GCC unroll 12
    for (int m = 0; m < mr; m++) {
      const tc_vi start =
          plan->zero_size || halves ? tc_vi_set1(0) : tc_vi_load_quad(tile->figures[m] + plan->blocks + b);
#pragma GCC unroll 4
      for (int v = 0; v < nv; v++) {
        sums.v[m][v] = start;
      }
    }
    if (halves) {
      nbits_block(8, 4, 1, 1, native, mr, nv, tile, codes, b * tile->block, &sums);
#pragma GCC unroll 12
      for (int m = 0; m < mr; m++) {
        const tc_vi start = plan->zero_size ? tc_vi_set1(0) : tc_vi_load_quad(tile->figures[m] + plan->blocks + b);
#pragma GCC unroll 4
        for (int v = 0; v < nv; v++) {
          sums.v[m][v] = tc_vi_add(tc_vi_shift_left(sums.v[m][v], tc_vi_set1(4)), start);
        }
      }
      nbits_block(8, 4, 0, 1, native, mr, nv, tile, codes, b * tile->block, &sums);
    } else {
      nbits_block(bits, bits, 0, 8 / bits, native, mr, nv, tile, codes, b * tile->block, &sums);
    }
#pragma GCC unroll 4
    for (int v = 0; v < nv; v++) {
      const char *panel = tile->panel + v * plan->panel_bytes;
      const int64_t at = b * TC_LANES;
      if (mr <= NBITS_FEW_ROWS) {
        __builtin_prefetch(panel + plan->scales_at + at * plan->scale_size + NBITS_SCALES_AHEAD);
      }
      const tc_vf scale = plan->scale_size == 2 ? tc_vf_load_halves((const uint16_t *)(panel + plan->scales_at) + at)
                                                : tc_vf_load((const float *)(panel + plan->scales_at) + at);
      if (plan->zero_size) {
        const char *zeros = panel + plan->zeros_at;
        const tc_vf zero = plan->zero_size == 1 ? tc_vi_to_float(tc_vi_load_bytes((const uint8_t *)zeros + at))
                                                : tc_vf_load((const float *)zeros + at);
#pragma GCC unroll 12
        for (int m = 0; m < mr; m++) {
          const float *figures = tile->figures[m] + b;
          const tc_vf away = tc_vf_mul(zero, tc_vf_set1(figures[2 * plan->blocks]));
          const tc_vf sum = tc_vf_sub(tc_vi_to_float(sums.v[m][v]), away);
          total[m][v] = tc_vf_fma(sum, tc_vf_mul(scale, tc_vf_set1(figures[0])), total[m][v]);
        }
      } else {
#pragma GCC unroll 12
        for (int m = 0; m < mr; m++) {
          const tc_vf factor = tc_vf_mul(scale, tc_vf_set1(tile->figures[m][b]));
          total[m][v] = tc_vf_fma(tc_vi_to_float(sums.v[m][v]), factor, total[m][v]);
        }
      }
    }
  }
#pragma GCC unroll 12
  for (int m = 0; m < mr; m++) {
#pragma GCC unroll 4
    for (int v = 0; v < nv; v++) {
      tc_store_up_to(tile->y[m] + v * TC_LANES, tc_clamp(total[m][v], tile->low, tile->high),
                     v == nv - 1 ? tile->columns : TC_LANES);
    }
  }
}

/* The shapes of a tile, fewest rows first: TC_NBITS_TILE(rows, panels). */
#if TC_REGISTERS == 32
#define TC_NBITS_SHAPES(bits, native) \
  TC_NBITS_TILE(bits, native, 1, 4)   \
  TC_NBITS_TILE(bits, native, 2, 4)   \
  TC_NBITS_TILE(bits, native, 4, 2)   \
  TC_NBITS_TILE(bits, native, 8, 1)   \
  TC_NBITS_TILE(bits, native, 12, 1)
#else
#define TC_NBITS_SHAPES(bits, native) \
  TC_NBITS_TILE(bits, native, 1, 4)   \
  TC_NBITS_TILE(bits, native, 2, 2)   \
  TC_NBITS_TILE(bits, native, 4, 1)
#endif
#define TC_NBITS_LIST       \
  TC_NBITS_SHAPES(2, true)  \
  TC_NBITS_SHAPES(4, true)  \
  TC_NBITS_SHAPES(8, true)  \
  TC_NBITS_SHAPES(2, false) \
  TC_NBITS_SHAPES(4, false) \
  TC_NBITS_SHAPES(8, false)

/* With fewer panels than it takes side by side, a tile takes them one by one. */
#define TC_NBITS_TILE(bits, native, mr, nv)                                                                     \
  static __attribute__((noinline)) void nbits_tile_##bits##_##native##_##mr(const nbits_tile *tile, int side) { \
    if (side == nv) {                                                                                           \
      nbits_tile_run(bits, native, mr, nv, tile);                                                               \
    } else {                                                                                                    \
      nbits_tile_run(bits, native, mr, 1, tile);                                                                \
    }                                                                                                           \
  }
TC_NBITS_LIST
#undef TC_NBITS_TILE

typedef struct nbits_shape {
  int rows, side, bits;
  bool native;
  void (*run)(const nbits_tile *tile, int side);
} nbits_shape;

#define TC_NBITS_TILE(bits, native, mr, nv) {mr, nv, bits, native, nbits_tile_##bits##_##native##_##mr},
static const nbits_shape nbits_shapes[] = {TC_NBITS_LIST};
#undef TC_NBITS_TILE

/* The shape with the fewest rows that takes all of them at once, or else the one with the most. */
static const nbits_shape *nbits_shape_for(int64_t bits, bool native, int64_t rows) {
  const nbits_shape *best = NULL;
  for (size_t i = 0; i < sizeof(nbits_shapes) / sizeof(nbits_shapes[0]); i++) {
    const nbits_shape *shape = &nbits_shapes[i];
    if (shape->bits == bits && shape->native == native && (!best || best->rows < rows)) {
      best = shape;
    }
  }
  return best;
}

static void TC_NAME(tc_gemm_blocks_f32)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_gemm_blocks_f32_params *p = call->params;
  const nbits_plan plan = nbits_plan_make(p);
  const tc_epilogue_f32 epilogue = tc_epilogue(p->activation, p->activation_a, p->activation_b);
  const bool native = tc_has_dot4_codes();
  nbits_tile tile = {.plan = &plan, .block = p->block, .low = epilogue.low, .high = epilogue.high};
  for (int64_t unit = begin; unit < end; unit++) {
    const int64_t first = unit / plan.row_blocks * NBITS_UNIT_PANELS;
    const int64_t last = tc_min(first + NBITS_UNIT_PANELS, plan.panels);
    const int64_t row = unit % plan.row_blocks * plan.block_rows, rows = tc_min(p->m - row, plan.block_rows);
    const nbits_shape *shape;
    for (int64_t m = row; m < row + rows; m += shape->rows) {
      shape = nbits_shape_for(p->bits, native, row + rows - m);
      int side;
      for (int64_t panel = first; panel < last; panel += side) {
        side = last - panel < shape->side ? 1 : shape->side;
        const int64_t column = panel * TC_LANES;
        tile.panel = nbits_panel(&plan, call->state, panel);
        tile.bias = (const float *)call->state + column;
        tile.columns = tc_min(p->n - column - (side - 1) * TC_LANES, TC_LANES);
        for (int i = 0; i < shape->rows; i++) {
          const int64_t at = tc_min(m + i, row + rows - 1); /* the last row again where there is no other */
          tile.rows[i] = (const uint8_t *)call->operands[NBITS_BYTES] + at * p->pitch;
          tile.figures[i] = (const float *)call->operands[NBITS_FIGURES] + at * 3 * plan.blocks;
          tile.y[i] = (float *)call->operands[NBITS_Y] + at * p->ldc + column;
        }
        shape->run(&tile, side);
      }
    }
    const int64_t column = first * TC_LANES, columns = tc_min(p->n, last * TC_LANES) - column;
    tc_activate_rows(&epilogue, (float *)call->operands[NBITS_Y] + row * p->ldc + column, p->ldc, rows, columns);
  }
}

#endif
