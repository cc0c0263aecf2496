/* 8-bit products with constant weights, of which matrices and convolutions are two kinds. State: the form of words that
 * the weights allow, then for each group the arrays of requantize.h and the packed panels. */
#ifndef TINYCOMP_KERNELS_QUANT8_PRODUCT_Q8_H
#define TINYCOMP_KERNELS_QUANT8_PRODUCT_Q8_H

#include "vocabulary.h"

#include "../gemm/tile_f32.h"
#include "../gemm/grid.h"
#include "requantize.h"
#include "tile_q8.h"
#include "pack_q8.h"
#include "block_q8.h"
#include "input_q8.h"

enum { Q8_Y, Q8_X, Q8_W, Q8_BIAS, Q8_FACTOR, Q8_ZERO };

/* What is computed, for either kind. */
typedef struct q8_product {
  q8_result result;
  q8_input input;
  q8_weights weights; /* of a group, without data */
  int64_t groups;
  int64_t group_weights; /* elements of the weights from one group to the next */
  int64_t y_stride;
  int64_t block_rows;
} q8_product;

/* Figures derived from it. */
typedef struct q8_plan {
  q8_cut cut;
  int64_t taps, words;
  int64_t padded; /* columns */
  int64_t panels;
  int64_t group_bytes; /* of the state */
} q8_plan;

static q8_plan q8_plan_make(const q8_product *p, int64_t l2_bytes) {
  const tc_window *w = &p->input.window;
  q8_plan plan = {.taps = q8_taps(&p->input),
                  .words = q8_words(q8_depth(&p->input), p->input.form),
                  .padded = tc_round_up(p->weights.columns, TC_LANES),
                  .panels = tc_ceil_div(p->weights.columns, TC_PANEL)};
  /* Rows are counted as the widest form takes them, so that the blocks are the same for every form. */
  const int64_t line = p->input.lines ? p->input.channels * w->stride_height * w->stride_width : q8_depth(&p->input);
  const int64_t panels_bytes = plan.taps * plan.words * q8_form_word_bytes(p->input.form) * plan.padded;
  const int64_t rows = q8_block_rows(p->block_rows, line * 2, q8_depth(&p->input) * plan.taps * plan.padded, l2_bytes);
  plan.cut = p->input.lines ? q8_cut_make(w->out_width, w->batch * w->out_height, rows)
                            : q8_cut_make(w->batch * w->out_height * w->out_width, 1, rows);
  plan.group_bytes = tc_round_up(Q8_ARRAYS * plan.padded * 4 + panels_bytes, TC_ALIGNMENT);
  return plan;
}

/* Where the groups of a state begin. */
static char *q8_groups(const void *state) { return (char *)state + TC_ALIGNMENT; }
static q8_form q8_form_in(const void *state) { return (q8_form) * (const int32_t *)state; }

/* States the memory that one form of words needs. */
static void q8_prepare_form(tc_prepare *prepare, q8_product product, q8_form form) {
  product.input.form = form;
  const q8_plan plan = q8_plan_make(&product, prepare->l2_bytes);
  const int64_t pointers = TC_PRODUCT(prepare, plan.cut.piece, plan.taps, sizeof(char *));
  const int64_t sums = TC_PRODUCT(prepare, plan.cut.piece, TC_PANEL, sizeof(int32_t));
  const int64_t scratch = sums + pointers + q8_copied_bytes(prepare, &product.input, &plan.cut);
  const int64_t state = TC_ALIGNMENT + TC_PRODUCT(prepare, product.groups, plan.group_bytes);
  prepare->units = TC_PRODUCT(prepare, product.groups, plan.cut.blocks, plan.panels);
  prepare->state_bytes = tc_max(prepare->state_bytes, state);
  const int64_t arrays = Q8_ARRAYS * plan.padded * (int64_t)sizeof(int32_t);
  prepare->number_count = 0; /* of the form asked for last */
  tc_state_numbers(prepare, 0, 1, sizeof(int32_t));
  tc_state_repeats(prepare, TC_ALIGNMENT, Q8_ARRAYS * plan.padded, sizeof(int32_t), product.groups, plan.group_bytes);
  if (form == Q8_WIDE) {
    tc_state_repeats(prepare, TC_ALIGNMENT + arrays, (plan.group_bytes - arrays) / 2, sizeof(int16_t), product.groups,
                     plan.group_bytes);
  }
  prepare->scratch_bytes = tc_max(prepare->scratch_bytes, scratch);
}

/* What the product still needs after its sizes and strides were checked and its operands touched. */
static void q8_product_prepare(tc_prepare *prepare, const q8_product *p) {
  q8_check_result(prepare, &p->result, Q8_FACTOR, TC_PRODUCT(prepare, p->groups, p->weights.columns));
  tc_check_grid(prepare, p->block_rows, TC_ORDER_AUTO);
  tc_touch(prepare, Q8_BIAS, TC_PRODUCT(prepare, p->groups, p->weights.columns), sizeof(int32_t));
  const tc_window *w = &p->input.window;
  const int64_t rows = TC_PRODUCT(prepare, w->batch, w->out_height, w->out_width);
  if (tc_refused(prepare)) {
    return;
  }
  const int64_t weights =
      TC_PRODUCT(prepare, p->groups, tc_plus(p->weights.columns, TC_LANES), tc_plus(p->input.channels, 4),
                 w->kernel_height, tc_plus(w->kernel_width, 4), sizeof(int32_t));
  if (tc_refused(prepare)) {
    return;
  }
  tc_touch(prepare, Q8_W, p->groups * p->group_weights, p->weights.size);
  prepare->cost = (double)rows * (double)weights / 4;
  q8_prepare_form(prepare, *p, p->input.form);
  if (p->input.form == Q8_QUADS) {
    q8_prepare_form(prepare, *p, Q8_NARROW);
  }
}

/* The weights of one group. */
static q8_weights q8_group_weights(const tc_prepare *prepare, const q8_product *p, int64_t group) {
  q8_weights weights = p->weights;
  weights.data = (const char *)prepare->constants[Q8_W] + group * p->group_weights * weights.size;
  return weights;
}

static void q8_product_pack(const tc_prepare *prepare, q8_product *p, void *state) {
  for (int64_t g = 0; g < p->groups && p->input.form == Q8_QUADS; g++) {
    const q8_weights weights = q8_group_weights(prepare, p, g);
    p->input.form = q8_quads_are_exact(&weights) ? Q8_QUADS : Q8_NARROW;
  }
  *(int32_t *)state = (int32_t)p->input.form;
  const q8_plan plan = q8_plan_make(p, prepare->l2_bytes);
  const int64_t columns = p->weights.columns, factor = p->result.rule == TC_REQUANTIZE_FIXED_POINT ? 8 : 4;
  const char *bias = prepare->constants[Q8_BIAS], *factors = prepare->constants[Q8_FACTOR];
  for (int64_t g = 0; g < p->groups; g++) {
    int32_t *arrays = (int32_t *)(q8_groups(state) + g * plan.group_bytes);
    const q8_weights weights = q8_group_weights(prepare, p, g);
    q8_pack(&weights, p->input.form, bias ? bias + g * columns * 4 : NULL, &p->result, arrays, plan.padded,
            (char *)(arrays + Q8_ARRAYS * plan.padded));
    q8_pack_factors(&p->result, factors ? factors + g * columns * factor : NULL, columns, arrays, plan.padded);
  }
}

static void q8_product_run(const tc_call *call, const q8_product *p, int64_t begin, int64_t end) {
  if (begin >= end) {
    return;
  }
  const q8_plan plan = q8_plan_make(p, call->l2_bytes);
  const ptrdiff_t panel_bytes = TC_PANEL * (ptrdiff_t)(plan.taps * plan.words * q8_form_word_bytes(p->input.form));
  const ptrdiff_t panels = (ptrdiff_t)plan.panels, columns = (ptrdiff_t)p->weights.columns, size = q8_size(&p->result);
  /* So few rows as one tile has go through all panels at once. */
  const bool is_fused = q8_is_bytes(&p->result) && p->result.rule == TC_REQUANTIZE_FLOAT;
  const ptrdiff_t few = is_fused ? q8_tile_rows[TC_TILE_VECTORS] : 0;
  const void *zero_point = call->operands[Q8_ZERO];
  q8_input input = p->input;
  input.zero_point = q8_zero_point(zero_point, &p->result);
  int32_t *sums = call->scratch, own[TC_PANEL] = {0};
  const char **rows = (const char **)(sums + plan.cut.piece * TC_PANEL);
  char *copies = (char *)(rows + plan.cut.piece * plan.taps);
  q8_block block = {.rows = rows,
                    .row_stride = plan.cut.piece,
                    .taps = plan.taps,
                    .words = plan.words,
                    .form = p->input.form,
                    .result = &p->result,
                    .scale = q8_scale_make(&p->result, (const int32_t *)q8_groups(call->state), plan.padded),
                    .sums = sums,
                    .y_stride = p->y_stride};
  /* Small processors divide numbers of 64 bits in hundreds of instructions: once per call, not per unit. */
  const int64_t per_group = plan.cut.blocks * plan.panels;
  int64_t cut = begin % per_group / plan.panels, group = begin / per_group;
  ptrdiff_t panel = begin % plan.panels;
  for (ptrdiff_t left = (ptrdiff_t)(end - begin); left > 0; panel = 0) {
    const q8_place place = q8_cut_place(&plan.cut, cut);
    const uint8_t *x = (const uint8_t *)call->operands[Q8_X] + group * p->input.channels;
    q8_point(&input, x, place, plan.cut.piece, rows, copies);
    const ptrdiff_t first = panel * TC_PANEL;
    const int32_t *arrays = (const int32_t *)(q8_groups(call->state) + group * plan.group_bytes);
    block.row_count = place.count;
    block.panel = (const char *)(arrays + Q8_ARRAYS * plan.padded) + panel * panel_bytes;
    q8_scale_move(&block.scale, arrays + first, plan.padded);
    block.y = (char *)call->operands[Q8_Y] + (place.row * p->y_stride + group * p->weights.columns + first) * size;
    while (panel < panels && left > 0) {
      const ptrdiff_t remaining = columns - panel * TC_PANEL, whole = remaining / TC_PANEL;
      const ptrdiff_t several = place.count <= few && whole > 0 ? (whole < left ? whole : left) : 1;
      block.columns = remaining < TC_PANEL ? remaining : TC_PANEL;
      block.start = q8_start(zero_point, arrays + panel * TC_PANEL, plan.padded, block.columns, own);
      block.panels = several;
      q8_block_run(&block);
      panel += several;
      left -= several;
      block.panel += several * panel_bytes;
      block.scale.factors += several * TC_PANEL;
      block.scale.multipliers += several * TC_PANEL;
      block.scale.left += several * TC_PANEL;
      block.scale.right += several * TC_PANEL;
      block.y += several * TC_PANEL * size;
    }
    if (++cut == plan.cut.blocks) {
      cut = 0;
      group++;
    }
  }
}

#endif
