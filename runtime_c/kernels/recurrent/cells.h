/* The cells of recurrent networks: what becomes of the sums of one row and one panel. Source: the ONNX documentation of
 * RNN, GRU and LSTM, whose order of gates and names of functions these are. */
#ifndef TINYCOMP_KERNELS_RECURRENT_CELLS_H
#define TINYCOMP_KERNELS_RECURRENT_CELLS_H

#include "vocabulary.h"

#include "../common/math.h"
#include "../common/partial.h"
#include "../elementwise/rows.h"

typedef struct recurrent_function {
  element_fn apply;
  float a, b;
} recurrent_function;

/* What all steps and rows of one direction share. */
typedef struct recurrent_cell {
  int64_t hidden;
  float clip; /* of what the functions of gates read */
  bool coupled;
  recurrent_function f, g, h;
  const float *bias;      /* GRU: of the hidden gate, inside the reset; or NULL */
  const float *peepholes; /* LSTM: of input, output and forget gate; or NULL */
} recurrent_cell;

/* One row's vectors of hidden units; everything is at the first unit, but for the sums, which are at the panel's. */
typedef struct recurrent_row {
  const float *x; /* what the input contributes, [gate][hidden] */
  const float *sums;
  int64_t unit, vectors;
  const float *old;
  float *fresh;
  float *c;      /* LSTM: the cell's state */
  float *update; /* GRU: the update gate, */
  float *reset;  /* and the hidden state after the reset */
} recurrent_row;

TC_INLINE tc_vf recurrent_apply(const recurrent_function *function, tc_vf x) {
  float lanes[TC_LANES];
  tc_vf_store(lanes, x);
  function->apply(&(element_rows){.to = lanes, .x = lanes, .count = TC_LANES, .a = function->a, .b = function->b});
  return tc_vf_load(lanes);
}

/* The functions by their default, which is inlined where `plain`. */
TC_INLINE tc_vf recurrent_sigmoid(const bool plain, const recurrent_function *function, tc_vf x) {
  return plain ? tc_vf_sigmoid(x) : recurrent_apply(function, x);
}

TC_INLINE tc_vf recurrent_tanh(const bool plain, const recurrent_function *function, tc_vf x) {
  return plain ? tc_vf_tanh(x) : recurrent_apply(function, x);
}

TC_INLINE tc_vf recurrent_clip(const recurrent_cell *cell, tc_vf x) { return tc_clamp(x, -cell->clip, cell->clip); }

/* What the input contributes to a gate, at the v-th vector. */
TC_INLINE tc_vf recurrent_input(const recurrent_cell *cell, const recurrent_row *row, int64_t v, int64_t gate) {
  return tc_load_up_to(row->x + gate * cell->hidden + v * TC_LANES, cell->hidden - row->unit - v * TC_LANES);
}

/* The n-th of `gates` sums of the v-th vector. */
TC_INLINE tc_vf recurrent_sum(const recurrent_row *row, int64_t v, int64_t gates, int64_t n) {
  return tc_vf_load(row->sums + (v * gates + n) * TC_LANES);
}

/* x + peephole * c */
TC_INLINE tc_vf recurrent_peep(const recurrent_cell *cell, const recurrent_row *row, int64_t v, int64_t gate, tc_vf c,
                               tc_vf x) {
  if (!cell->peepholes) {
    return x;
  }
  const int64_t unit = row->unit + v * TC_LANES;
  return tc_vf_fma(tc_load_up_to(cell->peepholes + gate * cell->hidden + unit, cell->hidden - unit), c, x);
}

TC_INLINE void recurrent_lstm(const bool plain, const recurrent_cell *cell, const recurrent_row *row, int64_t v) {
  enum { INPUT, OUTPUT, FORGET, CELL, GATES };
  tc_vf gate[GATES];
#pragma GCC unroll 4
  for (int n = 0; n < GATES; n++) {
    gate[n] = tc_vf_add(recurrent_input(cell, row, v, n), recurrent_sum(row, v, GATES, n));
  }
  const tc_vf before = tc_vf_load(row->c + v * TC_LANES);
  const tc_vf input = recurrent_peep(cell, row, v, INPUT, before, gate[INPUT]);
  const tc_vf i = recurrent_sigmoid(plain, &cell->f, recurrent_clip(cell, input));
  const tc_vf forget = recurrent_peep(cell, row, v, FORGET, before, gate[FORGET]);
  const tc_vf f =
      cell->coupled ? tc_vf_sub(tc_vf_set1(1.0f), i) : recurrent_sigmoid(plain, &cell->f, recurrent_clip(cell, forget));
  const tc_vf g = recurrent_tanh(plain, &cell->g, recurrent_clip(cell, gate[CELL]));
  const tc_vf c = tc_vf_fma(f, before, tc_vf_mul(i, g));
  const tc_vf output = recurrent_peep(cell, row, v, OUTPUT, c, gate[OUTPUT]);
  const tc_vf o = recurrent_sigmoid(plain, &cell->f, recurrent_clip(cell, output));
  tc_vf_store(row->c + v * TC_LANES, c);
  tc_vf_store(row->fresh + v * TC_LANES, tc_vf_mul(o, recurrent_tanh(plain, &cell->h, c)));
}

enum { RECURRENT_UPDATE, RECURRENT_RESET, RECURRENT_HIDDEN };

/* The update or the reset gate out of a product of `gates` gates. */
TC_INLINE tc_vf recurrent_gru_gate(const bool plain, const recurrent_cell *cell, const recurrent_row *row, int64_t v,
                                   int64_t gates, int64_t gate) {
  const tc_vf x = tc_vf_add(recurrent_input(cell, row, v, gate), recurrent_sum(row, v, gates, gate));
  return recurrent_sigmoid(plain, &cell->f, recurrent_clip(cell, x));
}

/* (1 - z) * g(x + memory) + z * h */
TC_INLINE void recurrent_gru_blend(const bool plain, const recurrent_cell *cell, const recurrent_row *row, int64_t v,
                                   tc_vf z, tc_vf memory) {
  const tc_vf x = tc_vf_add(recurrent_input(cell, row, v, RECURRENT_HIDDEN), memory);
  const tc_vf n = recurrent_tanh(plain, &cell->g, recurrent_clip(cell, x));
  const tc_vf kept = tc_vf_mul(z, tc_vf_load(row->old + v * TC_LANES));
  tc_vf_store(row->fresh + v * TC_LANES, tc_vf_fma(tc_vf_sub(tc_vf_set1(1.0f), z), n, kept));
}

/* GRU, first product: both gates, and the state that the second product reads. */
TC_INLINE void recurrent_gru_gates(const bool plain, const recurrent_cell *cell, const recurrent_row *row, int64_t v) {
  const tc_vf z = recurrent_gru_gate(plain, cell, row, v, 2, RECURRENT_UPDATE);
  const tc_vf r = recurrent_gru_gate(plain, cell, row, v, 2, RECURRENT_RESET);
  tc_vf_store(row->update + v * TC_LANES, z);
  tc_vf_store(row->reset + v * TC_LANES, tc_vf_mul(r, tc_vf_load(row->old + v * TC_LANES)));
}

/* GRU, second product. */
TC_INLINE void recurrent_gru_hidden(const bool plain, const recurrent_cell *cell, const recurrent_row *row, int64_t v) {
  const tc_vf z = tc_vf_load(row->update + v * TC_LANES);
  recurrent_gru_blend(plain, cell, row, v, z, recurrent_sum(row, v, 1, 0));
}

/* GRU that resets the product instead of the state (linear_before_reset). */
TC_INLINE void recurrent_gru_linear(const bool plain, const recurrent_cell *cell, const recurrent_row *row, int64_t v) {
  const int64_t unit = row->unit + v * TC_LANES;
  const tc_vf z = recurrent_gru_gate(plain, cell, row, v, 3, RECURRENT_UPDATE);
  const tc_vf r = recurrent_gru_gate(plain, cell, row, v, 3, RECURRENT_RESET);
  tc_vf sum = recurrent_sum(row, v, 3, RECURRENT_HIDDEN);
  if (cell->bias) {
    sum = tc_vf_add(sum, tc_load_up_to(cell->bias + unit, cell->hidden - unit));
  }
  recurrent_gru_blend(plain, cell, row, v, z, tc_vf_mul(r, sum));
}

TC_INLINE void recurrent_rnn(const bool plain, const recurrent_cell *cell, const recurrent_row *row, int64_t v) {
  const tc_vf x = tc_vf_add(recurrent_input(cell, row, v, 0), recurrent_sum(row, v, 1, 0));
  tc_vf_store(row->fresh + v * TC_LANES, recurrent_tanh(plain, &cell->f, recurrent_clip(cell, x)));
}

typedef void (*recurrent_cell_fn)(const recurrent_cell *cell, const recurrent_row *row);

#define RECURRENT_CELL(name, suffix, plain)                                                       \
  static void recurrent_##name##_##suffix(const recurrent_cell *cell, const recurrent_row *row) { \
    for (int64_t v = 0; v < row->vectors; v++) {                                                  \
      recurrent_##name(plain, cell, row, v);                                                      \
    }                                                                                             \
  }
#define RECURRENT_CELLS(name) RECURRENT_CELL(name, plain, true) RECURRENT_CELL(name, any, false)
RECURRENT_CELLS(lstm)
RECURRENT_CELLS(gru_gates)
RECURRENT_CELLS(gru_hidden)
RECURRENT_CELLS(gru_linear)
RECURRENT_CELLS(rnn)
#undef RECURRENT_CELLS
#undef RECURRENT_CELL

enum { RECURRENT_PARTS = 2, RECURRENT_CELL_KINDS = 4 };

/* A kind of cell: its gates, which of them each product computes, and what follows it (for plain functions or any). */
typedef struct recurrent_kind {
  int64_t gates;
  int64_t parts;
  struct {
    int64_t gate, gates;
    recurrent_cell_fn cell[2];
  } part[RECURRENT_PARTS];
} recurrent_kind;

#define RECURRENT_FUNCTIONS(name) {recurrent_##name##_any, recurrent_##name##_plain}
static const recurrent_kind recurrent_kinds[RECURRENT_CELL_KINDS] = {
    [TC_CELL_RNN] = {1, 1, {{0, 1, RECURRENT_FUNCTIONS(rnn)}}},
    [TC_CELL_LSTM] = {4, 1, {{0, 4, RECURRENT_FUNCTIONS(lstm)}}},
    [TC_CELL_GRU] = {3, 2, {{0, 2, RECURRENT_FUNCTIONS(gru_gates)}, {2, 1, RECURRENT_FUNCTIONS(gru_hidden)}}},
    [TC_CELL_GRU_LINEAR] = {3, 1, {{0, 3, RECURRENT_FUNCTIONS(gru_linear)}}},
};
#undef RECURRENT_FUNCTIONS

#endif
