/* Building a program: constants, instructions, and the checks that need no kernel's help. */
#include "program.h"

#include <stdlib.h>
#include <string.h>

int32_t tc_program_create(const char *isa, int32_t inputs, int32_t outputs, tc_program **out, tc_error *error) {
  *out = NULL;
  const tc_isa *chosen = tc_isa_demand_packing(isa, error);
  if (!chosen) {
    return error->code;
  }
  if (inputs < 0 || outputs < 0) {
    return tc_error_set(error, TC_INVALID, "a program cannot have a negative number of inputs or outputs");
  }
  tc_program *program = calloc(1, sizeof(*program));
  if (!program) {
    return tc_error_set(error, TC_NO_MEMORY, "no memory for a program");
  }
  program->isa = chosen;
  program->l2_bytes = tc_cache_bytes(2);
  program->input_count = inputs;
  program->output_count = outputs;
  program->own.inputs = calloc((size_t)inputs + 1, sizeof(tc_requirement));
  program->own.outputs = calloc((size_t)outputs + 1, sizeof(tc_requirement));
  if (!program->own.inputs || !program->own.outputs) {
    tc_program_destroy(program);
    return tc_error_set(error, TC_NO_MEMORY, "no memory for a program");
  }
  *out = program;
  return TC_OK;
}

void tc_step_drop_state(tc_program *program, tc_step *step) {
  if (step->packed) {
    tc_weights_release(program->weights, step->packed);
  } else {
    tc_free(step->state);
  }
  step->packed = NULL;
  step->state = NULL;
}

void tc_control_free(tc_control *control) {
  if (!control) {
    return;
  }
  for (int32_t b = 0; control->bodies && b < tc_control_bodies(control); b++) {
    free((void *)(uintptr_t)control->bodies[b].symbols);
    free((void *)(uintptr_t)control->bodies[b].next);
    free((void *)(uintptr_t)control->bodies[b].outputs);
  }
  for (int32_t r = 0; control->growths && r < control->results; r++) {
    free((void *)(uintptr_t)control->growths[r].dims);
    free((void *)(uintptr_t)control->growths[r].first);
  }
  free((void *)(uintptr_t)control->bytes);
  free((void *)(uintptr_t)control->bodies);
  free((void *)(uintptr_t)control->growths);
  free(control);
}

void tc_program_destroy(tc_program *program) {
  if (!program) {
    return;
  }
  for (int64_t i = 0; i < program->step_count; i++) {
    free(program->own.steps[i].operands);
    free(program->own.steps[i].params);
    tc_control_free(program->own.steps[i].control);
    tc_step_drop_state(program, &program->own.steps[i]);
  }
  tc_weights_destroy(program->weights);
  for (int64_t i = 0; i < program->piece_count; i++) {
    free(program->pieces[i].above);
  }
  for (int32_t i = 0; program->own.tables && i < program->table_count; i++) {
    tc_free(program->own.tables[i]);
  }
  free(program->own.tables);
  free(program->own.values);
  free(program->own.starts);
  free(program->formulas.items);
  free(program->formulas.stages);
  free(program->left);
  free(program->input_values);
  free(program->output_values);
  free(program->pieces);
  free(program->order);
  free(program->fixups);
  free(program->words);
  free(program->own.steps);
  free(program->own.reaches);
  tc_holes_free(&program->own);
  free(program->constants);
  free(program->patches);
  free(program->own.inputs);
  free(program->own.outputs);
  while (program->about.body_count-- > 0) { /* each behind its own bodies */
    tc_program_destroy(program->about.bodies[program->about.body_count]);
  }
  free(program->about.bodies);
  free(program->about.conditions);
  tc_store_free(&program->about.store);
  free(program);
}

int32_t tc_program_add_constant(tc_program *program, const void *data, int64_t bytes, int32_t mapped, tc_error *error) {
  if (program->finished || bytes < 0 || bytes > TC_MAX_BYTES || (!data && bytes)) {
    return tc_error_set(error, TC_INVALID, "a constant of %lld bytes cannot be added", (long long)bytes);
  }
  if (!tc_reserve((void **)&program->constants, program->constant_count, &program->constant_capacity,
                  sizeof(tc_constant))) {
    return tc_error_set(error, TC_NO_MEMORY, "no memory for another constant");
  }
  program->constants[program->constant_count++] = (tc_constant){data, bytes, mapped != 0, -1};
  return TC_OK;
}

int32_t tc_check_operand(const tc_program *program, char role, const tc_operand *operand, tc_error *error) {
  const bool optional = role >= 'A' && role <= 'Z';
  const char kind = tc_role(role);
  switch (operand->space) {
    case TC_NONE:
      return optional ? TC_OK : tc_error_set(error, TC_INVALID, "a required operand is absent");
    case TC_INPUT:
    case TC_CONSTANT:
      if (kind == 'o') {
        return tc_error_set(error, TC_INVALID, "an input or a constant cannot be written");
      }
      break;
    case TC_OUTPUT:
    case TC_ARENA:
      break;
    default:
      return tc_error_set(error, TC_INVALID, "there is no operand space %d", operand->space);
  }
  if ((kind == 'w' || kind == 'p') && operand->space != TC_CONSTANT) {
    return tc_error_set(error, TC_INVALID, "the operand must be a constant");
  }
  const int64_t count = operand->space == TC_INPUT        ? program->input_count
                        : operand->space == TC_OUTPUT     ? program->output_count
                        : operand->space == TC_CONSTANT   ? program->constant_count
                        : tc_program_is_symbolic(program) ? program->piece_count
                                                          : 1;
  if (operand->index < 0 || operand->index >= count) {
    return tc_error_set(error, TC_INVALID, "index %d is not among the %lld buffers of its space", operand->index,
                        (long long)count);
  }
  if (operand->offset < 0 || operand->offset > TC_MAX_BYTES) {
    return tc_error_set(error, TC_INVALID, "offset %lld is out of range", (long long)operand->offset);
  }
  return TC_OK;
}

/* Prefixes a message with the instruction and the operand. */
static int32_t locate(tc_error *error, int64_t step, const char *kernel, int32_t operand) {
  char message[sizeof(error->message)];
  memcpy(message, error->message, sizeof(message));
  return tc_error_set(error, error->code, "instruction %lld (%s), operand %d: %.200s", (long long)step, kernel, operand,
                      message);
}

static int32_t add_fixup(tc_program *program, tc_fixup fixup, tc_error *error);

/* Makes the last step depend on the size of an operand's buffer, or on the words of its table. */
static int32_t note_operand(tc_program *program, const tc_operand *operand, tc_error *error) {
  int64_t value = -1;
  if (operand->space == TC_ARENA && program->piece_count) {
    value = program->pieces[operand->index].value;
  } else if (operand->space == TC_INPUT) {
    value = program->input_values[operand->index];
  } else if (operand->space == TC_OUTPUT) {
    value = program->output_values[operand->index];
  } else if (operand->space == TC_CONSTANT) {
    const int32_t table = program->constants[operand->index].table;
    for (int64_t w = 0; table >= 0 && w < program->word_count; w++) {
      if (program->words[w].table == table &&
          add_fixup(program, (tc_fixup){.kind = TC_FIXUP_NONE, .value = program->words[w].value}, error)) {
        return error->code;
      }
    }
  }
  return value < 0 ? TC_OK : add_fixup(program, (tc_fixup){.kind = TC_FIXUP_NONE, .value = value}, error);
}

int32_t tc_note_dependencies(tc_program *program, const tc_step *step, tc_error *error) {
  for (int32_t i = 0; tc_program_is_symbolic(program) && i < step->operand_count; i++) {
    if (note_operand(program, &step->operands[i], error)) {
      return error->code;
    }
  }
  return TC_OK;
}

/* Removes the last step. */
static void drop_last(tc_program *program) {
  const tc_step *step = &program->own.steps[--program->step_count];
  program->fixup_count -= step->fixup_count;
  program->pointer_count = step->first_pointer;
  free(step->operands);
  free(step->params);
}

int32_t tc_program_append(tc_program *program, int32_t kernel, const tc_operand *operands, int32_t operand_count,
                          const void *params, int64_t params_size, tc_error *error) {
  if (program->finished || kernel < 0 || kernel >= TC_KERNEL_COUNT) {
    return tc_error_set(error, TC_INVALID, "there is no kernel %d, or the program is finished", kernel);
  }
  const tc_kernel_info *info = &tc_kernel_infos[kernel];
  if (operand_count != (int32_t)strlen(info->signature) || params_size != info->params_size) {
    return tc_error_set(error, TC_INVALID,
                        "instruction %lld (%s): %d operands and %lld bytes of parameters, not %d and %lld",
                        (long long)program->step_count, info->name, operand_count, (long long)params_size,
                        (int)strlen(info->signature), (long long)info->params_size);
  }
  for (int32_t i = 0; i < operand_count; i++) {
    if (tc_check_operand(program, info->signature[i], &operands[i], error)) {
      return locate(error, program->step_count, info->name, i);
    }
  }
  tc_step step = {.kernel = kernel, .operand_count = operand_count, .first_pointer = program->pointer_count};
  step.operands = calloc((size_t)operand_count, sizeof(tc_operand));
  step.params = malloc((size_t)params_size);
  if (!step.operands || !step.params ||
      !tc_reserve((void **)&program->own.steps, program->step_count, &program->step_capacity, sizeof(tc_step))) {
    free(step.operands);
    free(step.params);
    return tc_error_set(error, TC_NO_MEMORY, "no memory for another instruction");
  }
  memcpy(step.operands, operands, (size_t)operand_count * sizeof(tc_operand));
  memcpy(step.params, params, (size_t)params_size);
  program->own.steps[program->step_count++] = step;
  program->pointer_count += operand_count;
  if (tc_note_dependencies(program, &program->own.steps[program->step_count - 1], error)) {
    drop_last(program);
    return error->code;
  }
  return TC_OK;
}

/* ---- symbolic programs ---- */

int32_t tc_program_symbols(tc_program *program, int32_t shown, int32_t found, tc_error *error) {
  if (program->finished || program->step_count || program->formulas.symbol_count || shown < 0 || found < 0 ||
      shown > TC_MAX_SYMBOLS || found > TC_MAX_SYMBOLS || shown + found < 1) {
    return tc_error_set(error, TC_INVALID,
                        "a program cannot have %d and %d symbols, or has some or instructions already", shown, found);
  }
  const size_t inputs = ((size_t)program->input_count + 1) * sizeof(int64_t);
  const size_t outputs = ((size_t)program->output_count + 1) * sizeof(int64_t);
  int64_t *input_values = malloc(inputs), *output_values = malloc(outputs);
  if (!input_values || !output_values) {
    free(input_values);
    free(output_values);
    return tc_error_set(error, TC_NO_MEMORY, "no memory for symbols");
  }
  program->input_values = memset(input_values, -1, inputs);
  program->output_values = memset(output_values, -1, outputs);
  program->formulas.symbol_count = (int64_t)shown + found;
  program->found_count = found;
  return TC_OK;
}

bool tc_is_value(const tc_program *program, int64_t value) {
  return value >= 0 && value < tc_formulas_values(&program->formulas);
}

/* Whether formulas and buffers may still be added: later, arrays have been allocated for their number. */
static bool is_open(const tc_program *program) { return !program->finished && !program->own.values; }

int32_t tc_program_formula(tc_program *program, int32_t operation, int64_t a, int64_t b, int64_t c, tc_error *error) {
  tc_formulas *formulas = &program->formulas;
  const int64_t operands[3] = {a, b, c};
  if (!is_open(program) || !tc_program_is_symbolic(program) || operation < TC_FORMULA_CONSTANT ||
      operation > TC_FORMULA_CONDITION) {
    return tc_error_set(error, TC_INVALID, "there is no formula %d, or the program has no symbols or all its sizes",
                        operation);
  }
  for (int i = 0; i < tc_formula_operands(operation); i++) {
    if (!tc_is_value(program, operands[i])) {
      return tc_error_set(error, TC_INVALID, "a formula of value %lld, which comes later", (long long)operands[i]);
    }
  }
  if (operation == TC_FORMULA_CONSTANT && (a > TC_MAX_BYTES || a < -TC_MAX_BYTES)) {
    return tc_error_set(error, TC_INVALID, "a size of %lld", (long long)a);
  }
  if (!tc_reserve((void **)&formulas->items, formulas->count, &formulas->capacity, sizeof(tc_formula))) {
    return tc_error_set(error, TC_NO_MEMORY, "no memory for another formula");
  }
  formulas->items[formulas->count++] = (tc_formula){operation, {a, b, c}};
  return TC_OK;
}

int32_t tc_program_piece(tc_program *program, int64_t value, const int64_t *above, int64_t count, tc_error *error) {
  if (!is_open(program) || program->step_count || !tc_is_value(program, value) || count < 0) {
    return tc_error_set(error, TC_INVALID, "a piece of the arena of unknown size, or behind instructions");
  }
  int64_t *kept = malloc(((size_t)count + 1) * sizeof(int64_t));
  if (!kept ||
      !tc_reserve((void **)&program->pieces, program->piece_count, &program->piece_capacity, sizeof(tc_piece))) {
    free(kept);
    return tc_error_set(error, TC_NO_MEMORY, "no memory for another piece of the arena");
  }
  if (count > 0) { /* a piece that begins after no other has no list */
    memcpy(kept, above, (size_t)count * sizeof(int64_t));
  }
  program->pieces[program->piece_count++] = (tc_piece){value, kept, count};
  return TC_OK;
}

int32_t tc_program_buffer_size(tc_program *program, int32_t space, int32_t index, int64_t value, tc_error *error) {
  const int32_t count = space == TC_INPUT ? program->input_count : space == TC_OUTPUT ? program->output_count : 0;
  if (!is_open(program) || program->step_count || index < 0 || index >= count || !tc_is_value(program, value)) {
    return tc_error_set(error, TC_INVALID,
                        "there is no buffer %d in space %d, or no value %lld, or they come behind instructions", index,
                        space, (long long)value);
  }
  (space == TC_INPUT ? program->input_values : program->output_values)[index] = value;
  return TC_OK;
}

static int32_t add_fixup(tc_program *program, tc_fixup fixup, tc_error *error) {
  if (program->finished || !tc_is_value(program, fixup.value)) {
    return tc_error_set(error, TC_INVALID, "there is no value %lld, or the program is finished",
                        (long long)fixup.value);
  }
  if (!tc_reserve((void **)&program->fixups, program->fixup_count, &program->fixup_capacity, sizeof(tc_fixup))) {
    return tc_error_set(error, TC_NO_MEMORY, "no memory for another formula");
  }
  tc_step *step = &program->own.steps[program->step_count - 1];
  if (!step->depends) {
    step->depends = true;
    step->first_fixup = program->fixup_count;
  }
  step->fixup_count++;
  program->fixups[program->fixup_count++] = fixup;
  return TC_OK;
}

int32_t tc_note_value(tc_program *program, int64_t value, tc_error *error) {
  return add_fixup(program, (tc_fixup){.kind = TC_FIXUP_NONE, .value = value}, error);
}

int32_t tc_program_parameter(tc_program *program, int64_t byte, int64_t value, tc_error *error) {
  const tc_step *step = program->step_count ? &program->own.steps[program->step_count - 1] : NULL;
  if (!step || step->control || byte < 0 || byte % 8 || byte > tc_kernel_infos[step->kernel].params_size - 8) {
    return tc_error_set(error, TC_INVALID, "there is no parameter at byte %lld", (long long)byte);
  }
  return add_fixup(program, (tc_fixup){.kind = TC_FIXUP_PARAMETER, .place = byte, .value = value}, error);
}

int32_t tc_program_offset(tc_program *program, int32_t operand, int64_t value, tc_error *error) {
  const tc_step *step = program->step_count ? &program->own.steps[program->step_count - 1] : NULL;
  if (!step || operand < 0 || operand >= step->operand_count || step->operands[operand].space == TC_NONE) {
    return tc_error_set(error, TC_INVALID, "there is no operand %d", operand);
  }
  return add_fixup(program, (tc_fixup){.kind = TC_FIXUP_OFFSET, .place = operand, .value = value}, error);
}

int32_t tc_program_setup(tc_program *program, int64_t instructions, tc_error *error) {
  if (program->finished || !tc_program_is_symbolic(program) || instructions < 0 || instructions > program->step_count) {
    return tc_error_set(error, TC_INVALID, "no program over sizes, or it has no %lld instructions",
                        (long long)instructions);
  }
  for (int64_t s = 0; s < instructions; s++) {
    const tc_step *step = &program->own.steps[s];
    bool alone = !step->control;
    for (int32_t i = 0; i < step->operand_count; i++) {
      alone = alone && step->operands[i].space != TC_INPUT && step->operands[i].space != TC_OUTPUT;
    }
    if (!alone) {
      return tc_error_set(error, TC_INVALID, "instruction %lld (%s) does not follow from sizes alone", (long long)s,
                          tc_step_name(step));
    }
  }
  program->setup_count = instructions;
  return TC_OK;
}

int32_t tc_program_finds(tc_program *program, int32_t operand, int64_t symbol, int64_t most, tc_error *error) {
  tc_step *step = program->step_count ? &program->own.steps[program->step_count - 1] : NULL;
  if (!is_open(program) || !step || step->control || step->finds || operand < 0 || operand >= step->operand_count ||
      tc_role(tc_kernel_infos[step->kernel].signature[operand]) != 'o' || step->operands[operand].space != TC_ARENA ||
      symbol != program->formulas.symbol_count - program->found_count + program->find_count ||
      program->find_count >= program->found_count || (most != -1 && !tc_is_value(program, most))) {
    return tc_error_set(error, TC_INVALID, "the last instruction finds out no symbol %lld in operand %d",
                        (long long)symbol, operand);
  }
  step->finds = true;
  step->found_operand = operand;
  step->symbol = symbol;
  step->most = most;
  program->find_count++;
  return TC_OK;
}

int32_t tc_program_leaves(tc_program *program, int32_t output, const tc_operand *place, int64_t bytes, int32_t rank,
                          const int64_t *dims, tc_error *error) {
  bool sound = is_open(program) && output >= 0 && output < program->output_count && place->space == TC_ARENA &&
               !tc_check_operand(program, 'i', place, error) && rank >= 0 && rank <= TC_MAX_RANK &&
               tc_is_value(program, bytes); /* which only programs over sizes have */
  tc_left left = {.output = output, .place = *place, .bytes = bytes, .rank = rank};
  for (int32_t d = 0; sound && d < rank; d++) {
    sound = tc_is_value(program, dims[d]);
  }
  if (!sound) {
    return tc_error_set(error, TC_INVALID, "output %d cannot lie there", output);
  }
  if (rank > 0) { /* a scalar may have no list */
    memcpy(left.dims, dims, (size_t)rank * sizeof(int64_t));
  }
  if (!tc_reserve((void **)&program->left, program->left_count, &program->left_capacity, sizeof(tc_left))) {
    return tc_error_set(error, TC_NO_MEMORY, "no memory for another output");
  }
  program->left[program->left_count++] = left;
  return TC_OK;
}

int32_t tc_program_word(tc_program *program, int32_t constant, int64_t word, int64_t value, tc_error *error) {
  if (!is_open(program) || program->step_count || constant < 0 || constant >= program->constant_count || word < 0 ||
      word >= program->constants[constant].bytes / 8 || !tc_is_value(program, value)) {
    return tc_error_set(error, TC_INVALID, "constant %d has no word %lld, or it comes behind instructions", constant,
                        (long long)word);
  }
  if (!tc_reserve((void **)&program->words, program->word_count, &program->word_capacity, sizeof(tc_fixup))) {
    return tc_error_set(error, TC_NO_MEMORY, "no memory for another word");
  }
  if (program->constants[constant].table < 0) {
    program->constants[constant].table = program->table_count++;
  }
  program->words[program->word_count++] =
      (tc_fixup){.kind = TC_FIXUP_WORD, .place = word, .table = program->constants[constant].table, .value = value};
  return TC_OK;
}

const char *tc_program_isa(const tc_program *program) { return program->isa->name; }

int64_t tc_program_input_bytes(const tc_program *program, int32_t index) {
  return index >= 0 && index < program->input_count ? program->own.inputs[index].bytes : 0;
}

int64_t tc_program_output_bytes(const tc_program *program, int32_t index) {
  return index >= 0 && index < program->output_count ? program->own.outputs[index].bytes : 0;
}

int32_t tc_program_work(const tc_program *program, int64_t instruction, tc_work *work) {
  if (!program->finished || instruction < 0 || instruction >= program->step_count) {
    return false;
  }
  *work = program->own.steps[instruction].work;
  return true;
}

int64_t tc_program_state_bytes(const tc_program *program) { return program->state_bytes; }

void tc_program_assume_cache(tc_program *program, int64_t bytes) { program->l2_bytes = bytes; }

int32_t tc_step_plan_of(const tc_program *program, const tc_instance *instance, int64_t instruction,
                        tc_step_plan *plan) {
  if (!program->finished || instruction < 0 || instruction >= program->step_count ||
      instance->steps[instruction].control) {
    return false;
  }
  const tc_step *step = &instance->steps[instruction];
  *plan = (tc_step_plan){step->units, step->scratch_bytes, step->state_bytes, step->state, step->shareable};
  return true;
}

int32_t tc_program_plan(const tc_program *program, int64_t instruction, tc_step_plan *plan) {
  return tc_step_plan_of(program, &program->own, instruction, plan);
}

int32_t tc_stretch_of(const tc_instance *instance, int64_t i, int32_t *buffer, int64_t *begin, int64_t *end) {
  if (i < 0 || i >= instance->holes.count) {
    return false;
  }
  const tc_stretch *stretch = &instance->holes.items[i];
  *buffer = stretch->buffer;
  *begin = stretch->begin;
  *end = stretch->end;
  return true;
}

int32_t tc_program_cleared(const tc_program *program, int64_t i, int32_t *buffer, int64_t *begin, int64_t *end) {
  return tc_stretch_of(&program->own, i, buffer, begin, end);
}
