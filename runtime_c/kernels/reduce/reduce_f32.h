/* reduce_f32: reductions over up to two groups of axes. A unit is one result of adjacent elements, or a strip of
 * columns if the reduced elements lie apart. Short rows become columns first, a strip of them at a time. Strips that
 * lie side by side take turns, part by part, so that memory is read in its order. */
#ifndef TINYCOMP_KERNELS_REDUCE_REDUCE_F32_H
#define TINYCOMP_KERNELS_REDUCE_REDUCE_F32_H

#include "vocabulary.h"

#include "../copy/transpose.h"
#include "steps.h"

enum { REDUCE_Y, REDUCE_X };

/* What an operation sums up. */
typedef struct reduce_steps {
  void (*rows)(float *y, const reduce_rows *rows, const float *shifts);
  void (*columns)(float *y, const reduce_span *span, const float *shifts);
} reduce_steps;

#define TC_REDUCE(kind, start, neutral, step, join, join_lanes) \
  static const reduce_steps reduce_steps_##kind = {reduce_rows_##kind, reduce_columns_##kind};
TC_REDUCE_LIST
#undef TC_REDUCE

static const reduce_steps *reduce_find(int64_t op) {
  switch (op) {
    case TC_REDUCE_SUM:
    case TC_REDUCE_MEAN:
    case TC_REDUCE_LOG_SUM:
      return &reduce_steps_SUM;
    case TC_REDUCE_MAX:
      return &reduce_steps_MAX;
    case TC_REDUCE_MIN:
      return &reduce_steps_MIN;
    case TC_REDUCE_PROD:
      return &reduce_steps_PROD;
    case TC_REDUCE_L1:
      return &reduce_steps_L1;
    case TC_REDUCE_L2:
    case TC_REDUCE_SUM_SQUARE:
      return &reduce_steps_SQUARE;
    case TC_REDUCE_LOG_SUM_EXP:
      return &reduce_steps_EXP;
    default:
      return NULL;
  }
}

/* The sizes with as few, as long axes as possible. */
static tc_reduce_f32_params reduce_simplify(const tc_reduce_f32_params *given) {
  tc_reduce_f32_params p = *given;
  if (p.middle == 1) { /* one group of axes */
    p.axis1 *= p.axis0;
    p.axis0 = 1;
  }
  if (p.inner == 1 && p.axis1 == 1) { /* columns, after all */
    p.inner = p.middle;
    p.axis1 = p.axis0;
    p.axis0 = p.middle = 1;
  }
  if (p.axis0 == 1) { /* rows one behind the other */
    p.middle *= p.outer;
    p.outer = 1;
  }
  return p;
}

enum { REDUCE_SHORT = 16, REDUCE_STRIPS = 16 };

/* Whether rows of adjacent elements are so short that many go side by side. It depends on nothing else, so that the sum
 * of a row has the same bits among any others. */
static bool reduce_is_short(const tc_reduce_f32_params *p) {
  return p->inner == 1 && p->axis0 == 1 && p->axis1 <= REDUCE_SHORT;
}

static int64_t reduce_strips(const tc_reduce_f32_params *p) { return tc_ceil_div(p->inner, REDUCE_STRIP); }

static void TC_NAME(tc_reduce_f32_prepare)(tc_prepare *prepare) {
  const tc_reduce_f32_params *given = prepare->params;
  TC_REQUIRE(prepare, reduce_find(given->op), "there is no reduction %lld", (long long)given->op);
  tc_touch(prepare, REDUCE_Y, TC_PRODUCT(prepare, given->outer, given->middle, given->inner), sizeof(float));
  const int64_t count = TC_PRODUCT(prepare, given->outer, given->axis0, given->middle, given->axis1, given->inner);
  tc_touch(prepare, REDUCE_X, count, sizeof(float));
  TC_PRODUCT(prepare, given->axis0, given->axis1); /* also where another size is 0 */
  if (tc_refused(prepare)) {
    return;
  }
  const tc_reduce_f32_params p = reduce_simplify(given);
  const int64_t rows = TC_PRODUCT(prepare, p.outer, p.middle);
  prepare->units = reduce_is_short(&p) ? tc_ceil_div(rows, REDUCE_STRIP) : TC_PRODUCT(prepare, rows, reduce_strips(&p));
  prepare->work.flops = (double)count;
  prepare->cost = (double)count * (p.op == TC_REDUCE_LOG_SUM_EXP ? 20 : 2);
}

/* Largest elements, where they are finite: what is taken away before exponentials are summed. */
static void reduce_shifts(float *shifts, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    shifts[i] = isfinite(shifts[i]) ? shifts[i] : 0.0f;
  }
}

/* Turns sums into results. */
static void reduce_finish(const tc_reduce_f32_params *p, float *y, int64_t count, const float *shifts) {
  const float elements = (float)(p->axis0 * p->axis1);
  for (int64_t i = 0; i < count; i++) {
    switch (p->op) {
      case TC_REDUCE_MEAN:
        y[i] /= elements;
        break;
      case TC_REDUCE_L2:
        y[i] = sqrtf(y[i]);
        break;
      case TC_REDUCE_LOG_SUM:
        y[i] = logf(y[i]);
        break;
      case TC_REDUCE_LOG_SUM_EXP:
        y[i] = logf(y[i]) + shifts[i];
        break;
      default:
        return;
    }
  }
}

static void reduce_short_rows(const tc_reduce_f32_params *p, const float *x, float *y, int64_t rows) {
  float columns[REDUCE_SHORT * REDUCE_STRIP], shifts[REDUCE_STRIP];
  const tc_transpose turned = {columns, x, REDUCE_STRIP, p->axis1, p->axis1, rows};
  tc_transpose_block(&turned, sizeof(float));
  const reduce_span span = {.x = columns, .planes = 1, .lines = p->axis1, .line_stride = REDUCE_STRIP, .columns = rows};
  const bool shifted = p->op == TC_REDUCE_LOG_SUM_EXP;
  if (shifted) {
    reduce_steps_MAX.columns(shifts, &span, NULL);
    reduce_shifts(shifts, rows);
  }
  reduce_find(p->op)->columns(y, &span, shifted ? shifts : NULL);
  reduce_finish(p, y, rows, shifts);
}

/* Up to a strip of results of adjacent elements. */
static void reduce_adjacent(const tc_reduce_f32_params *p, const float *x, float *y, int64_t rows) {
  const reduce_rows all = {x, rows, p->axis1, p->axis0, p->middle * p->axis1, p->axis1};
  const bool shifted = p->op == TC_REDUCE_LOG_SUM_EXP;
  float shifts[REDUCE_STRIP];
  if (shifted) {
    reduce_steps_MAX.rows(shifts, &all, NULL);
    reduce_shifts(shifts, rows);
  }
  reduce_find(p->op)->rows(y, &all, shifted ? shifts : NULL);
  reduce_finish(p, y, rows, shifts);
}

/* Sums up columns of several strips: each part of one after the same part of the others. */
static void reduce_strips_in_turn(const tc_reduce_f32_params *p, const reduce_steps *steps, const float *x, float *y,
                                  int64_t columns, const float *shifts) {
  const int64_t line = p->axis1 * p->inner;
  reduce_span span = {.planes = 1, .line_stride = p->inner};
  for (int64_t plane = 0; plane < p->axis0 || plane == 0; plane++) {
    for (int64_t first = 0; first < p->axis1 || first == 0; first += REDUCE_PART_ROWS) {
      span.lines = p->axis0 ? tc_min(p->axis1 - first, REDUCE_PART_ROWS) : 0;
      for (int64_t c = 0; c < columns; c += REDUCE_STRIP) {
        span.x = x + plane * p->middle * line + first * p->inner + c;
        span.columns = tc_min(columns - c, REDUCE_STRIP);
        steps->columns(y + c, &span, shifts ? shifts + c : NULL);
      }
      span.adds = true;
    }
  }
}

/* Some strips of columns. */
static void reduce_apart(const tc_reduce_f32_params *p, const float *x, float *y, int64_t columns) {
  const bool shifted = p->op == TC_REDUCE_LOG_SUM_EXP;
  float shifts[REDUCE_STRIPS * REDUCE_STRIP];
  if (shifted) {
    reduce_strips_in_turn(p, &reduce_steps_MAX, x, shifts, columns, NULL);
    reduce_shifts(shifts, columns);
  }
  reduce_strips_in_turn(p, reduce_find(p->op), x, y, columns, shifted ? shifts : NULL);
  reduce_finish(p, y, columns, shifts);
}

static void TC_NAME(tc_reduce_f32)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_reduce_f32_params p = reduce_simplify(call->params);
  if (reduce_is_short(&p)) {
    const float *x = call->operands[REDUCE_X];
    float *y = call->operands[REDUCE_Y];
    const int64_t last = tc_min(end * REDUCE_STRIP, p.outer * p.middle);
    for (int64_t row = begin * REDUCE_STRIP; row < last; row += REDUCE_STRIP) {
      reduce_short_rows(&p, x + row * p.axis1, y + row, tc_min(last - row, REDUCE_STRIP));
    }
    return;
  }
  const int64_t strips = reduce_strips(&p), turn = p.inner == 1 ? REDUCE_STRIP : REDUCE_STRIPS;
  for (int64_t unit = begin, taken; unit < end; unit += taken) {
    const int64_t row = unit / strips, outer = row / p.middle, middle = row % p.middle, strip = unit % strips;
    const int64_t left = p.inner == 1 ? p.middle - middle : strips - strip;
    taken = tc_min(tc_min(end - unit, left), turn);
    const float *x = (const float *)call->operands[REDUCE_X] +
                     (outer * p.axis0 * p.middle + middle) * p.axis1 * p.inner + strip * REDUCE_STRIP;
    float *y = (float *)call->operands[REDUCE_Y] + row * p.inner + strip * REDUCE_STRIP;
    if (p.inner == 1) {
      reduce_adjacent(&p, x, y, taken);
    } else {
      reduce_apart(&p, x, y, tc_min(p.inner - strip * REDUCE_STRIP, taken * REDUCE_STRIP));
    }
  }
}

#endif
