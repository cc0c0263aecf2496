/* Building instructions with bodies, control flow. */
#include "program.h"

#include <stdlib.h>
#include <string.h>

static bool is_unknown(const tc_extent *extent) { return extent->value < 0 && extent->number < 0; }

static void *copied(const void *from, int64_t count, size_t size) {
  void *copy = calloc((size_t)count + 1, size);
  if (copy && count && from) {
    memcpy(copy, from, (size_t)count * size);
  }
  return copy;
}

/* A copy of the description and all that it points to; NULL without memory. */
static tc_control *control_copy(const tc_control *from) {
  tc_control *control = copied(from, 1, sizeof(*from));
  if (!control) {
    return NULL;
  }
  const int32_t bodies = tc_control_bodies(from);
  control->operands = NULL;
  control->bytes = copied(from->bytes, tc_control_operands(from), sizeof(tc_extent));
  tc_body *body_copies = calloc(3, sizeof(tc_body));
  tc_growth *growths = calloc((size_t)from->results + 1, sizeof(tc_growth));
  control->bodies = body_copies;
  control->growths = growths;
  bool enough = control->bytes && body_copies && growths;
  for (int32_t b = 0; enough && b < bodies; b++) {
    const tc_body *body = &from->bodies[b];
    const int64_t symbols = body->program->formulas.symbol_count;
    body_copies[b].program = body->program;
    body_copies[b].symbols = copied(body->symbols, symbols, sizeof(tc_extent));
    body_copies[b].next = copied(body->next, symbols, sizeof(int64_t));
    body_copies[b].outputs = copied(body->outputs, body->program->output_count, sizeof(tc_extent));
    enough = body_copies[b].symbols && body_copies[b].next && body_copies[b].outputs;
  }
  for (int32_t r = 0; enough && r < from->results; r++) {
    growths[r].rank = from->growths ? from->growths[r].rank : -1;
    if (growths[r].rank >= 0) {
      growths[r].dims = copied(from->growths[r].dims, growths[r].rank, sizeof(tc_extent));
      growths[r].first = copied(from->growths[r].first, growths[r].rank, sizeof(tc_extent));
      enough = growths[r].dims && growths[r].first;
    }
  }
  if (!enough) {
    tc_control_free(control);
    return NULL;
  }
  return control;
}

/* Whether a trip knows its extents before it runs. */
static bool are_early(const tc_program *inner, const tc_extent *extents, int64_t count) {
  bool early = true;
  for (int64_t i = 0; inner->found_count && i < count; i++) {
    early = early && (extents[i].value < 0 || tc_formulas_stage_of(&inner->formulas, extents[i].value) == 0);
  }
  return early;
}

static bool extents_fit(const tc_program *program, const tc_extent *extents, int64_t count) {
  bool fit = true;
  for (int64_t i = 0; i < count; i++) {
    fit = fit && (extents[i].value < 0 || tc_is_value(program, extents[i].value)) && extents[i].number <= TC_MAX_BYTES;
  }
  return fit;
}

static int32_t check_body(const tc_program *program, const tc_control *control, const tc_body *body, tc_error *error) {
  const tc_program *inner = body->program;
  if (!inner || !inner->finished || inner->left_count || inner->input_count != tc_body_inputs(control) ||
      inner->output_count != tc_body_outputs(control)) {
    return tc_error_set(error, TC_INVALID, "a body is not finished, or does not take or give what it must");
  }
  const int64_t symbols = inner->formulas.symbol_count;
  bool sound = extents_fit(program, body->symbols, symbols) && extents_fit(inner, body->outputs, inner->output_count) &&
               are_early(inner, body->outputs, inner->output_count);
  for (int64_t s = 0; control->kind == TC_CONTROL_LOOP && s < symbols; s++) {
    sound = sound && (body->next[s] < 0 || tc_is_value(inner, body->next[s]));
  }
  return sound ? TC_OK : tc_error_set(error, TC_INVALID, "there is no such value for a body");
}

static int32_t check_control(const tc_program *program, const tc_control *control, tc_error *error) {
  const int32_t kind = control->kind, many = 1 << 20;
  if (program->finished || kind < TC_CONTROL_IF || kind > TC_CONTROL_LOOP || control->carried < 0 ||
      control->captured < 0 || control->results < control->carried || control->captured > many ||
      control->results > many || (kind == TC_CONTROL_IF && control->carried)) {
    return tc_error_set(error, TC_INVALID, "there is no such control flow, or the program is finished");
  }
  const int32_t operands = tc_control_operands(control);
  for (int32_t i = 0; i < operands; i++) {
    const char role = i >= operands - control->results ? 'O' : i < 2 && kind == TC_CONTROL_LOOP ? 'I' : 'i';
    if (tc_check_operand(program, role, &control->operands[i], error)) {
      return error->code;
    }
  }
  for (int32_t b = 0; b < tc_control_bodies(control); b++) {
    if (check_body(program, control, &control->bodies[b], error)) {
      return error->code;
    }
  }
  bool sound = extents_fit(program, control->bytes, operands);
  for (int32_t i = 0; i < operands; i++) {
    const int32_t result = i - (operands - control->results);
    const bool grows = result >= 0 && control->growths && control->growths[result].rank >= 0;
    sound = sound && (is_unknown(&control->bytes[i]) == grows || control->operands[i].space == TC_NONE);
    if (sound && grows) {
      const tc_growth *growth = &control->growths[result];
      sound = kind == TC_CONTROL_LOOP && growth->rank < TC_MAX_RANK && control->operands[i].space == TC_OUTPUT &&
              control->operands[i].offset == 0 && extents_fit(program, growth->first, growth->rank) &&
              extents_fit(control->bodies[0].program, growth->dims, growth->rank) &&
              are_early(control->bodies[0].program, growth->dims, growth->rank);
    }
    sound = sound &&
            (i >= tc_control_leading(control) || control->operands[i].space == TC_NONE ||
             (control->bytes[i].value < 0 && control->bytes[i].number == (i == 0 && kind == TC_CONTROL_LOOP ? 8 : 1)));
  }
  return sound ? TC_OK : tc_error_set(error, TC_INVALID, "an operand has no size, or there is no such value");
}

/* Lets the step be looked at again where an extent changes. */
static int32_t note_extents(tc_program *program, const tc_extent *extents, int64_t count, tc_error *error) {
  for (int64_t i = 0; i < count; i++) {
    if (extents[i].value >= 0 && tc_note_value(program, extents[i].value, error)) {
      return error->code;
    }
  }
  return TC_OK;
}

int32_t tc_program_control(tc_program *program, const tc_control *control, tc_error *error) {
  if (check_control(program, control, error)) {
    char message[sizeof(error->message)];
    memcpy(message, error->message, sizeof(message));
    return tc_error_set(error, error->code, "instruction %lld (control flow): %.230s", (long long)program->step_count,
                        message);
  }
  const int32_t operands = tc_control_operands(control);
  tc_step step = {.operand_count = operands, .first_pointer = program->pointer_count};
  step.control_index = program->control_count;
  step.operands = copied(control->operands, operands, sizeof(tc_operand));
  step.control = control_copy(control);
  if (!step.operands || !step.control ||
      !tc_reserve((void **)&program->own.steps, program->step_count, &program->step_capacity, sizeof(tc_step))) {
    free(step.operands);
    tc_control_free(step.control);
    return tc_error_set(error, TC_NO_MEMORY, "no memory for another instruction");
  }
  program->own.steps[program->step_count++] = step;
  program->pointer_count += operands;
  program->control_count++;
  if (!tc_program_is_symbolic(program)) {
    return TC_OK;
  }
  return tc_note_dependencies(program, &step, error) || note_extents(program, step.control->bytes, operands, error)
             ? error->code
             : TC_OK;
}
