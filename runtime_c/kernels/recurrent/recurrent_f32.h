/* recurrent_f32: the part of RNN, LSTM and GRU that goes from step to step; what the inputs contribute to the gates
 * comes in, from one product for all steps. A unit is one direction of a few sequences. State: the packed matrices, one
 * direction after the other.
 *
 * Scratch, in rows of hidden units that are padded to whole vectors: hidden states before and after a step, the cell's
 * states or the update gates, the reset states; then the sums of one panel. */
#ifndef TINYCOMP_KERNELS_RECURRENT_RECURRENT_F32_H
#define TINYCOMP_KERNELS_RECURRENT_RECURRENT_F32_H

#include "vocabulary.h"

#include "../elementwise/unary_f32.h"
#include "product.h"
#include "cells.h"

enum {
  RECURRENT_Y,
  RECURRENT_LAST_H,
  RECURRENT_LAST_C,
  RECURRENT_X,
  RECURRENT_R,
  RECURRENT_BIAS,
  RECURRENT_PEEPHOLES,
  RECURRENT_LENGTHS,
  RECURRENT_FIRST_H,
  RECURRENT_FIRST_C,
  RECURRENT_PACKED
};

enum { RECURRENT_ROWS = 12, RECURRENT_BUFFERS = 4 };

static int64_t recurrent_width(const tc_recurrent_f32_params *p) { return tc_round_up(p->hidden, TC_LANES); }

static int64_t recurrent_blocks(const tc_recurrent_f32_params *p) { return tc_ceil_div(p->batch, RECURRENT_ROWS); }

/* The n-th product of a step. */
static recurrent_part recurrent_part_of(const tc_recurrent_f32_params *p, int64_t n) {
  const recurrent_kind *kind = &recurrent_kinds[p->cell];
  const int64_t gates = kind->part[n].gates, before = n ? kind->part[0].gates : 0;
  return (recurrent_part){.gate = kind->part[n].gate,
                          .gates = gates,
                          .wide = RECURRENT_VECTORS / gates,
                          .offset = before * recurrent_width(p) * p->hidden};
}

/* The floats of all packed matrices. */
static int64_t recurrent_packed(tc_prepare *prepare, const tc_recurrent_f32_params *p) {
  return TC_PRODUCT(prepare, p->directions, recurrent_kinds[p->cell].gates, p->hidden, recurrent_width(p));
}

/* Packs the matrices of some directions, given those of all. */
static void recurrent_pack(const tc_recurrent_f32_params *p, const float *r, int64_t begin, int64_t end,
                           float *packed) {
  const recurrent_kind *kind = &recurrent_kinds[p->cell];
  for (int64_t direction = begin; direction < end; direction++) {
    for (int64_t n = 0; n < kind->parts; n++) {
      const recurrent_part part = recurrent_part_of(p, n);
      recurrent_pack_part(&part, r + direction * kind->gates * p->hidden * p->hidden, p->hidden,
                          packed + direction * kind->gates * p->hidden * recurrent_width(p) + part.offset);
    }
  }
}

static void recurrent_check(tc_prepare *prepare, const tc_recurrent_f32_params *p) {
  TC_REQUIRE(prepare, p->cell >= 0 && p->cell < RECURRENT_CELL_KINDS, "there is no cell %lld", (long long)p->cell);
  TC_REQUIRE(prepare, p->directions == 1 || p->directions == 2, "there are 1 or 2 directions, not %lld",
             (long long)p->directions);
  TC_REQUIRE(prepare, (p->reverse | p->coupled | 1) == 1, "reverse and coupled must be 0 or 1");
  TC_REQUIRE(prepare, unary_find(p->f) && unary_find(p->g) && unary_find(p->h), "there is no such function");
  TC_REQUIRE(prepare, p->clip > 0, "the clip is not above 0");
  TC_REQUIRE(
      prepare,
      p->cell == TC_CELL_LSTM || !(p->coupled || tc_present(prepare, RECURRENT_LAST_C) ||
                                   tc_present(prepare, RECURRENT_PEEPHOLES) || tc_present(prepare, RECURRENT_FIRST_C)),
      "only an LSTM has a cell state, peepholes or coupled gates");
  TC_REQUIRE(prepare, p->cell == TC_CELL_GRU_LINEAR || !tc_present(prepare, RECURRENT_BIAS),
             "only a GRU that resets its product has a bias here");
  TC_REQUIRE(prepare, tc_present(prepare, RECURRENT_R) != tc_present(prepare, RECURRENT_PACKED),
             "the matrices are given either packed or not");
}

static void TC_NAME(tc_recurrent_f32_prepare)(tc_prepare *prepare) {
  const tc_recurrent_f32_params *p = prepare->params;
  recurrent_check(prepare, p);
  TC_PRODUCT(prepare, p->steps, p->batch, p->hidden);
  const int64_t width = TC_PRODUCT(prepare, tc_plus(p->hidden, TC_LANES), sizeof(float));
  if (tc_refused(prepare)) {
    return;
  }
  const int64_t columns = TC_PRODUCT(prepare, p->directions, recurrent_kinds[p->cell].gates, p->hidden);
  const int64_t weights = TC_PRODUCT(prepare, columns, p->hidden);
  const int64_t states =
      tc_span(prepare, p->directions, p->state_direction, tc_span(prepare, p->batch, p->state_batch, p->hidden));
  const int64_t y = tc_span(prepare, p->directions, p->y_direction, tc_span(prepare, p->batch, p->y_batch, p->hidden));
  tc_touch_rows(prepare, RECURRENT_Y, p->steps, p->y_time, y, sizeof(float));
  for (int i = 0; i < 2; i++) {
    tc_touch(prepare, (int[]){RECURRENT_LAST_H, RECURRENT_LAST_C}[i], states, sizeof(float));
    tc_touch(prepare, (int[]){RECURRENT_FIRST_H, RECURRENT_FIRST_C}[i], states, sizeof(float));
  }
  tc_touch(prepare, RECURRENT_X, tc_span(prepare, p->steps, p->x_time, tc_span(prepare, p->batch, p->x_batch, columns)),
           sizeof(float));
  tc_touch(prepare, RECURRENT_R, weights, sizeof(float));
  tc_touch(prepare, RECURRENT_BIAS, p->directions * p->hidden, sizeof(float));
  tc_touch(prepare, RECURRENT_PEEPHOLES, 3 * p->directions * p->hidden, sizeof(float));
  tc_touch(prepare, RECURRENT_LENGTHS, p->batch, sizeof(int32_t));
  const double state = TC_COUNT(p->directions, p->batch, p->hidden);
  tc_move(prepare, RECURRENT_Y, (double)p->steps * state, sizeof(float));
  tc_move(prepare, RECURRENT_X, TC_COUNT(p->steps, p->batch, columns), sizeof(float));
  for (int i = 0; i < 2; i++) {
    tc_move(prepare, (int[]){RECURRENT_LAST_H, RECURRENT_LAST_C}[i], state, sizeof(float));
    tc_move(prepare, (int[]){RECURRENT_FIRST_H, RECURRENT_FIRST_C}[i], state, sizeof(float));
  }
  prepare->units = p->directions * recurrent_blocks(p);
  prepare->cost = prepare->work.flops = 2.0 * (double)TC_PRODUCT(prepare, p->steps, p->batch, weights);
  prepare->scratch_bytes = RECURRENT_ROWS * (RECURRENT_BUFFERS * width + RECURRENT_VECTORS * (int64_t)sizeof(tc_vf));
  const int64_t packed = recurrent_packed(prepare, p);
  tc_touch(prepare, RECURRENT_PACKED, packed, sizeof(float));
  tc_state_of(prepare, tc_present(prepare, RECURRENT_R) ? TC_PRODUCT(prepare, packed, sizeof(float)) : 0,
              sizeof(float));
  TC_SHARE(prepare, p->directions, p->cell, p->hidden);
}

static void TC_NAME(tc_recurrent_f32_pack)(const tc_prepare *prepare, void *state) {
  const tc_recurrent_f32_params *p = prepare->params;
  if (tc_present(prepare, RECURRENT_R)) {
    recurrent_pack(p, prepare->constants[RECURRENT_R], 0, p->directions, state);
  }
}

/* One direction of a few sequences. */
typedef struct recurrent_run {
  const tc_call *call;
  const tc_recurrent_f32_params *p;
  const recurrent_kind *kind;
  recurrent_cell cell;
  int plain;
  int64_t direction, first, rows; /* rows of the batch, from the first */
  bool reverse;
  const float *packed;
  int64_t width;
  float *old, *fresh, *c, *reset, *sums;
  int64_t lengths[RECURRENT_ROWS];
} recurrent_run;

static bool recurrent_is_plain(const tc_recurrent_f32_params *p) {
  return p->cell == TC_CELL_RNN ? p->f == TC_ACT_TANH
                                : p->f == TC_ACT_SIGMOID && p->g == TC_ACT_TANH && p->h == TC_ACT_TANH;
}

static recurrent_run recurrent_start(const tc_call *call, int64_t unit) {
  const tc_recurrent_f32_params *p = call->params;
  const int64_t blocks = recurrent_blocks(p), direction = unit / blocks, block = unit % blocks;
  const recurrent_kind *kind = &recurrent_kinds[p->cell];
  const float *packed = call->operands[RECURRENT_PACKED];
  const float *bias = call->operands[RECURRENT_BIAS], *peepholes = call->operands[RECURRENT_PEEPHOLES];
  const int64_t width = recurrent_width(p), buffer = RECURRENT_ROWS * width;
  float *scratch = call->scratch;
  memset(scratch, 0, (size_t)(RECURRENT_BUFFERS * buffer) * sizeof(float));
  return (recurrent_run){
      .call = call,
      .p = p,
      .kind = kind,
      .cell = {.hidden = p->hidden,
               .clip = p->clip,
               .coupled = p->coupled,
               .f = {unary_find(p->f), p->f_a, p->f_b},
               .g = {unary_find(p->g), p->g_a, p->g_b},
               .h = {unary_find(p->h), p->h_a, p->h_b},
               .bias = bias ? bias + direction * p->hidden : NULL,
               .peepholes = peepholes ? peepholes + direction * 3 * p->hidden : NULL},
      .plain = recurrent_is_plain(p),
      .direction = direction,
      .first = p->batch * block / blocks,
      .rows = p->batch * (block + 1) / blocks - p->batch * block / blocks,
      .reverse = p->reverse != direction,
      .packed = (packed ? packed : (const float *)call->state) + direction * kind->gates * p->hidden * width,
      .width = width,
      .old = scratch,
      .fresh = scratch + buffer,
      .c = scratch + 2 * buffer,
      .reset = scratch + 3 * buffer,
      .sums = scratch + 4 * buffer};
}

/* Reads the lengths; false if one is out of range. */
static bool recurrent_read_lengths(recurrent_run *run) {
  const int32_t *lengths = run->call->operands[RECURRENT_LENGTHS];
  for (int64_t m = 0; m < run->rows; m++) {
    run->lengths[m] = lengths ? lengths[run->first + m] : run->p->steps;
    if (run->lengths[m] < 0 || run->lengths[m] > run->p->steps) {
      tc_fail(run->call, "a sequence length is out of range");
      return false;
    }
  }
  return true;
}

/* Copies the states of all rows from an operand, or to it. */
static void recurrent_copy_states(const recurrent_run *run, int operand, float *states, bool out) {
  const tc_recurrent_f32_params *p = run->p;
  float *outside = run->call->operands[operand];
  if (!outside) {
    return;
  }
  outside += run->direction * p->state_direction + run->first * p->state_batch;
  for (int64_t m = 0; m < run->rows; m++) {
    float *inner = states + m * run->width, *outer = outside + m * p->state_batch;
    memcpy(out ? outer : inner, out ? inner : outer, (size_t)p->hidden * sizeof(float));
  }
}

/* Where a row's result at a time goes, or NULL. */
static float *recurrent_y(const recurrent_run *run, int64_t m, int64_t time) {
  const tc_recurrent_f32_params *p = run->p;
  float *y = run->call->operands[RECURRENT_Y];
  return y ? y + time * p->y_time + run->direction * p->y_direction + (run->first + m) * p->y_batch : NULL;
}

/* The time that a row sees in a step. */
static int64_t recurrent_time(const recurrent_run *run, int64_t m, int64_t step) {
  return run->reverse ? run->lengths[m] - 1 - step : step;
}

/* The cells of one panel, for the rows whose sequences have not ended. */
static void recurrent_cells(const recurrent_run *run, recurrent_cell_fn cell, int64_t step, int64_t unit,
                            int64_t vectors, int64_t sums) {
  const tc_recurrent_f32_params *p = run->p;
  const float *x = (const float *)run->call->operands[RECURRENT_X] + run->direction * run->kind->gates * p->hidden;
  for (int64_t m = 0; m < run->rows; m++) {
    if (step >= run->lengths[m]) {
      continue;
    }
    const int64_t at = m * run->width + unit;
    const recurrent_row row = {.x = x + recurrent_time(run, m, step) * p->x_time + (run->first + m) * p->x_batch + unit,
                               .sums = run->sums + m * sums,
                               .unit = unit,
                               .vectors = vectors,
                               .old = run->old + at,
                               .fresh = run->fresh + at,
                               .c = run->c + at,
                               .update = run->c + at,
                               .reset = run->reset + at};
    cell(&run->cell, &row);
  }
}

/* One product and what follows it. Every other step goes through the panels backwards, so that it begins with those
 * that the last one left in the caches: a matrix that is larger than a cache would otherwise pass through all of it. */
static void recurrent_part_run(const recurrent_run *run, int64_t n, int64_t step) {
  const recurrent_part part = recurrent_part_of(run->p, n);
  const float *rows[RECURRENT_ROWS], *states = n ? run->reset : run->old, *panel = run->packed + part.offset;
  for (int64_t m = 0; m < run->rows; m++) {
    rows[m] = states + m * run->width;
  }
  const int64_t units = part.wide * TC_LANES, panels = tc_ceil_div(run->width, units);
  for (int64_t i = 0; i < panels; i++) {
    const int64_t unit = (step % 2 ? panels - 1 - i : i) * units;
    const int64_t vectors = tc_min((run->width - unit) / TC_LANES, part.wide), width = vectors * part.gates;
    recurrent_product(rows, run->rows, run->p->hidden, panel + unit * part.gates * run->p->hidden, width, run->sums);
    recurrent_cells(run, run->kind->part[n].cell[run->plain], step, unit, vectors, width * TC_LANES);
  }
}

/* After a step: hands out the results of the rows that took part, and carries the states of the others on. */
static void recurrent_step_end(recurrent_run *run, int64_t step) {
  const size_t bytes = (size_t)run->p->hidden * sizeof(float);
  for (int64_t m = 0; m < run->rows; m++) {
    float *fresh = run->fresh + m * run->width;
    if (step >= run->lengths[m]) {
      memcpy(fresh, run->old + m * run->width, bytes);
      continue;
    }
    float *y = recurrent_y(run, m, recurrent_time(run, m, step));
    if (y) {
      memcpy(y, fresh, bytes);
    }
  }
  float *old = run->old;
  run->old = run->fresh;
  run->fresh = old;
}

/* Clears what follows the end of each sequence, and returns the length of the longest. */
static int64_t recurrent_clear_ends(const recurrent_run *run) {
  int64_t longest = 0;
  for (int64_t m = 0; m < run->rows; m++) {
    longest = tc_max(longest, run->lengths[m]);
    for (int64_t time = run->lengths[m]; time < run->p->steps && run->call->operands[RECURRENT_Y]; time++) {
      memset(recurrent_y(run, m, time), 0, (size_t)run->p->hidden * sizeof(float));
    }
  }
  return longest;
}

static void TC_NAME(tc_recurrent_f32)(const tc_call *call, int64_t begin, int64_t end) {
  for (int64_t unit = begin; unit < end; unit++) {
    recurrent_run run = recurrent_start(call, unit);
    if (!recurrent_read_lengths(&run)) {
      return;
    }
    recurrent_copy_states(&run, RECURRENT_FIRST_H, run.old, false);
    recurrent_copy_states(&run, RECURRENT_FIRST_C, run.c, false);
    const int64_t steps = recurrent_clear_ends(&run);
    for (int64_t step = 0; step < steps; step++) {
      for (int64_t n = 0; n < run.kind->parts; n++) {
        recurrent_part_run(&run, n, step);
      }
      recurrent_step_end(&run, step);
    }
    recurrent_copy_states(&run, RECURRENT_LAST_H, run.old, true);
    recurrent_copy_states(&run, RECURRENT_LAST_C, run.c, true);
  }
}

#endif
