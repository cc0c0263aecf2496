/* Finishing a program: every kernel validates its call, states what it needs, and packs its weights. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"
#include "platform.h"
#include "initialised.h"

/* A call that costs less (operations or bytes) ends before another thread has woken up. */
static const double parallel_cost = 50e3;

/* The bytes of a caller's buffer by its value; without a value it may be as large as the program needs. */
static int64_t bytes_of(const tc_instance *instance, const int64_t *values, int32_t index) {
  return values && values[index] >= 0 ? instance->values[values[index]] : TC_MAX_BYTES;
}

/* The most operations for a call that reads and writes so many bytes. No matrix product needs more than this, but a
 * damaged call that repeats one element for ever does. */
static double most_cost(double bytes) { return 0x1p36 + 64 * bytes * sqrt(bytes); }

/* The bytes of an operand's buffer. Typical sizes need not agree with each other, so buffers that depend on sizes are
 * not checked against them. */
static int64_t available(const tc_program *program, const tc_instance *instance, const tc_operand *operand) {
  if (operand->space != TC_CONSTANT && tc_program_is_symbolic(program) && instance == &program->own) {
    return TC_MAX_BYTES;
  }
  switch (operand->space) {
    case TC_CONSTANT:
      return program->constants[operand->index].bytes;
    case TC_ARENA:
      return program->piece_count ? instance->values[program->pieces[operand->index].value] : instance->arena_bytes;
    case TC_INPUT:
      return bytes_of(instance, program->input_values, operand->index);
    default:
      return bytes_of(instance, program->output_values, operand->index);
  }
}

static void require(tc_requirement *buffer, int64_t bytes, int32_t alignment) {
  buffer->bytes = tc_max(buffer->bytes, bytes);
  buffer->alignment = alignment > buffer->alignment ? alignment : buffer->alignment;
}

static bool is_aligned(const void *data, int32_t alignment) { return (uintptr_t)data % (uintptr_t)alignment == 0; }

/* Checks one operand against its buffer, and records the requirements on a caller's buffer. */
static void bound_operand(const tc_program *program, tc_instance *instance, tc_prepare *prepare, int index, char role) {
  const tc_operand *operand = &prepare->operands[index];
  if (operand->space == TC_NONE) {
    return;
  }
  const int64_t extent = prepare->extents[index];
  const int32_t alignment = prepare->alignments[index];
  if (extent == 0) {
    return;
  }
  TC_REQUIRE(prepare, operand->offset >= 0, "operand %d: offset %lld is out of range", index,
             (long long)operand->offset);
  const int64_t end = operand->offset + extent, size = available(program, instance, operand);
  TC_REQUIRE(prepare, end <= size, "operand %d ends at byte %lld of a buffer of %lld", index, (long long)end,
             (long long)size);
  TC_REQUIRE(prepare, operand->offset % alignment == 0, "operand %d: offset %lld is not a multiple of %d", index,
             (long long)operand->offset, alignment);
  if (operand->space == TC_CONSTANT) {
    TC_REQUIRE(prepare, role == 'p' || is_aligned(program->constants[operand->index].data, alignment),
               "operand %d: the constant is not aligned to its element size", index);
  } else if (operand->space == TC_INPUT) {
    require(&instance->inputs[operand->index], end, alignment);
  } else if (operand->space == TC_OUTPUT) {
    require(&instance->outputs[operand->index], end, alignment);
  }
}

/* The data of a constant operand, so that a prepare hook can read it; NULL if its offset is past the end. */
static const void *constant_data(const tc_program *program, const tc_instance *instance, const tc_operand *operand) {
  if (operand->space != TC_CONSTANT || operand->offset < 0 ||
      operand->offset > program->constants[operand->index].bytes) {
    return NULL;
  }
  const tc_constant *constant = &program->constants[operand->index];
  return (const char *)(constant->table < 0 ? constant->data : instance->tables[constant->table]) + operand->offset;
}

/* Runs the prepare hook. */
static void ask(const tc_program *program, const tc_instance *instance, const tc_step *step, tc_prepare *prepare) {
  for (int i = 0; i < TC_MAX_OPERANDS; i++) {
    prepare->alignments[i] = 1;
  }
  for (int i = 0; i < step->operand_count; i++) {
    prepare->extents[i] = tc_present(prepare, i) ? TC_MAX_BYTES + 1 : 0;
    prepare->constants[i] = constant_data(program, instance, &step->operands[i]);
    prepare->constant_bytes[i] =
        prepare->constants[i] ? available(program, instance, &step->operands[i]) - step->operands[i].offset : 0;
  }
  program->isa->kernels[step->kernel].prepare(prepare);
}

static bool is_size(int64_t number) { return number >= 0 && number <= TC_MAX_BYTES; }

/* Runs the prepare hook, and checks everything that it stated. */
static void prepare_step(const tc_program *program, tc_instance *instance, const tc_step *step, tc_prepare *prepare) {
  const char *roles = tc_kernel_infos[step->kernel].signature;
  ask(program, instance, step, prepare);
  for (int i = 0; i < step->operand_count && !tc_refused(prepare); i++) {
    bound_operand(program, instance, prepare, i, tc_role(roles[i]));
  }
  TC_REQUIRE(prepare, !step->finds || prepare->extents[step->found_operand] >= (int64_t)sizeof(int64_t),
             "operand %d is too small for a size", step->found_operand);
  const int64_t figures[] = {prepare->units, prepare->state_bytes, prepare->scratch_bytes};
  for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++) {
    TC_REQUIRE(prepare, is_size(figures[i]), "the call is too large");
  }
  double bytes = 0;
  for (int i = 0; i < step->operand_count; i++) {
    bytes += (double)prepare->extents[i];
  }
  const double cost = prepare->cost > (double)prepare->units ? prepare->cost : (double)prepare->units;
  TC_REQUIRE(prepare, cost <= most_cost(bytes), "the call would take %.3g operations for %.3g bytes", cost, bytes);
}

static tc_weights_key weights_key(const tc_program *program, const tc_step *step, const tc_prepare *prepare) {
  tc_weights_key key;
  memset(&key, 0, sizeof(key));
  key.isa = program->isa;
  key.kernel = step->kernel;
  key.bytes = prepare->state_bytes;
  memcpy(key.shared, prepare->shared, sizeof(key.shared));
  for (int i = 0; i < step->operand_count; i++) {
    key.constants[i] = prepare->constants[i];
  }
  return key;
}

/* Replaces constants that are not aligned to their element size by copies that are; false without memory. */
static bool align_constants(tc_prepare *prepare, int operands, void **copies) {
  for (int i = 0; i < operands; i++) {
    if (!prepare->constants[i] || prepare->extents[i] <= 0 ||
        is_aligned(prepare->constants[i], prepare->alignments[i])) {
      continue;
    }
    copies[i] = malloc((size_t)prepare->extents[i]);
    if (!copies[i]) {
      return false;
    }
    memcpy(copies[i], prepare->constants[i], (size_t)prepare->extents[i]);
    prepare->constants[i] = copies[i];
  }
  return true;
}

static int32_t pack_step(const tc_program *program, const tc_step *step, const tc_prepare *prepare, void *state) {
  tc_prepare aligned = *prepare;
  void *copies[TC_MAX_OPERANDS] = {NULL};
  const bool ready = align_constants(&aligned, step->operand_count, copies);
  if (ready) {
    program->isa->kernels[step->kernel].pack(&aligned, state);
  }
  for (int i = 0; i < step->operand_count; i++) {
    free(copies[i]);
  }
  return ready ? TC_OK : tc_error_set(prepare->error, TC_NO_MEMORY, "no memory to pack weights");
}

/* Packs the weights of a step, or reuses those that another program has packed. */
static int32_t give_state(tc_program *program, tc_step *step, const tc_prepare *prepare) {
  const bool shared = prepare->shareable && program->weights;
  const tc_weights_key key = weights_key(program, step, prepare);
  step->packed = shared ? tc_weights_find(program->weights, &key) : NULL;
  if (!step->packed) {
    step->state = tc_shelf_take(&program->shelf, prepare->state_bytes);
    if (!step->state) {
      return tc_error_set(prepare->error, TC_NO_MEMORY, "no memory for %lld bytes of packed weights",
                          (long long)prepare->state_bytes);
    }
    if (pack_step(program, step, prepare, step->state)) {
      return prepare->error->code;
    }
    step->packed = shared ? tc_weights_add(program->weights, &key, step->state) : NULL;
  }
  if (step->packed) {
    step->state = tc_packed_state(step->packed);
  } else {
    program->state_bytes += prepare->state_bytes;
  }
  return TC_OK;
}

/* Gives the pages of a constant back to the system, which reads them from the file again if they are needed. */
static void give_back(const tc_constant *constant) { tc_give_back_pages(constant->data, (size_t)constant->bytes); }

/* Gives back the constants that a step has packed and that no run reads; only if they are mapped from a file. */
static void give_back_packed(const tc_program *program, const tc_step *step) {
  const char *roles = tc_kernel_infos[step->kernel].signature;
  for (int i = 0; i < step->operand_count; i++) {
    const tc_operand *operand = &step->operands[i];
    if (tc_role(roles[i]) == 'p' && operand->space == TC_CONSTANT && program->constants[operand->index].mapped) {
      give_back(&program->constants[operand->index]);
    }
  }
}

/* The work of a step. */
static tc_work work_of(const tc_step *step, const tc_prepare *prepare) {
  tc_work work = prepare->work;
  const char *roles = tc_kernel_infos[step->kernel].signature;
  for (int i = 0; i < step->operand_count; i++) {
    if (tc_present(prepare, i)) {
      *(tc_role(roles[i]) == 'o' ? &work.written : &work.read) += prepare->moved[i];
    }
  }
  work.done = work.done ? work.done : work.flops + work.integer_operations;
  return work;
}

/* Stores the statements of a kernel that runs need. */
static void note(tc_instance *instance, tc_step *step, const tc_prepare *prepare) {
  for (int i = 0; i < step->operand_count; i++) {
    tc_reach *reach = &instance->reaches[step->first_pointer + i];
    *reach = prepare->reaches[i];
    reach->extent = prepare->extents[i];
  }
  step->units = prepare->units;
  step->work = work_of(step, prepare);
  step->parallel = prepare->units > 1 && prepare->cost >= parallel_cost;
  step->scratch_bytes = prepare->scratch_bytes;
}

/* Checks the operands of a step that runs bodies; every run checks what the bodies touch. */
static int32_t bound_control(const tc_program *program, tc_instance *instance, const tc_step *step, tc_error *error) {
  for (int32_t i = 0; i < step->operand_count; i++) {
    const tc_operand *operand = &step->operands[i];
    const tc_extent *bytes = &step->control->bytes[i];
    tc_reach *reach = &instance->reaches[step->first_pointer + i];
    *reach = (tc_reach){.rows = 1};
    if (operand->space == TC_NONE || (bytes->value < 0 && bytes->number < 0)) {
      continue;
    }
    const int64_t extent = reach->extent = tc_extent_at(bytes, instance->values);
    const int64_t size = available(program, instance, operand);
    const int64_t end = operand->offset + extent;
    if (operand->offset < 0 || extent < 0 || end > size) {
      return tc_error_set(error, TC_INVALID, "operand %d ends at byte %lld of a buffer of %lld", i, (long long)end,
                          (long long)size);
    }
    if (extent && (operand->space == TC_INPUT || operand->space == TC_OUTPUT)) {
      require(&(operand->space == TC_INPUT ? instance->inputs : instance->outputs)[operand->index], end, 1);
    }
  }
  return TC_OK;
}

static int32_t finish_step(tc_program *program, tc_step *step, tc_error *error) {
  if (step->control) {
    return bound_control(program, &program->own, step, error);
  }
  tc_prepare prepare = {
      .params = step->params, .operands = step->operands, .l2_bytes = program->l2_bytes, .error = error};
  const tc_kernel *kernel = &program->isa->kernels[step->kernel];
  prepare_step(program, &program->own, step, &prepare);
  if (error->code && step->depends) { /* typical sizes may not agree with each other: every run will ask again */
    error->code = TC_OK;
    return TC_OK;
  }
  if (error->code) {
    return error->code;
  }
  if (kernel->pack && give_state(program, step, &prepare)) {
    return error->code;
  }
  give_back_packed(program, step);
  note(&program->own, step, &prepare);
  step->state_bytes = kernel->pack ? prepare.state_bytes : 0;
  step->shareable = prepare.shareable;
  memcpy(step->shared, prepare.shared, sizeof(step->shared));
  program->own.scratch_bytes = tc_max(program->own.scratch_bytes, prepare.scratch_bytes);
  return TC_OK;
}

int32_t tc_program_numbers(const tc_program *program, int64_t instruction, int32_t i, tc_numbers *numbers) {
  tc_step_plan plan;
  if (!tc_program_plan(program, instruction, &plan) || !plan.state) {
    return false;
  }
  const tc_step *step = &program->own.steps[instruction];
  tc_error error = {.code = TC_OK};
  tc_prepare prepare = {
      .params = step->params, .operands = step->operands, .l2_bytes = program->l2_bytes, .error = &error};
  ask(program, &program->own, step, &prepare);
  if (error.code || i < 0 || i >= prepare.number_count) {
    return false;
  }
  *numbers = prepare.numbers[i];
  return true;
}

/* Whether a step of an instance reads the same constants as that of the program. */
static bool same_constants(const tc_program *program, const tc_instance *instance, int64_t step) {
  const tc_operand *operands = instance->steps[step].operands, *own = program->own.steps[step].operands;
  for (int i = 0; i < instance->steps[step].operand_count; i++) {
    const tc_constant *constant = operands[i].space == TC_CONSTANT ? &program->constants[operands[i].index] : NULL;
    if (constant && (operands[i].offset != own[i].offset ||
                     (constant->table >= 0 && memcmp(instance->tables[constant->table],
                                                     program->own.tables[constant->table], (size_t)constant->bytes)))) {
      return false;
    }
  }
  return true;
}

/* Whether the program's state of a step is valid for the sizes of an instance as well. */
static bool state_serves(const tc_program *program, const tc_instance *instance, int64_t index,
                         const tc_prepare *prepare) {
  const tc_step *step = &instance->steps[index];
  return step->shareable && prepare->shareable && step->state_bytes == prepare->state_bytes &&
         !memcmp(step->shared, prepare->shared, sizeof(step->shared)) && same_constants(program, instance, index);
}

/* Packs a state for the sizes of an instance. */
static int32_t repack(const tc_program *program, tc_step *step, const tc_prepare *prepare) {
  if (prepare->state_bytes > step->room) {
    const int64_t room = prepare->state_bytes + prepare->state_bytes / 8;
    tc_free(step->own);
    step->own = tc_allocate(room);
    step->room = step->own ? room : 0;
    if (!step->own) {
      return tc_error_set(prepare->error, TC_NO_MEMORY, "no memory for a state of %lld bytes", (long long)room);
    }
  } else {
    memset(step->own, 0, (size_t)prepare->state_bytes);
  }
  step->state = step->own;
  return pack_step(program, step, prepare, step->own);
}

int32_t tc_step_locate(tc_error *error, int64_t index, const tc_step *step) {
  char message[sizeof(error->message)];
  memcpy(message, error->message, sizeof(message));
  return tc_error_set(error, error->code, "instruction %lld (%s): %.230s", (long long)index, tc_step_name(step),
                      message);
}

int32_t tc_refinish_step(const tc_program *program, tc_instance *instance, int64_t index, tc_error *error) {
  tc_step *step = &instance->steps[index];
  tc_prepare prepare = {
      .params = step->params, .operands = step->operands, .l2_bytes = program->l2_bytes, .error = error};
  tc_apply_fixups(program, instance, step);
  if (step->control) {
    return bound_control(program, instance, step, error) ? tc_step_locate(error, index, step) : TC_OK;
  }
  prepare_step(program, instance, step, &prepare);
  step->state = step->common;
  if (!error->code && program->isa->kernels[step->kernel].pack && !state_serves(program, instance, index, &prepare)) {
    repack(program, step, &prepare);
  }
  if (error->code) {
    return tc_step_locate(error, index, step);
  }
  note(instance, step, &prepare);
  return TC_OK;
}

void tc_apply_fixups(const tc_program *program, const tc_instance *instance, tc_step *step) {
  for (int64_t i = step->first_fixup; i < step->first_fixup + step->fixup_count; i++) {
    const tc_fixup *fixup = &program->fixups[i];
    const int64_t value = instance->values[fixup->value];
    if (fixup->kind == TC_FIXUP_PARAMETER) {
      memcpy((char *)step->params + fixup->place, &value, sizeof(value));
    } else if (fixup->kind == TC_FIXUP_OFFSET) {
      step->operands[fixup->place].offset = value;
    }
  }
}

void tc_fill_tables(const tc_program *program, tc_instance *instance) {
  for (int64_t i = 0; i < program->word_count; i++) {
    const tc_fixup *word = &program->words[i];
    ((int64_t *)instance->tables[word->table])[word->place] = instance->values[word->value];
  }
}

int32_t tc_place_arena(const tc_program *program, tc_instance *instance, tc_error *error) {
  int64_t total = 0;
  for (int64_t i = 0; i < program->piece_count; i++) {
    const tc_piece *piece = &program->pieces[program->order[i]];
    int64_t start = 0;
    for (int64_t a = 0; a < piece->above_count; a++) {
      const int64_t other = piece->above[a];
      const int64_t end = instance->starts[other] + instance->values[program->pieces[other].value];
      start = tc_max(start, tc_round_up(end, TC_ALIGNMENT));
    }
    const int64_t bytes = instance->values[piece->value];
    if (bytes < 0 || start + bytes > TC_MAX_BYTES) {
      return tc_error_set(error, TC_INVALID, "the sizes are too large, or one is negative");
    }
    instance->starts[program->order[i]] = start;
    total = tc_max(total, start + bytes);
  }
  instance->arena_bytes = total;
  return TC_OK;
}

/* Sorts the pieces so that each comes after those in its `above`; fails if they form a cycle. */
static int32_t order_pieces(tc_program *program, tc_error *error) {
  free(program->order);                                                       /* of a failed attempt */
  int64_t *state = calloc((size_t)program->piece_count + 1, sizeof(int64_t)); /* 1 + entries of `above` visited */
  int64_t *stack = malloc(((size_t)program->piece_count + 1) * sizeof(int64_t));
  program->order = malloc(((size_t)program->piece_count + 1) * sizeof(int64_t));
  int64_t ordered = 0;
  bool sound = true;
  for (int64_t root = 0; state && stack && program->order && sound && root < program->piece_count; root++) {
    int64_t depth = 0;
    if (!state[root]) {
      stack[depth++] = root;
      state[root] = 1;
    }
    while (depth && sound) {
      const tc_piece *piece = &program->pieces[stack[depth - 1]];
      int64_t *done = &state[stack[depth - 1]];
      if (*done > piece->above_count) {
        *done = INT64_MAX;
        program->order[ordered++] = stack[--depth];
        continue;
      }
      const int64_t next = piece->above[*done - 1];
      sound = next >= 0 && next < program->piece_count && (state[next] == 0 || state[next] == INT64_MAX);
      *done += 1;
      if (sound && state[next] == 0) {
        state[next] = 1;
        stack[depth++] = next;
      }
    }
  }
  const bool enough = state && stack && program->order;
  free(state);
  free(stack);
  return !enough ? tc_error_set(error, TC_NO_MEMORY, "no memory to finish the program")
         : sound ? TC_OK
                 : tc_error_set(error, TC_INVALID, "the pieces of the arena lie in a circle");
}

/* Allocates values, starts and tables; false without memory. */
static bool make_tables(tc_program *program) {
  tc_instance *own = &program->own;
  own->values = calloc((size_t)tc_formulas_values(&program->formulas), sizeof(int64_t));
  own->starts = calloc((size_t)program->piece_count + 1, sizeof(int64_t));
  own->tables = calloc((size_t)program->table_count + 1, sizeof(void *));
  bool enough = own->values && own->starts && own->tables;
  for (int64_t i = 0; enough && i < program->constant_count; i++) {
    const tc_constant *constant = &program->constants[i];
    if (constant->table >= 0) {
      own->tables[constant->table] = tc_allocate(constant->bytes);
      enough = own->tables[constant->table];
      if (enough) {
        memcpy(own->tables[constant->table], constant->data, (size_t)constant->bytes);
      }
    }
  }
  return enough;
}

static void drop_tables(tc_program *program) {
  tc_instance *own = &program->own;
  for (int32_t i = 0; own->tables && i < program->table_count; i++) {
    tc_free(own->tables[i]);
  }
  free(own->values);
  free(own->starts);
  free(own->tables);
  own->values = own->starts = NULL;
  own->tables = NULL;
}

int32_t tc_program_typical(tc_program *program, const int64_t *symbols, tc_error *error) {
  if (!tc_program_is_symbolic(program) || program->own.values) {
    return tc_error_set(error, TC_INVALID, "the program has no symbols, or has its sizes already");
  }
  if (order_pieces(program, error)) {
    return error->code;
  }
  if (!make_tables(program)) {
    drop_tables(program);
    return tc_error_set(error, TC_NO_MEMORY, "no memory to finish the program");
  }
  memcpy(program->own.values, symbols, (size_t)program->formulas.symbol_count * sizeof(int64_t));
  tc_formulas_evaluate(&program->formulas, program->own.values, 0, NULL);
  tc_fill_tables(program, &program->own);
  return TC_OK;
}

/* Lists the pointers that must be set in every run. */
static int32_t collect_patches(tc_program *program, tc_error *error) {
  program->patches = malloc((size_t)(program->pointer_count + 1) * sizeof(tc_patch));
  if (!program->patches) {
    return tc_error_set(error, TC_NO_MEMORY, "no memory to finish the program");
  }
  for (int64_t s = 0; s < program->step_count; s++) {
    const tc_step *step = &program->own.steps[s];
    for (int i = 0; i < step->operand_count; i++) {
      if (step->operands[i].space == TC_INPUT || step->operands[i].space == TC_OUTPUT) {
        program->patches[program->patch_count++] = (tc_patch){step->first_pointer + i, step->operands[i]};
      }
    }
  }
  return TC_OK;
}

/* Undoes a failed attempt to finish, so that there may be another one. */
static void undo_finish(tc_program *program) {
  for (int64_t i = 0; i < program->step_count; i++) {
    tc_step_drop_state(program, &program->own.steps[i]);
  }
  memset(program->own.inputs, 0, (size_t)program->input_count * sizeof(tc_requirement));
  memset(program->own.outputs, 0, (size_t)program->output_count * sizeof(tc_requirement));
  tc_weights_destroy(program->weights);
  program->weights = NULL;
  program->state_bytes = 0;
  program->own.scratch_bytes = 0;
}

static int32_t finish_steps(tc_program *program, tc_error *error) {
  int32_t failed = TC_OK;
  free(program->own.reaches); /* of a failed attempt */
  program->own.reaches = calloc((size_t)program->pointer_count + 1, sizeof(tc_reach));
  if (!program->own.reaches) {
    return tc_error_set(error, TC_NO_MEMORY, "no memory to finish the program");
  }
  for (int64_t i = 0; i < program->step_count && !failed; i++) {
    if (finish_step(program, &program->own.steps[i], error)) {
      failed = tc_step_locate(error, i, &program->own.steps[i]);
    }
  }
  tc_shelf_close(&program->shelf);
  program->shelf.bytes = 0;
  if (!failed && !tc_program_is_symbolic(program)) {
    failed = tc_find_holes(program, &program->own, error);
  }
  return failed ? failed : collect_patches(program, error);
}

static bool is_known(const tc_program *program, int64_t value, int32_t stage) {
  return value < 0 || tc_formulas_stage_of(&program->formulas, value) <= stage;
}

/* Checks that no step depends on a size before another step has determined it. */
static int32_t check_stages(tc_program *program, tc_error *error) {
  if (!program->found_count) {
    return TC_OK;
  }
  if (!tc_formulas_stage(&program->formulas, program->formulas.symbol_count - program->found_count)) {
    return tc_error_set(error, TC_NO_MEMORY, "no memory to finish the program");
  }
  bool sound = program->find_count == program->found_count;
  for (int64_t i = 0; i < program->piece_count; i++) {
    sound = sound && is_known(program, program->pieces[i].value, 0);
  }
  for (int32_t i = 0; i < program->input_count; i++) {
    sound = sound && is_known(program, program->input_values[i], 0);
  }
  for (int32_t i = 0; i < program->output_count; i++) {
    sound = sound && is_known(program, program->output_values[i], 0);
  }
  int32_t stage = 0;
  for (int64_t s = 0; s < program->step_count; s++) {
    tc_step *step = &program->own.steps[s];
    for (int64_t i = step->first_fixup; i < step->first_fixup + step->fixup_count; i++) {
      step->late = step->late || !is_known(program, program->fixups[i].value, 0);
      if (!is_known(program, program->fixups[i].value, stage)) {
        tc_error_set(error, TC_INVALID, "it depends on a size that is found out later");
        return tc_step_locate(error, s, step);
      }
    }
    sound = sound && (!step->finds || is_known(program, step->most, 0));
    stage += step->finds;
  }
  return sound ? TC_OK
               : tc_error_set(error, TC_INVALID, "sizes of memory follow from what is found out, or a symbol is not");
}

int32_t tc_program_finish(tc_program *program, tc_weights *weights, int64_t arena_bytes, tc_error *error) {
  error->code = TC_OK;
  if (program->finished || arena_bytes < 0 || arena_bytes > TC_MAX_BYTES) {
    return tc_error_set(error, TC_INVALID, "an arena of %lld bytes, or a program finished twice",
                        (long long)arena_bytes);
  }
  program->own.arena_bytes = arena_bytes;
  if (weights) {
    tc_weights_retain(weights);
    program->weights = weights;
  }
  if (tc_program_is_symbolic(program)) {
    if (!program->own.values) {
      return tc_error_set(error, TC_INVALID, "the program has no typical sizes");
    }
    if (check_stages(program, error)) {
      return error->code;
    }
    for (int64_t i = 0; i < program->step_count; i++) {
      tc_apply_fixups(program, &program->own, &program->own.steps[i]);
    }
    if (tc_place_arena(program, &program->own,
                       error)) { /* typical sizes may not agree with each other: every run will ask again */
      error->code = TC_OK;
      program->own.arena_bytes = 0;
    }
  }
  if (finish_steps(program, error)) {
    undo_finish(program);
    return error->code;
  }
  program->finished = true;
  return TC_OK;
}
