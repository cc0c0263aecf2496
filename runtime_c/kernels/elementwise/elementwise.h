/* elementwise: a program of element-wise steps over blocks of its operands. State: the plan. Units are blocks. */
#ifndef TINYCOMP_KERNELS_ELEMENTWISE_ELEMENTWISE_H
#define TINYCOMP_KERNELS_ELEMENTWISE_ELEMENTWISE_H

#include "vocabulary.h"

#include "rows.h"
#include "../cast/cast.h"
#include "program.h"
#include "plan.h"

/* `rows` rows of `columns` elements, one after the other. */
#define ELEMENT_PLANE(type)                                                                                     \
  static void element_plane_##type(void *to, const void *from, int64_t rows, int64_t row_step, int64_t columns, \
                                   int64_t step) {                                                              \
    type *restrict z = to;                                                                                      \
    for (int64_t r = 0; r < rows; r++, z += columns) {                                                          \
      const type *x = (const type *)from + r * row_step;                                                        \
      if (step == 0) {                                                                                          \
        for (int64_t i = 0; i < columns; i++) {                                                                 \
          z[i] = *x;                                                                                            \
        }                                                                                                       \
      } else if (step == 1) {                                                                                   \
        for (int64_t i = 0; i < columns; i++) {                                                                 \
          z[i] = x[i];                                                                                          \
        }                                                                                                       \
      } else {                                                                                                  \
        for (int64_t i = 0; i < columns; i++) {                                                                 \
          z[i] = x[i * step];                                                                                   \
        }                                                                                                       \
      }                                                                                                         \
    }                                                                                                           \
  }
ELEMENT_PLANE(uint8_t)
ELEMENT_PLANE(uint16_t)
ELEMENT_PLANE(uint32_t)
ELEMENT_PLANE(uint64_t)
#undef ELEMENT_PLANE

static void element_plane(int size, void *to, const void *from, int64_t rows, int64_t row_step, int64_t columns,
                          int64_t step) {
  switch (size) {
    case 1:
      element_plane_uint8_t(to, from, rows, row_step, columns, step);
      break;
    case 2:
      element_plane_uint16_t(to, from, rows, row_step, columns, step);
      break;
    case 4:
      element_plane_uint32_t(to, from, rows, row_step, columns, step);
      break;
    default:
      element_plane_uint64_t(to, from, rows, row_step, columns, step);
  }
}

/* Brings the part of an input that a block needs together: `count` times its inner dimensions, `along` apart. */
static void element_gather(const element_source *source, char *to, const char *from, int64_t count, int64_t along) {
  const int last = source->rank - 1;
  const int64_t *sizes = source->sizes, *strides = source->strides;
  if (last == 0) {
    element_plane(source->size, to, from, sizes[0] == 1 ? 1 : count, along, sizes[0] == 1 ? count : sizes[0],
                  sizes[0] == 1 ? along : strides[0]);
    return;
  }
  int64_t planes = 1;
  for (int i = 0; i < last - 1; i++) {
    planes *= sizes[i];
  }
  const int64_t plane_bytes = sizes[last - 1] * sizes[last] * source->size;
  for (int64_t p = 0; p < count * planes; p++, to += plane_bytes) {
    int64_t rest = p, offset = 0;
    for (int i = last - 2; i >= 0; i--) {
      offset += rest % sizes[i] * strides[i];
      rest /= sizes[i];
    }
    element_plane(source->size, to, from + (offset + rest * along) * source->size, sizes[last - 1], strides[last - 1],
                  sizes[last], strides[last]);
  }
}

static void TC_NAME(tc_elementwise_prepare)(tc_prepare *prepare) {
  const tc_elementwise_params *p = prepare->params;
  element_program program;
  int64_t types[ELEMENT_VALUES];
  element_program_check(prepare, &program, types);
  if (tc_refused(prepare)) {
    return;
  }
  const int64_t count = tc_product(prepare, program.sizes, TC_ND_DIMS);
  tc_touch(prepare, ELEMENT_PROGRAM, p->words, sizeof(int64_t));
  for (int i = 0; i < program.inputs; i++) {
    tc_nd_touch(prepare, ELEMENT_FIRST_INPUT + i, program.sizes, program.input[i].strides, cast_types[types[i]].size);
  }
  for (int i = 0; i < program.outputs; i++) {
    tc_touch(prepare, i, count, cast_types[types[program.output[i]]].size);
  }
  if (tc_refused(prepare)) {
    return;
  }
  for (int i = 0; i < program.steps; i++) {
    if (program.step[i].kind != TC_ELEMENT_CAST) {
      tc_operate(prepare, program.step[i].type, (double)count);
    }
  }
  element_plan plan;
  element_plan_make(&plan, &program, types);
  prepare->units = count ? plan.rows.units : 0;
  prepare->cost = plan.cost;
  prepare->scratch_bytes = plan.scratch;
  element_plan_state(prepare, plan.steps);
}

static void TC_NAME(tc_elementwise_pack)(const tc_prepare *prepare, void *state) {
  tc_error error = {0};
  tc_prepare again = *prepare;
  again.error = &error;
  element_program program;
  int64_t types[ELEMENT_VALUES];
  element_program_check(&again, &program, types);
  element_plan plan;
  element_plan_make(&plan, &program, types);
  memcpy(state, &plan, offsetof(element_plan, step) + (size_t)plan.steps * sizeof(plan.step[0]));
}

/* Where the values of a block lie, and with which step: 1, or 0 for one that repeats. */
typedef struct element_block_values {
  const void *at[ELEMENT_VALUES];
  int64_t step[ELEMENT_VALUES];
  const char *gathered[TC_ELEMENT_INPUTS]; /* what the buffer of an input holds, and how many elements of it */
  int64_t filled[TC_ELEMENT_INPUTS];
} element_block_values;

static void element_place_immediates(const tc_call *call, element_block_values *values) {
  const element_plan *plan = call->state;
  for (int64_t i = plan->inputs; i < plan->inputs + plan->immediates; i++) {
    const element_source *source = &plan->source[i];
    values->step[i] = source->reading == ELEMENT_GATHERED;
    values->at[i] = &source->value;
    if (source->reading == ELEMENT_GATHERED) {
      char *buffer = (char *)call->scratch + source->buffer;
      element_plane(source->size, buffer, &source->value, 1, 0, plan->block, 0);
      values->at[i] = buffer;
    }
  }
}

/* A block often needs what the one before had gathered, such as one number per channel. */
static void element_place_inputs(const tc_call *call, const tc_rows_walk *walk, element_block_values *values) {
  const element_plan *plan = call->state;
  for (int64_t i = 0; i < plan->inputs; i++) {
    const element_source *source = &plan->source[i];
    const char *from = (const char *)call->operands[ELEMENT_FIRST_INPUT + i] + walk->at[i + 1] * source->size;
    values->at[i] = from;
    values->step[i] = source->reading != ELEMENT_REPEATED;
    if (source->reading == ELEMENT_GATHERED) {
      char *buffer = (char *)call->scratch + source->buffer;
      if (values->gathered[i] != from || values->filled[i] < walk->count) {
        element_gather(source, buffer, from, walk->count, walk->step[i + 1]);
        values->gathered[i] = from;
        values->filled[i] = walk->count;
      }
      values->at[i] = buffer;
    }
  }
}

static void element_run_steps(const tc_call *call, const tc_rows_walk *walk, const element_function *functions,
                              element_block_values *values) {
  const element_plan *plan = call->state;
  const int64_t first = plan->inputs + plan->immediates;
  for (int64_t i = 0; i < plan->steps; i++) {
    const element_plan_step *step = &plan->step[i];
    void *to = step->output < 0 ? (char *)call->scratch + step->buffer
                                : (char *)call->operands[step->output] + walk->at[0] * step->size;
    const int64_t x = step->source[0], y = step->source[1], z = step->source[2];
    const element_rows rows = {to,
                               values->at[x],
                               values->at[y],
                               values->at[z],
                               values->step[x],
                               values->step[y],
                               walk->count * plan->inner,
                               step->a,
                               step->b,
                               functions[i].from,
                               functions[i].into};
    functions[i].run(&rows);
    values->at[first + i] = to;
    values->step[first + i] = 1;
  }
}

enum { ELEMENT_LINE = 64 }; /* bytes of a cache line */

/* Runs units of a space of single elements in one row. It is cut anew, so that behind a first short block results lie
 * at whole cache lines: stores across two of them take a fifth of the time of a long sum. */
static void element_run_row(const tc_call *call, const element_function *functions, element_block_values *values,
                            int64_t begin, int64_t end) {
  const element_plan *plan = call->state;
  const tc_nd *nd = &plan->rows.nd;
  const int64_t piece = plan->rows.piece, stop = tc_min(end * piece, nd->sizes[0]);
  tc_rows_walk walk = tc_rows_seek(&plan->rows, begin);
  const uintptr_t to = (uintptr_t)call->operands[0] + (uintptr_t)(walk.at[0] * plan->size);
  const int64_t before = (int64_t)(-to % ELEMENT_LINE) / plan->size;
  int64_t first = begin * piece;
  walk.count = before && stop - first > piece ? before : piece;
  while (first < stop) {
    walk.count = tc_min(walk.count, stop - first);
    element_place_inputs(call, &walk, values);
    element_run_steps(call, &walk, functions, values);
    for (int i = 0; i < nd->views; i++) {
      walk.at[i] += walk.count * walk.step[i];
    }
    first += walk.count;
    walk.count = piece;
  }
}

static void TC_NAME(tc_elementwise)(const tc_call *call, int64_t begin, int64_t end) {
  const element_plan *plan = call->state;
  element_function functions[TC_ELEMENT_STEPS];
  for (int64_t i = 0; i < plan->steps; i++) {
    functions[i] = element_find(plan->step[i].kind, plan->step[i].op, plan->step[i].type);
  }
  element_block_values values;
  memset(values.gathered, 0, sizeof(values.gathered));
  element_place_immediates(call, &values);
  if (plan->rows.nd.rank == 1 && plan->inner == 1 && begin < end) {
    element_run_row(call, functions, &values, begin, end);
    return;
  }
  tc_rows_walk walk = tc_rows_seek(&plan->rows, begin);
  for (int64_t unit = begin; unit < end; unit++) {
    element_place_inputs(call, &walk, &values);
    element_run_steps(call, &walk, functions, &values);
    tc_rows_next(&walk);
  }
}

#endif
