/* The program of a call, read from its constant and checked: nothing of it is used before. */
#ifndef TINYCOMP_KERNELS_ELEMENTWISE_PROGRAM_H
#define TINYCOMP_KERNELS_ELEMENTWISE_PROGRAM_H

#include "vocabulary.h"

#include "rows.h"
#include "unary_f32.h"
#include "unary_typed.h"
#include "binary_f32.h"
#include "binary_typed.h"
#include "where.h"
#include "../cast/cast.h"

enum { ELEMENT_VALUES = TC_ELEMENT_INPUTS + TC_ELEMENT_IMMEDIATES + TC_ELEMENT_STEPS };
enum { ELEMENT_PROGRAM = TC_ELEMENT_OUTPUTS, ELEMENT_FIRST_INPUT }; /* operands; the outputs come first */

typedef struct element_program {
  int64_t inputs, immediates, steps, outputs;
  int64_t sizes[TC_ND_DIMS];
  struct {
    int64_t type, strides[TC_ND_DIMS];
  } input[TC_ELEMENT_INPUTS];
  struct {
    int64_t type, value;
  } immediate[TC_ELEMENT_IMMEDIATES];
  struct {
    int64_t kind, op, type, source[3];
    double a, b;
  } step[TC_ELEMENT_STEPS];
  int64_t output[TC_ELEMENT_OUTPUTS];
} element_program;

/* How a step is computed, and what of. */
typedef struct element_function {
  element_fn run;               /* NULL if there is no such step */
  const cast_type *from, *into; /* of a conversion */
  int64_t result;               /* type */
  int sources;
  bool repeats; /* whether a source may have a step of 0 */
} element_function;

/* Turns comparisons round, so that kernels need half of them. */
static void element_turn_comparisons(element_program *program) {
  for (int64_t i = 0; i < program->steps; i++) {
    const int64_t op = program->step[i].op, x = program->step[i].source[0];
    if (program->step[i].kind == TC_ELEMENT_COMPARE && (op == TC_COMPARE_GREATER || op == TC_COMPARE_GREATER_EQUAL)) {
      program->step[i].op = op == TC_COMPARE_GREATER ? TC_COMPARE_LESS : TC_COMPARE_LESS_EQUAL;
      program->step[i].source[0] = program->step[i].source[1];
      program->step[i].source[1] = x;
    }
  }
}

static void element_read(void *to, int64_t size, const int64_t **words) {
  memcpy(to, *words, (size_t)size);
  *words += size / (int64_t)sizeof(int64_t);
}

/* Words may lie at any address, which only memcpy can read. */
static void element_program_read(tc_prepare *prepare, element_program *program) {
  const tc_elementwise_params *p = prepare->params;
  const int64_t *words = prepare->constants[ELEMENT_PROGRAM];
  enum { HEAD = 4 + TC_ND_DIMS };
  TC_REQUIRE(prepare,
             p->words >= HEAD && p->words <= prepare->constant_bytes[ELEMENT_PROGRAM] / (int64_t)sizeof(*words),
             "a program of %lld words in a constant of %lld bytes", (long long)p->words,
             (long long)prepare->constant_bytes[ELEMENT_PROGRAM]);
  element_read(program, HEAD * sizeof(*words), &words);
  TC_REQUIRE(prepare,
             program->inputs >= 0 && program->inputs <= TC_ELEMENT_INPUTS && program->immediates >= 0 &&
                 program->immediates <= TC_ELEMENT_IMMEDIATES && program->steps >= 1 &&
                 program->steps <= TC_ELEMENT_STEPS && program->outputs >= 1 && program->outputs <= TC_ELEMENT_OUTPUTS,
             "%lld inputs, %lld immediates, %lld steps and %lld outputs are too few or too many",
             (long long)program->inputs, (long long)program->immediates, (long long)program->steps,
             (long long)program->outputs);
  const int64_t expected = HEAD + 9 * program->inputs + 2 * program->immediates + 8 * program->steps + program->outputs;
  TC_REQUIRE(prepare, p->words == expected, "the program has %lld words, not %lld", (long long)p->words,
             (long long)expected);
  element_read(program->input, program->inputs * (int64_t)sizeof(program->input[0]), &words);
  element_read(program->immediate, program->immediates * (int64_t)sizeof(program->immediate[0]), &words);
  element_read(program->step, program->steps * (int64_t)sizeof(program->step[0]), &words);
  element_read(program->output, program->outputs * (int64_t)sizeof(program->output[0]), &words);
  element_turn_comparisons(program);
}

static bool element_is_type(int64_t type) { return type >= 0 && type < TC_TYPES; }

static element_function element_cast(int64_t from, int64_t to) {
  if (!element_is_type(to)) {
    return (element_function){NULL};
  }
  return (element_function){cast_find(from, to), &cast_types[from], &cast_types[to], to, 1, false};
}

/* The function of a step; `type` is one. */
static element_function element_find(int64_t kind, int64_t op, int64_t type) {
  const bool f32 = type == TC_TYPE_F32;
  element_function found = {NULL, NULL, NULL, type, 2, f32};
  switch (kind) {
    case TC_ELEMENT_UNARY:
      found.run = f32 ? unary_find(op) : op >= 0 && op < UNARY_OPS ? unary_typed[type][op] : NULL;
      found.sources = 1;
      found.repeats = false;
      return found;
    case TC_ELEMENT_BINARY:
      found.run = f32 ? binary_f32_find(op) : op >= 0 && op < BINARY_OPS ? binary_typed[type][op] : NULL;
      found.repeats = f32 && binary_f32_repeats(op);
      return found;
    case TC_ELEMENT_COMPARE:
      found.run = op >= 0 && op < COMPARE_OPS ? compare_typed[type][op] : NULL;
      found.result = TC_TYPE_BOOL;
      found.repeats = false;
      return found;
    case TC_ELEMENT_LOGICAL:
      found.run = op >= 0 && op < LOGICAL_OPS && type == TC_TYPE_BOOL ? logical_rows[op] : NULL;
      return found;
    case TC_ELEMENT_WHERE:
      return (element_function){where_find(cast_types[type].size), NULL, NULL, type, 3, false};
    case TC_ELEMENT_CAST:
      return element_cast(type, op);
    default:
      return found;
  }
}

/* Checks one step and states the type of its result. */
static void element_check_step(tc_prepare *prepare, const element_program *program, int64_t number, int64_t *types) {
  const int64_t kind = program->step[number].kind, op = program->step[number].op, type = program->step[number].type;
  const int64_t value = program->inputs + program->immediates + number;
  TC_REQUIRE(prepare, element_is_type(type), "step %lld: there is no type %lld", (long long)number, (long long)type);
  const element_function function = element_find(kind, op, type);
  TC_REQUIRE(prepare, function.run, "step %lld: there is no operation %lld of kind %lld on type %lld",
             (long long)number, (long long)op, (long long)kind, (long long)type);
  for (int s = 0; s < function.sources; s++) {
    const int64_t source = program->step[number].source[s];
    const int64_t wanted = kind == TC_ELEMENT_WHERE && s == 0 ? TC_TYPE_BOOL : type;
    TC_REQUIRE(prepare, source >= 0 && source < value && types[source] == wanted,
               "step %lld: source %d is number %lld, which is not there or of another type", (long long)number, s,
               (long long)source);
  }
  TC_REQUIRE(prepare, !isnan(program->step[number].a) && !isnan(program->step[number].b), "step %lld: a or b is NaN",
             (long long)number);
  types[value] = function.result;
}

/* Checks the outputs and the presence of operands. */
static void element_check_operands(tc_prepare *prepare, const element_program *program) {
  const int64_t first = program->inputs + program->immediates;
  for (int64_t i = 0; i < TC_ELEMENT_OUTPUTS; i++) {
    TC_REQUIRE(prepare, tc_present(prepare, (int)i) == (i < program->outputs), "output %lld is there, or is not",
               (long long)i);
    for (int64_t j = 0; j < i && i < program->outputs; j++) {
      TC_REQUIRE(prepare, program->output[i] != program->output[j], "two outputs of the same step");
    }
    TC_REQUIRE(prepare,
               i >= program->outputs || (program->output[i] >= first && program->output[i] < first + program->steps),
               "output %lld is of number %lld, which is no step", (long long)i, (long long)program->output[i]);
  }
  for (int64_t i = 0; i < TC_ELEMENT_INPUTS; i++) {
    TC_REQUIRE(prepare, tc_present(prepare, ELEMENT_FIRST_INPUT + (int)i) == (i < program->inputs),
               "input %lld is there, or is not", (long long)i);
  }
}

/* Reads and checks the program; fills the type of every value. */
static void element_program_check(tc_prepare *prepare, element_program *program, int64_t *types) {
  element_program_read(prepare, program);
  if (tc_refused(prepare)) {
    return;
  }
  for (int64_t i = 0; i < program->inputs + program->immediates; i++) {
    types[i] = i < program->inputs ? program->input[i].type : program->immediate[i - program->inputs].type;
    TC_REQUIRE(prepare, element_is_type(types[i]), "there is no type %lld", (long long)types[i]);
  }
  for (int64_t i = 0; i < program->steps && !tc_refused(prepare); i++) {
    element_check_step(prepare, program, i, types);
  }
  if (!tc_refused(prepare)) {
    element_check_operands(prepare, program);
  }
}

#endif
