/* Building a program: constants, instructions, and the checks that need no kernel's help. */
#include "program.h"

#include <stdlib.h>
#include <string.h>

/* Makes room for one more item; false if there is no memory. */
static bool reserve(void **items, int64_t count, int64_t *capacity, size_t item_size) {
  if (count < *capacity) {
    return true;
  }
  const int64_t larger = *capacity ? *capacity * 2 : 16;
  void *moved = realloc(*items, (size_t)larger * item_size);
  if (!moved) {
    return false;
  }
  *items = moved;
  *capacity = larger;
  return true;
}

int32_t tc_program_create(const char *isa, int32_t inputs, int32_t outputs, tc_program **out, tc_error *error) {
  *out = NULL;
  const tc_isa *chosen = tc_isa_demand(isa, error);
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
  program->inputs = calloc((size_t)inputs + 1, sizeof(tc_requirement));
  program->outputs = calloc((size_t)outputs + 1, sizeof(tc_requirement));
  if (!program->inputs || !program->outputs) {
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

void tc_program_destroy(tc_program *program) {
  if (!program) {
    return;
  }
  for (int64_t i = 0; i < program->step_count; i++) {
    free(program->steps[i].operands);
    free(program->steps[i].params);
    tc_step_drop_state(program, &program->steps[i]);
  }
  tc_weights_destroy(program->weights);
  free(program->steps);
  free(program->constants);
  free(program->patches);
  free(program->inputs);
  free(program->outputs);
  free(program);
}

int32_t tc_program_add_constant(tc_program *program, const void *data, int64_t bytes, int32_t mapped, tc_error *error) {
  if (program->finished || bytes < 0 || bytes > TC_MAX_BYTES || (!data && bytes)) {
    return tc_error_set(error, TC_INVALID, "a constant of %lld bytes cannot be added", (long long)bytes);
  }
  if (!reserve((void **)&program->constants, program->constant_count, &program->constant_capacity,
               sizeof(tc_constant))) {
    return tc_error_set(error, TC_NO_MEMORY, "no memory for another constant");
  }
  program->constants[program->constant_count++] = (tc_constant){data, bytes, mapped != 0};
  return TC_OK;
}

/* Whether an operand may stand where the signature has `role`; says why not in `error`. */
static int32_t check_operand(const tc_program *program, char role, const tc_operand *operand, tc_error *error) {
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
  const int64_t count = operand->space == TC_INPUT    ? program->input_count
                        : operand->space == TC_OUTPUT ? program->output_count
                        : operand->space == TC_ARENA  ? 1
                                                      : program->constant_count;
  if (operand->index < 0 || operand->index >= count) {
    return tc_error_set(error, TC_INVALID, "index %d is not among the %lld buffers of its space", operand->index,
                        (long long)count);
  }
  if (operand->offset < 0 || operand->offset > TC_MAX_BYTES) {
    return tc_error_set(error, TC_INVALID, "offset %lld is out of range", (long long)operand->offset);
  }
  return TC_OK;
}

/* Puts the instruction and the operand concerned in front of a message. */
static int32_t locate(tc_error *error, int64_t step, const char *kernel, int32_t operand) {
  char message[sizeof(error->message)];
  memcpy(message, error->message, sizeof(message));
  return tc_error_set(error, error->code, "instruction %lld (%s), operand %d: %.200s", (long long)step, kernel, operand,
                      message);
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
    if (check_operand(program, info->signature[i], &operands[i], error)) {
      return locate(error, program->step_count, info->name, i);
    }
  }
  tc_step step = {.kernel = kernel, .operand_count = operand_count, .first_pointer = program->pointer_count};
  step.operands = calloc((size_t)operand_count + 1, sizeof(tc_operand));
  step.params = malloc((size_t)params_size);
  if (!step.operands || !step.params ||
      !reserve((void **)&program->steps, program->step_count, &program->step_capacity, sizeof(tc_step))) {
    free(step.operands);
    free(step.params);
    return tc_error_set(error, TC_NO_MEMORY, "no memory for another instruction");
  }
  memcpy(step.operands, operands, (size_t)operand_count * sizeof(tc_operand));
  memcpy(step.params, params, (size_t)params_size);
  program->steps[program->step_count++] = step;
  program->pointer_count += operand_count + 1;
  return TC_OK;
}

int32_t tc_program_limit(tc_program *program, const tc_operand *count, int64_t rows, tc_error *error) {
  if (program->finished || !program->step_count || rows < 0 || rows > TC_MAX_BYTES) {
    return tc_error_set(error, TC_INVALID, "%lld rows, or no instruction that they could belong to", (long long)rows);
  }
  tc_step *step = &program->steps[program->step_count - 1];
  if ((count->space != TC_ARENA && count->space != TC_OUTPUT) || check_operand(program, 'i', count, error)) {
    return tc_error_set(error, TC_INVALID, "instruction %lld (%s): the number of rows is in no arena and no output",
                        (long long)(program->step_count - 1), tc_kernel_infos[step->kernel].name);
  }
  step->operands[step->operand_count] = *count;
  step->rows = rows;
  return TC_OK;
}

const char *tc_program_isa(const tc_program *program) { return program->isa->name; }

int64_t tc_program_input_bytes(const tc_program *program, int32_t index) {
  return index >= 0 && index < program->input_count ? program->inputs[index].bytes : 0;
}

int64_t tc_program_output_bytes(const tc_program *program, int32_t index) {
  return index >= 0 && index < program->output_count ? program->outputs[index].bytes : 0;
}

int32_t tc_program_work(const tc_program *program, int64_t instruction, tc_work *work) {
  if (!program->finished || instruction < 0 || instruction >= program->step_count) {
    return false;
  }
  *work = program->steps[instruction].work;
  return true;
}

int64_t tc_program_state_bytes(const tc_program *program) { return program->state_bytes; }
