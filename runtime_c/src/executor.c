/* Contexts, and running a program in one. */
#include <stdlib.h>
#include <string.h>

#include "context.h"
#include "platform.h"
#include "pool.h"
#include "written.h"

/* The steps of a run: those of the program, or those for the context's sizes. */
static const tc_step *steps_of(const tc_program *program, const tc_context *context) {
  return tc_program_is_symbolic(program) ? context->sized.steps : program->own.steps;
}

/* Does not look at the program, which may have been freed before. */
static void instance_free(tc_instance *instance) {
  for (int64_t i = 0; instance->steps && i < instance->step_count; i++) {
    const tc_step *step = &instance->steps[i];
    if (step->depends) {
      free(step->operands);
      free(step->params);
      tc_free(step->own);
    }
  }
  for (int32_t i = 0; instance->tables && i < instance->table_count; i++) {
    tc_free(instance->tables[i]);
  }
  free(instance->steps);
  free(instance->reaches);
  tc_holes_free(instance);
  free(instance->inputs);
  free(instance->outputs);
  free(instance->values);
  free(instance->starts);
  free(instance->tables);
}

void tc_context_destroy(tc_context *context) {
  if (context) {
    if (context->values) {
      instance_free(&context->sized);
      free(context->patches);
    }
    for (int64_t i = 0; context->controls && i < context->control_count; i++) {
      tc_control_state_destroy(context->controls[i]);
    }
    free(context->controls);
    free(context->grown);
    free(context->values);
    tc_free(context->arena);
    tc_free(context->scratch);
    tc_free(context->portions);
    free(context->pointers);
    free(context);
  }
}

static void *copied(const void *from, size_t bytes) {
  void *copy = malloc(bytes + 1);
  if (copy && bytes) {
    memcpy(copy, from, bytes);
  }
  return copy;
}

/* Makes an instance for a context: parts that depend on sizes are copied, all others belong to the program. */
static bool instance_copy(const tc_program *program, tc_instance *instance) {
  const tc_instance *own = &program->own;
  const size_t values = (size_t)tc_formulas_values(&program->formulas) * sizeof(int64_t);
  instance->inputs = copied(own->inputs, ((size_t)program->input_count + 1) * sizeof(tc_requirement));
  instance->outputs = copied(own->outputs, ((size_t)program->output_count + 1) * sizeof(tc_requirement));
  instance->values = copied(own->values, values);
  instance->starts = copied(own->starts, (size_t)program->piece_count * sizeof(int64_t));
  instance->tables = calloc((size_t)program->table_count + 1, sizeof(void *));
  instance->reaches = copied(own->reaches, ((size_t)program->pointer_count + 1) * sizeof(tc_reach));
  tc_step *steps = copied(own->steps, (size_t)program->step_count * sizeof(tc_step));
  bool enough = instance->inputs && instance->outputs && instance->values && instance->starts && instance->tables &&
                instance->reaches;
  for (int64_t i = 0; steps && i < program->step_count; i++) {
    tc_step *step = &steps[i];
    step->common = step->state;
    if (step->depends) {
      step->operands = copied(step->operands, (size_t)step->operand_count * sizeof(tc_operand));
      step->params = step->control ? NULL : copied(step->params, (size_t)tc_kernel_infos[step->kernel].params_size);
      enough = enough && step->operands && (step->params || step->control);
    }
  }
  instance->steps = steps;
  instance->step_count = program->step_count;
  instance->table_count = program->table_count;
  for (int64_t i = 0; enough && i < program->constant_count; i++) {
    const tc_constant *constant = &program->constants[i];
    if (constant->table >= 0) {
      void *table = tc_allocate(constant->bytes);
      instance->tables[constant->table] = table;
      enough = table;
      if (table) {
        memcpy(table, constant->data, (size_t)constant->bytes);
      }
    }
  }
  return enough && steps;
}

/* Sets the pointers that are the same in every run; packed constants have none, so that no run depends on them. */
static void resolve_fixed(const tc_program *program, tc_context *context) {
  for (int64_t s = 0; s < program->step_count; s++) {
    const tc_step *step = &steps_of(program, context)[s];
    const char *roles = step->control ? NULL : tc_kernel_infos[step->kernel].signature;
    for (int i = 0; i < step->operand_count; i++) {
      const tc_operand *operand = &step->operands[i];
      void **pointer = &context->pointers[step->first_pointer + i];
      if (operand->space == TC_ARENA) {
        const int64_t start = program->piece_count ? context->sized.starts[operand->index] : 0;
        *pointer = context->arena + start + operand->offset;
      } else if (operand->space == TC_CONSTANT && (!roles || tc_role(roles[i]) != 'p')) {
        const tc_constant *constant = &program->constants[operand->index];
        const void *data = constant->table < 0 ? constant->data : context->sized.tables[constant->table];
        *pointer = (char *)(uintptr_t)data + operand->offset;
      }
    }
  }
}

/* Leaves a cache line between the scratch of two threads. */
static int64_t scratch_stride(const tc_instance *instance) {
  return tc_round_up(instance->scratch_bytes, TC_ALIGNMENT) + TC_ALIGNMENT;
}

int64_t tc_program_context_bytes(const tc_program *program, int32_t threads) {
  int64_t bodies = 0;
  for (int64_t s = 0; program->control_count && s < program->step_count; s++) {
    const tc_control *control = program->own.steps[s].control;
    for (int b = 0; control && b < tc_control_bodies(control); b++) {
      bodies += tc_program_context_bytes(control->bodies[b].program, threads);
    }
  }
  return bodies + program->own.arena_bytes + (scratch_stride(&program->own) + (int64_t)sizeof(tc_portion)) * threads +
         (program->pointer_count + 1) * (int64_t)sizeof(void *);
}

/* Creates the state of steps with bodies. */
static int32_t create_controls(const tc_program *program, tc_context *context, tc_error *error) {
  if (!program->control_count && !program->left_count) {
    return TC_OK;
  }
  context->controls = calloc((size_t)program->control_count + 1, sizeof(*context->controls));
  context->grown = calloc((size_t)program->output_count + 1, sizeof(*context->grown));
  if (!context->controls || !context->grown) {
    return tc_error_set(error, TC_NO_MEMORY, "no memory for a context");
  }
  context->control_count = program->control_count;
  for (int32_t i = 0; i < program->output_count; i++) {
    context->grown[i].rank = -1;
  }
  for (int64_t s = 0; s < program->step_count; s++) {
    const tc_step *step = &program->own.steps[s];
    if (step->control) {
      tc_control_state *state = tc_control_state_create(step->control, context->threads, error);
      if (!state) {
        return error->code;
      }
      context->controls[step->control_index] = state;
    }
  }
  return TC_OK;
}

int32_t tc_context_create(const tc_program *program, int32_t threads, tc_context **out, tc_error *error) {
  *out = NULL;
  if (!program->finished || threads < 1 || threads > 1024) {
    return tc_error_set(error, TC_INVALID, "the program is not finished, or %d threads were asked for", threads);
  }
  if (!program->isa->runs_here()) {
    return tc_error_set(error, TC_UNSUPPORTED, "this machine packs weights for %s, but cannot run it",
                        program->isa->name);
  }
  tc_context *context = calloc(1, sizeof(*context));
  if (context) {
    context->program = program;
    context->threads = threads;
    context->patches = program->patches;
    context->supervisor = &context->supervision;
    if (tc_program_is_symbolic(program)) {
      context->values = malloc((size_t)tc_formulas_values(&program->formulas) * sizeof(int64_t));
      const size_t patches = (size_t)program->patch_count * sizeof(tc_patch);
      context->patches = context->values ? copied(program->patches, patches) : NULL;
      if (!context->patches || !instance_copy(program, &context->sized)) {
        tc_context_destroy(context);
        return tc_error_set(error, TC_NO_MEMORY, "no memory for a context");
      }
    }
    /* The memory of a symbolic program is allocated for its first sizes. */
    context->arena_room = tc_program_is_symbolic(program) ? 0 : program->own.arena_bytes;
    context->scratch_stride = tc_program_is_symbolic(program) ? 0 : scratch_stride(&program->own);
    context->scratch_room = context->scratch_stride * threads;
    context->arena = tc_allocate_arena(context->arena_room);
    context->scratch = tc_allocate(context->scratch_room);
    context->portions = tc_allocate(threads * (int64_t)sizeof(tc_portion));
    context->pointers = calloc((size_t)program->pointer_count + 1, sizeof(void *));
  }
  if (!context || !context->arena || !context->scratch || !context->portions || !context->pointers) {
    tc_context_destroy(context);
    return tc_error_set(error, TC_NO_MEMORY, "no memory for an arena of %lld bytes and scratch of %lld",
                        (long long)program->own.arena_bytes, (long long)program->own.scratch_bytes);
  }
  if (create_controls(program, context, error)) {
    tc_context_destroy(context);
    return error->code;
  }
  if (!tc_program_is_symbolic(program)) {
    resolve_fixed(program, context);
  }
  *out = context;
  return TC_OK;
}

/* Whether a value that a step depends on differs between the current sizes and the next ones. */
static bool changes(const tc_program *program, const tc_context *context, const tc_step *step) {
  for (int64_t i = step->first_fixup; i < step->first_fixup + step->fixup_count; i++) {
    const int64_t value = program->fixups[i].value;
    if (context->values[value] != context->sized.values[value]) {
      return true;
    }
  }
  return false;
}

/* Whether a step depends on sizes that are still upper bounds at a stage. */
static bool is_tentative(const tc_program *program, const tc_step *step, int32_t stage) {
  for (int64_t i = step->first_fixup; i < step->first_fixup + step->fixup_count; i++) {
    if (tc_formulas_stage_of(&program->formulas, program->fixups[i].value) > stage) {
      return true;
    }
  }
  return false;
}

/* Plans a step again. Upper bounds of sizes may not fit each other: then it is planned once these are known. */
static int32_t plan_step(const tc_program *program, tc_context *context, int64_t index, int32_t stage,
                         tc_error *error) {
  tc_step *step = &context->sized.steps[index];
  if (tc_refinish_step(program, &context->sized, index, error)) {
    if (!is_tentative(program, step, stage)) {
      return error->code;
    }
    error->code = TC_OK;
    step->scratch_bytes = 0;
    memset(&context->sized.reaches[step->first_pointer], 0, (size_t)step->operand_count * sizeof(tc_reach));
    context->has_unplanned = true;
  }
  return TC_OK;
}

/* Plans the steps from one on again whose sizes change, or all of them; all if some of them have no plan yet. */
static int32_t plan_steps(const tc_program *program, tc_context *context, int64_t first, int32_t stage, bool all,
                          tc_error *error) {
  tc_instance *sized = &context->sized;
  all = all || context->has_unplanned;
  context->has_unplanned = false;
  for (int64_t s = first; s < program->step_count; s++) {
    const tc_step *step = &sized->steps[s];
    if (step->depends && (all || changes(program, context, step)) && plan_step(program, context, s, stage, error)) {
      context->has_unplanned = true;
      return error->code;
    }
    sized->scratch_bytes = tc_max(sized->scratch_bytes, step->scratch_bytes);
  }
  return TC_OK;
}

/* The most bytes that an arena grows beyond what is needed, unless an eighth of it is more. */
enum { AHEAD = 32 << 20 };

/* Makes room for arena and scratch, and more than is needed, so that growing sizes seldom reallocate. Pages that have
 * never been touched take no memory. */
static int32_t grow(tc_context *context, int64_t arena, int64_t scratch, tc_error *error) {
  if (arena > context->arena_room || !context->arena) {
    tc_free(context->arena);
    context->arena_room = arena + tc_max(arena / 8, tc_min(arena, AHEAD));
    context->arena = tc_allocate_arena(context->arena_room);
  }
  if (scratch > context->scratch_room || !context->scratch) {
    tc_free(context->scratch);
    context->scratch_room = scratch + scratch / 8;
    context->scratch = tc_allocate(context->scratch_room);
  }
  if (!context->arena || !context->scratch) {
    context->arena_room = context->arena ? context->arena_room : 0;
    context->scratch_room = context->scratch ? context->scratch_room : 0;
    return tc_error_set(error, TC_NO_MEMORY, "no memory for an arena of %lld bytes and scratch of %lld",
                        (long long)arena, (long long)scratch);
  }
  return TC_OK;
}

/* Bytes of the results at the next sizes. */
static int64_t result_bytes(const tc_program *program, const tc_instance *sized) {
  int64_t bytes = 0;
  for (int32_t i = 0; i < program->output_count; i++) {
    const int64_t size = program->output_values[i] < 0 ? 0 : tc_max(sized->values[program->output_values[i]], 0);
    bytes = tc_min(bytes + tc_min(size, TC_MAX_BYTES), TC_MAX_BYTES);
  }
  return bytes;
}

/* Makes the next sizes the current ones, and keeps the old ones for comparison. */
static void exchange_values(tc_context *context) {
  int64_t *before = context->sized.values;
  context->sized.values = context->values;
  context->values = before;
}

/* Assumes the upper bounds of the sizes that steps determine, until they do. */
static void expect_most(const tc_program *program, int64_t *values) {
  if (program->found_count) {
    memset(values + program->formulas.symbol_count - program->found_count, 0,
           (size_t)program->found_count * sizeof(int64_t));
    tc_formulas_evaluate(&program->formulas, values, 0, NULL);
    for (int64_t s = 0; s < program->step_count; s++) {
      const tc_step *step = &program->own.steps[s];
      if (step->finds) {
        values[step->symbol] = step->most < 0 ? 0 : values[step->most];
      }
    }
  }
}

/* Updates the patches after operands in the caller's buffers have moved. */
static void follow_patches(const tc_program *program, tc_context *context) {
  for (int64_t i = 0, p = 0; i < program->step_count; i++) {
    const tc_step *step = &context->sized.steps[i];
    for (int32_t k = 0; k < step->operand_count; k++) {
      if (step->operands[k].space == TC_INPUT || step->operands[k].space == TC_OUTPUT) {
        context->patches[p++].operand = step->operands[k];
      }
    }
  }
}

/* Plans the next sizes: all but the memory. Steps whose sizes do not change keep their plans. */
static int32_t plan(const tc_program *program, tc_context *context, tc_error *error) {
  tc_instance *sized = &context->sized;
  const bool all = !context->is_planned;
  expect_most(program, context->values);
  if (tc_formulas_evaluate(&program->formulas, context->values, 0, error)) {
    return error->code;
  }
  exchange_values(context);
  context->is_planned = context->is_sized = context->is_set_up = context->is_steady = false;
  tc_fill_tables(program, sized);
  sized->scratch_bytes = 0;
  if (tc_place_arena(program, sized, error) || plan_steps(program, context, 0, 0, all, error) ||
      tc_find_holes(program, sized, error)) {
    return error->code;
  }
  context->is_planned = true;
  return TC_OK;
}

/* Makes room for what has been planned. */
static int32_t make_room(const tc_program *program, tc_context *context, int64_t most, tc_error *error) {
  const tc_instance *sized = &context->sized;
  const int64_t stride = scratch_stride(sized);
  context->granted = tc_max(context->granted, most);
  if (tc_context_needed_bytes(context) > context->granted) {
    return tc_error_set(error, TC_LIMIT, "more memory is needed");
  }
  if (grow(context, sized->arena_bytes, stride * context->threads, error)) {
    return error->code;
  }
  context->scratch_stride = stride;
  resolve_fixed(program, context);
  follow_patches(program, context);
  context->is_sized = true;
  return TC_OK;
}

void tc_context_supervise(tc_context *context, tc_permits permits, void *owner) {
  context->supervision.permits = permits;
  context->supervision.owner = owner;
}

void tc_context_end_after(tc_context *context, double seconds) {
  context->supervision.deadline = seconds > 0 ? tc_seconds_now() + seconds : 0;
}

int32_t tc_context_resize(tc_context *context, const int64_t *symbols, int64_t most, tc_error *error) {
  const tc_program *program = context->program;
  const size_t bytes = (size_t)(program->formulas.symbol_count - program->found_count) * sizeof(int64_t);
  const bool is_planned = context->is_planned && !memcmp(context->sized.values, symbols, bytes);
  if (is_planned && context->is_sized) {
    return TC_OK;
  }
  if (!tc_program_is_symbolic(program)) {
    return tc_error_set(error, TC_INVALID, "the program has no symbols");
  }
  error->code = TC_OK;
  if (!is_planned) {
    memcpy(context->values, symbols, bytes);
    if (plan(program, context, error)) {
      return error->code;
    }
  }
  return make_room(program, context, most, error);
}

int64_t tc_context_value(const tc_context *context, int64_t value) {
  const tc_formulas *formulas = &context->program->formulas;
  return context->is_sized && value >= 0 && value < tc_formulas_values(formulas) ? context->sized.values[value] : -1;
}

int64_t tc_context_needed_bytes(const tc_context *context) {
  const tc_instance *sized = &context->sized;
  return sized->arena_bytes + scratch_stride(sized) * context->threads + result_bytes(context->program, sized);
}

int32_t tc_context_work(const tc_context *context, int64_t instruction, tc_work *work) {
  const tc_program *program = context->program;
  if (instruction < 0 || instruction >= program->step_count) {
    return false;
  }
  *work = steps_of(program, context)[instruction].work;
  return true;
}

int32_t tc_context_plan(const tc_context *context, int64_t instruction, tc_step_plan *plan) {
  return tc_step_plan_of(context->program, tc_instance_of(context), instruction, plan);
}

int32_t tc_context_cleared(const tc_context *context, int64_t i, int32_t *buffer, int64_t *begin, int64_t *end) {
  return tc_stretch_of(tc_instance_of(context), i, buffer, begin, end);
}

/* Sets the pointers into the caller's buffers, after checking their alignment. */
static int32_t resolve_buffers(const tc_program *program, tc_context *context, void *const *inputs,
                               void *const *outputs, tc_error *error) {
  const tc_instance *instance = tc_program_is_symbolic(program) ? &context->sized : &program->own;
  if (instance != &program->own && !context->is_sized) {
    return tc_error_set(error, TC_INVALID, "the context has no sizes yet");
  }
  for (int32_t i = 0; i < program->input_count; i++) {
    if (instance->inputs[i].bytes && (uintptr_t)inputs[i] % (uintptr_t)instance->inputs[i].alignment) {
      return tc_error_set(error, TC_INVALID, "input %d is not aligned to its element size", i);
    }
  }
  for (int32_t i = 0; i < program->output_count; i++) {
    if (instance->outputs[i].bytes && (uintptr_t)outputs[i] % (uintptr_t)instance->outputs[i].alignment) {
      return tc_error_set(error, TC_INVALID, "output %d is not aligned to its element size", i);
    }
  }
  for (int64_t i = 0; i < program->patch_count; i++) {
    const tc_patch *patch = &context->patches[i];
    void *base = (patch->operand.space == TC_INPUT ? inputs : outputs)[patch->operand.index];
    context->pointers[patch->pointer] = (char *)base + patch->operand.offset;
  }
  return TC_OK;
}

/* One step. Every thread has a portion of it, the same part in every step, so that it finds in its own caches what it
 * wrote in the step before. A thread that has finished takes pieces of the portions of others. */
typedef struct tc_task {
  const tc_kernel *kernel;
  const tc_step *step;
  const tc_context *context;
  int64_t l2_bytes;
  tc_failure *failure;
  int threads;
  int64_t piece; /* units */
} tc_task;

static const char time_is_up[] = "the time is up";

static double deadline_of(const tc_task *task) {
  return atomic_load_explicit(&task->context->supervisor->deadline, memory_order_relaxed);
}

/* Whether the deadline is over, so that the run must end before the next piece. */
static bool is_late(const tc_task *task) {
  const double deadline = deadline_of(task);
  if (deadline == 0 || tc_seconds_now() < deadline) {
    return false;
  }
  const char *none = NULL;
  atomic_compare_exchange_strong(task->failure, &none, time_is_up);
  return true;
}

static tc_call make_call(const tc_task *task, int thread) {
  return (tc_call){.params = task->step->params,
                   .operands = task->context->pointers + task->step->first_pointer,
                   .state = task->step->state,
                   .scratch = task->context->scratch + thread * task->context->scratch_stride,
                   .l2_bytes = task->l2_bytes,
                   .failure = task->failure};
}

static void run_pieces(void *argument, int thread) {
  const tc_task *task = argument;
  if (thread >= task->threads) {
    return;
  }
  const tc_call call = make_call(task, thread);
  for (int i = 0; i < task->threads; i++) {
    tc_portion *portion = &task->context->portions[(thread + i) % task->threads];
    for (;;) {
      const int64_t begin = atomic_fetch_add_explicit(&portion->next, task->piece, memory_order_relaxed);
      if (begin >= portion->end || is_late(task)) {
        break;
      }
      task->kernel->run(&call, begin, tc_min(begin + task->piece, portion->end));
    }
  }
}

/* Runs one step on the calling thread, or on all threads if it is worth it. */
static void run_step(tc_task *task, tc_pool *pool) {
  enum { PIECES_PER_THREAD = 4, PIECES_IN_TIME = 256 };
  const int64_t units = task->step->units, threads = task->threads;
  if (threads > 1 && units > 1 && task->step->parallel) {
    task->piece = tc_max(units / (threads * PIECES_PER_THREAD), 1);
    for (int64_t i = 0; i < threads; i++) {
      tc_portion *portion = &task->context->portions[i];
      atomic_store_explicit(&portion->next, units * i / threads, memory_order_relaxed);
      portion->end = units * (i + 1) / threads;
    }
    tc_pool_run(pool, run_pieces, task);
  } else if (units) {
    const tc_call call = make_call(task, 0);
    const int64_t piece = deadline_of(task) == 0 ? units : tc_ceil_div(units, PIECES_IN_TIME);
    for (int64_t begin = 0; begin < units && !is_late(task); begin += piece) {
      task->kernel->run(&call, begin, tc_min(begin + piece, units));
    }
  }
}

/* Plans the steps from one on again, because steps before it have determined sizes. */
static int32_t refinish_from(const tc_program *program, tc_context *context, int64_t first, int32_t stage,
                             tc_error *error) {
  tc_instance *sized = &context->sized;
  tc_fill_tables(program, sized);
  if (plan_steps(program, context, first, stage, false, error)) {
    return error->code;
  }
  const int64_t stride = scratch_stride(sized);
  if (grow(context, 0, stride * context->threads, error)) {
    return error->code;
  }
  context->scratch_stride = tc_max(stride, context->scratch_stride);
  resolve_fixed(program, context);
  follow_patches(program, context);
  return TC_OK;
}

/* Elements of tensors that serve as sizes are no further from 0: beyond all memory, with room for arithmetic. */
static const int64_t FARTHEST = (int64_t)1 << 40;

/* Notes the size that a step has determined. Behind elements, steps are planned again before the first one that depends
 * on them, so that those that are read one after the other make one plan. */
static int32_t take_size(tc_context *context, int64_t found_by, tc_error *error) {
  const tc_program *program = context->program;
  const tc_formulas *formulas = &program->formulas;
  const tc_step *step = &context->sized.steps[found_by];
  int64_t size = *(const int64_t *)context->pointers[step->first_pointer + step->found_operand];
  const int64_t most = step->most < 0 ? FARTHEST : context->sized.values[step->most];
  if (step->most < 0) {
    size = tc_max(tc_min(size, FARTHEST), -FARTHEST);
  } else if (size < 0 || size > most) {
    tc_error_set(error, TC_FAILED, "it found a size of %lld, not one from 0 to %lld", (long long)size, (long long)most);
    return tc_step_locate(error, found_by, step);
  }
  if (!context->pending) {
    memcpy(context->values, context->sized.values, (size_t)formulas->symbol_count * sizeof(int64_t));
  }
  context->values[step->symbol] = size;
  context->pending = tc_formulas_stage_of(formulas, step->symbol);
  return TC_OK;
}

/* Makes the steps from one on ready for the sizes that those before it have determined. */
static int32_t take_over(tc_context *context, int64_t first, void *const *inputs, void *const *outputs,
                         tc_error *error) {
  const tc_program *program = context->program;
  const size_t symbols = (size_t)program->formulas.symbol_count * sizeof(int64_t);
  const int32_t stage = context->pending;
  /* The upper bounds, or the sizes of an earlier run: only conditions have to be checked. */
  const bool is_known = !context->has_unplanned && !memcmp(context->values, context->sized.values, symbols);
  context->pending = 0;
  context->is_sized = context->is_planned = is_known; /* until all steps are ready */
  error->code = TC_OK;
  if (tc_formulas_evaluate(&program->formulas, context->values, stage, error) || is_known) {
    return error->code;
  }
  exchange_values(context);
  if (refinish_from(program, context, first, stage, error) ||
      tc_find_more_holes(program, &context->sized, context->arena, error)) {
    return error->code;
  }
  context->is_sized = context->is_planned = true;
  return resolve_buffers(program, context, inputs, outputs, error);
}

/* Records the places of the outputs that stay in the arena. */
static int32_t leave_outputs(const tc_program *program, tc_context *context, tc_error *error) {
  const tc_instance *sized = &context->sized;
  for (int64_t i = 0; i < program->left_count; i++) {
    const tc_left *left = &program->left[i];
    tc_grown *grown = &context->grown[left->output];
    const int64_t room = sized->values[program->pieces[left->place.index].value];
    grown->bytes = sized->values[left->bytes];
    if (grown->bytes < 0 || grown->bytes > room - left->place.offset) {
      return tc_error_set(error, TC_FAILED, "output %d has %lld bytes, more than there is room for", left->output,
                          (long long)grown->bytes);
    }
    grown->data = context->arena + sized->starts[left->place.index] + left->place.offset;
    grown->rank = left->rank;
    for (int32_t d = 0; d < left->rank; d++) {
      grown->dims[d] = sized->values[left->dims[d]];
    }
  }
  return TC_OK;
}

#ifdef TC_POISON
/* Fills memory that nothing may read with a byte, so that a test fails if something does. */
static void poison(tc_context *context, void *const *outputs) {
  const tc_program *program = context->program;
  const tc_instance *instance = tc_instance_of(context);
  if (!context->is_set_up) {
    memset(context->arena, TC_POISON, (size_t)instance->arena_bytes);
  }
  for (int32_t i = 0; i < program->output_count; i++) {
    const int64_t bytes = tc_context_written_bytes(context, i);
    bool is_input = false; /* that is extended in place */
    for (int64_t p = 0; p < program->patch_count; p++) {
      const tc_patch *patch = &context->patches[p];
      is_input = is_input || (patch->operand.space == TC_INPUT &&
                              context->pointers[patch->pointer] == (char *)outputs[i] + patch->operand.offset);
    }
    if (!is_input && bytes > 0) {
      memset(outputs[i], TC_POISON, (size_t)bytes);
    }
  }
}
#endif

/* Runs the steps one after another. */
static int32_t run_steps(tc_context *context, tc_pool *pool, void *const *inputs, void *const *outputs, double *seconds,
                         tc_error *error) {
  const tc_program *program = context->program;
  const int pool_threads = pool ? tc_pool_threads(pool) : 1;
  tc_failure failure = NULL;
  tc_task task = {.context = context,
                  .l2_bytes = program->l2_bytes,
                  .failure = &failure,
                  .threads = pool_threads < context->threads ? pool_threads : context->threads};
  const tc_step *steps = steps_of(program, context);
  context->is_set_up = context->is_set_up && !tc_instance_of(context)->repeats;
#ifdef TC_POISON
  poison(context, outputs);
#endif
  tc_clear_arena(tc_instance_of(context), context->arena);
  context->pending = 0; /* an earlier run may have failed */
  for (int64_t s = context->is_set_up ? program->setup_count : 0; s < program->step_count; s++) {
    const double start = seconds ? tc_seconds_now() : 0;
    task.step = &steps[s];
    if (context->pending && task.step->late && take_over(context, s, inputs, outputs, error)) {
      return error->code;
    }
    if (task.step->control) {
      if (tc_control_run(context, task.step, pool, error)) {
        return tc_step_locate(error, s, task.step);
      }
    } else {
      task.kernel = &program->isa->kernels[task.step->kernel];
      run_step(&task, pool);
    }
    if (seconds) {
      seconds[s] = tc_seconds_now() - start;
    }
    const char *message = atomic_load_explicit(&failure, memory_order_relaxed);
    if (message) {
      return tc_error_set(error, message == time_is_up ? TC_LIMIT : TC_FAILED, "instruction %lld (%s): %.200s",
                          (long long)s, tc_step_name(task.step), message);
    }
    if (task.step->finds && take_size(context, s, error)) {
      return error->code;
    }
    /* A count says how much of a buffer has been written, which a step may read that does not depend on it. */
    if (task.step->finds && task.step->most >= 0 && take_over(context, s + 1, inputs, outputs, error)) {
      return error->code;
    }
    context->is_set_up = context->is_set_up || s + 1 >= program->setup_count;
  }
  if (context->pending && take_over(context, program->step_count, inputs, outputs, error)) {
    return error->code;
  }
  return leave_outputs(program, context, error);
}

int32_t tc_run_entered(tc_context *context, tc_pool *pool, void *const *inputs, void *const *outputs, double *seconds,
                       tc_error *error) {
  const tc_program *program = context->program;
  if (resolve_buffers(program, context, inputs, outputs, error)) {
    return error->code;
  }
  return run_steps(context, pool, inputs, outputs, seconds, error);
}

int32_t tc_run_profiled(const tc_program *program, tc_context *context, tc_pool *pool, void *const *inputs,
                        void *const *outputs, double *seconds, tc_error *error) {
  (void)program;
  const bool entered = tc_pool_enter(pool);
  const int32_t status = tc_run_entered(context, entered ? pool : NULL, inputs, outputs, seconds, error);
  if (entered) {
    tc_pool_leave(pool);
  }
  return status;
}

int32_t tc_run(const tc_program *program, tc_context *context, tc_pool *pool, void *const *inputs, void *const *outputs,
               tc_error *error) {
  context->supervision.has_taken = false;
  const int32_t status = tc_run_profiled(program, context, pool, inputs, outputs, NULL, error);
  context->is_steady = status == TC_OK && !context->supervision.has_taken;
  return status;
}

int32_t tc_run_in_room(const tc_program *program, tc_context *context, tc_pool *pool, void *const *inputs,
                       void *const *outputs, tc_error *error) {
  if (context->control_count && !context->is_steady) { /* it would be cut short, and begun anew */
    return tc_error_set(error, TC_LIMIT, "control flow may have to take more memory");
  }
  context->supervision.is_closed = true;
  const int32_t status = tc_run(program, context, pool, inputs, outputs, error);
  context->supervision.is_closed = false;
  return status;
}

int32_t tc_context_grown(const tc_context *context, int32_t output, tc_grown *grown) {
  const bool known = context->grown && output >= 0 && output < context->program->output_count;
  *grown = known ? context->grown[output] : (tc_grown){.rank = -1};
  return grown->rank;
}
