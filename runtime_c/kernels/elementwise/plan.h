/* How a program is run: the walk over blocks, where every value of a block lies, and what each step calls. */
#ifndef TINYCOMP_KERNELS_ELEMENTWISE_PLAN_H
#define TINYCOMP_KERNELS_ELEMENTWISE_PLAN_H

#include "vocabulary.h"

#include "rows.h"
#include "../cast/cast.h"
#include "program.h"

/* A block stays in the first-level cache with all that is computed from it. Rows shorter than MERGED share a block. */
enum { ELEMENT_BLOCK = 2048, ELEMENT_BLOCK_LEAST = 128, ELEMENT_MERGED = 512, ELEMENT_CACHE = 16 * 1024 };

enum element_reading { ELEMENT_DIRECT, ELEMENT_REPEATED, ELEMENT_GATHERED };

/* An input or immediate as a block sees it. Gathered: brought together in scratch, `buffer` bytes from its start. */
typedef struct element_source {
  enum element_reading reading;
  int size; /* of an element, in bytes */
  int64_t buffer;
  int rank; /* of an input: the dimensions inside a block, collapsed */
  int padding;
  int64_t sizes[TC_ND_DIMS], strides[TC_ND_DIMS];
  uint64_t value; /* of an immediate, again and again, so that it begins with it in either byte order */
} element_source;

typedef struct element_plan_step {
  int64_t kind, op, type; /* which function it is: a state holds no pointers */
  int64_t source[3];
  double a, b;
  int size;       /* of an element of the result */
  int output;     /* which output the result is, or -1 */
  int64_t buffer; /* where it lies in scratch if it is none */
} element_plan_step;

typedef struct element_plan {
  tc_rows rows;  /* over blocks; the views are the outputs (one for all) and the inputs */
  int64_t inner; /* elements of the dimensions that lie wholly inside a block */
  int64_t block, scratch;
  int64_t size; /* of an element of the first output, in bytes */
  double cost;
  int64_t inputs, immediates, steps;
  element_source source[TC_ELEMENT_INPUTS + TC_ELEMENT_IMMEDIATES];
  element_plan_step step[TC_ELEMENT_STEPS];
} element_plan;

/* Fills the steps but for their buffers, and says of inputs and immediates whether they may be repeated. */
static void element_plan_steps(element_plan *plan, const element_program *program, bool *repeats) {
  const int64_t sources = plan->inputs + plan->immediates;
  memset(repeats, true, (size_t)sources);
  for (int64_t i = 0; i < plan->steps; i++) {
    const element_function found = element_find(program->step[i].kind, program->step[i].op, program->step[i].type);
    element_plan_step *step = &plan->step[i];
    *step = (element_plan_step){.kind = program->step[i].kind,
                                .op = program->step[i].op,
                                .type = program->step[i].type,
                                .a = program->step[i].a,
                                .b = program->step[i].b,
                                .size = cast_types[found.result].size,
                                .output = -1};
    for (int s = 0; s < 3; s++) { /* a source that is not there may be any */
      step->source[s] = program->step[i].source[s < found.sources ? s : 0];
      if (!found.repeats && step->source[s] < sources) {
        repeats[step->source[s]] = false;
      }
    }
    plan->cost += program->step[i].kind == TC_ELEMENT_UNARY ? 12.0 : 3.0;
  }
  for (int64_t i = 0; i < program->outputs; i++) {
    plan->step[program->output[i] - sources].output = (int)i;
  }
  plan->size = plan->step[program->output[0] - sources].size;
}

/* Gives every result that is no output a place in scratch for as long as it is used, and returns how many places there
 * are. `buffer` is a number here. */
static int64_t element_plan_places(element_plan *plan) {
  const int64_t sources = plan->inputs + plan->immediates;
  int64_t last[TC_ELEMENT_STEPS] = {0}, until[TC_ELEMENT_STEPS], places = 0;
  for (int64_t i = 0; i < plan->steps; i++) {
    last[i] = i;
    for (int s = 0; s < 3; s++) {
      if (plan->step[i].source[s] >= sources) {
        last[plan->step[i].source[s] - sources] = i;
      }
    }
  }
  for (int64_t i = 0; i < plan->steps; i++) {
    if (plan->step[i].output >= 0) {
      continue;
    }
    int64_t place = 0;
    while (place < places && until[place] >= i) {
      place++;
    }
    places = tc_max(places, place + 1);
    until[place] = last[i];
    plan->step[i].buffer = place;
  }
  return places;
}

/* Whether an input is walked as the outputs are. */
static bool element_contiguous(const tc_nd *nd, int64_t view) {
  for (int i = 0; i < nd->rank; i++) {
    if (nd->strides[view][i] != nd->strides[0][i]) {
      return false;
    }
  }
  return true;
}

/* Elements of a block of which `places` buffers are kept, a multiple of 64. */
static int64_t element_block(int64_t places, int64_t widest) {
  const int64_t fits = ELEMENT_CACHE / (tc_max(places, 1) * widest) / 64 * 64;
  return tc_max(tc_min(fits, ELEMENT_BLOCK), ELEMENT_BLOCK_LEAST);
}

/* How a block reads an input whose last dimensions, from `outer` on, lie inside it. */
static void element_plan_input(element_source *source, const tc_nd *nd, int outer, int view, bool repeats) {
  tc_nd inside = {.rank = nd->rank - outer, .views = 1};
  for (int i = 0; i < inside.rank; i++) {
    inside.sizes[i] = nd->sizes[outer + i];
    inside.strides[0][i] = nd->strides[view][outer + i];
  }
  tc_nd_collapse(&inside);
  source->rank = inside.rank;
  memcpy(source->sizes, inside.sizes, sizeof(source->sizes));
  memcpy(source->strides, inside.strides[0], sizeof(source->strides));
  const int64_t along = nd->strides[view][outer - 1], columns = source->sizes[0], step = source->strides[0];
  const bool one = source->rank == 1;
  if (one && along == columns && (step == 1 || columns == 1)) {
    source->reading = ELEMENT_DIRECT;
  } else if (one && along == 0 && (step == 0 || columns == 1) && repeats) {
    source->reading = ELEMENT_REPEATED;
  } else {
    source->reading = ELEMENT_GATHERED;
  }
}

static uint64_t element_value(int64_t type, int64_t bits) {
  uint64_t value = 0;
  const cast_type *into = &cast_types[type];
  element_rows one = {.to = &value, .x = &bits, .count = 1, .into = into};
  into->narrow[into->wide == CAST_WIDE_double ? CAST_WIDE_double : CAST_WIDE_int64_t](&one);
  for (size_t at = (size_t)into->size; at < sizeof(value); at += (size_t)into->size) {
    memcpy((char *)&value + at, &value, (size_t)into->size);
  }
  return value;
}

/* Turns numbers of places into offsets, and places what is gathered after them. */
static void element_plan_scratch(element_plan *plan, int64_t places, int64_t widest) {
  const int64_t bytes = plan->block * widest;
  for (int64_t i = 0; i < plan->steps; i++) {
    plan->step[i].buffer *= bytes;
  }
  for (int64_t i = 0; i < plan->inputs + plan->immediates; i++) {
    plan->source[i].buffer = plan->source[i].reading == ELEMENT_GATHERED ? bytes * places++ : 0;
  }
  plan->scratch = bytes * places;
}

/* States what a plan of so many steps consists of. */
static void element_plan_state(tc_prepare *prepare, int64_t steps) {
  const int64_t sources = TC_ELEMENT_INPUTS + TC_ELEMENT_IMMEDIATES, source = offsetof(element_plan, source);
  const int64_t step = offsetof(element_plan, step), word = sizeof(int), wide = sizeof(int64_t);
  const int64_t source_bytes = sizeof(element_source), step_bytes = sizeof(element_plan_step);
  const int64_t rank = offsetof(element_source, rank), rest = offsetof(element_source, sizes);
  const int64_t size = offsetof(element_plan_step, size), buffer = offsetof(element_plan_step, buffer);
  prepare->state_bytes = step + steps * step_bytes;
  tc_state_rows(prepare, (size_t)source); /* what follows the rows are int64 and a double */
  tc_state_repeats(prepare, source, 2, word, sources, source_bytes);
  tc_state_repeats(prepare, source + offsetof(element_source, buffer), 1, wide, sources, source_bytes);
  tc_state_repeats(prepare, source + rank, 1, word, sources, source_bytes);
  tc_state_repeats(prepare, source + rest, (source_bytes - rest) / wide, wide, sources, source_bytes);
  tc_state_repeats(prepare, step, size / wide, wide, steps, step_bytes);
  tc_state_repeats(prepare, step + size, (buffer - size) / word, word, steps, step_bytes);
  tc_state_repeats(prepare, step + buffer, 1, wide, steps, step_bytes);
}

/* Makes the plan of a checked program. */
static void element_plan_make(element_plan *plan, const element_program *program, const int64_t *types) {
  memset(plan, 0, offsetof(element_plan, step)); /* all of a step is set, and most of them are not there */
  plan->inputs = program->inputs;
  plan->immediates = program->immediates;
  plan->steps = program->steps;
  bool repeats[TC_ELEMENT_INPUTS + TC_ELEMENT_IMMEDIATES];
  element_plan_steps(plan, program, repeats);
  tc_nd nd = tc_nd_make(program->sizes);
  tc_nd_add_contiguous(&nd);
  for (int64_t i = 0; i < plan->inputs; i++) {
    tc_nd_add(&nd, program->input[i].strides);
  }
  tc_nd_collapse(&nd);
  const int64_t places = element_plan_places(plan);
  int64_t kept = places, widest = 1;
  for (int64_t i = 0; i < plan->inputs + plan->immediates + plan->steps; i++) {
    widest = tc_max(widest, cast_types[types[i]].size);
    kept += i < plan->inputs && !element_contiguous(&nd, i + 1);
  }
  plan->block = element_block(kept, widest);
  plan->inner = 1;
  int outer = nd.rank;
  while (outer > 1 && plan->inner * nd.sizes[outer - 1] <= tc_min(ELEMENT_MERGED, plan->block)) {
    plan->inner *= nd.sizes[--outer];
  }
  for (int64_t i = 0; i < plan->inputs + plan->immediates; i++) {
    element_source *source = &plan->source[i];
    source->size = cast_types[types[i]].size;
    if (i < plan->inputs) {
      element_plan_input(source, &nd, outer, (int)i + 1, repeats[i]);
    } else {
      source->reading = repeats[i] ? ELEMENT_REPEATED : ELEMENT_GATHERED;
      source->value = element_value(types[i], program->immediate[i - plan->inputs].value);
    }
  }
  element_plan_scratch(plan, places, widest);
  plan->cost *= (double)tc_nd_count(&nd);
  nd.rank = outer;
  plan->rows = tc_rows_make(&nd, plan->block / tc_max(plan->inner, 1));
}

#endif
