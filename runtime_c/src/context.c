/* Contexts: the memory of runs, and the plans for their sizes. */
#include "context.h"

#include <stdlib.h>
#include <string.h>

#include "platform.h"

static void control_state_destroy(tc_control_state *state) {
  if (!state) {
    return;
  }
  for (int b = 0; b < state->body_count; b++) {
    tc_context_destroy(state->contexts[b]);
    free(state->symbols[b]);
  }
  for (int32_t i = 0; state->buffers && i < state->buffer_count; i++) {
    tc_free(state->buffers[i].data);
  }
  free(state->buffers);
  free(state->inputs);
  free(state->outputs);
  free(state->bytes);
  free(state->row_dims);
  free(state->row_bytes);
  free(state);
}

void tc_context_destroy(tc_context *context) {
  if (context) {
    if (context->values) {
      tc_instance_free(&context->sized);
      free(context->patches);
    }
    for (int64_t i = 0; context->controls && i < context->control_count; i++) {
      control_state_destroy(context->controls[i]);
    }
    free(context->controls);
    free(context->grown);
    free(context->dims);
    free(context->symbols);
    free(context->values);
    tc_free(context->arena);
    tc_free(context->scratch);
    tc_free(context->portions);
    free(context->pointers);
    free(context);
  }
}

/* Sets the pointers that are the same in every run; packed constants have none, so that no run depends on them. */
static void resolve_fixed(const tc_program *program, tc_context *context) {
  for (int64_t s = 0; s < program->step_count; s++) {
    const tc_step *step = &tc_steps_of(context)[s];
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

static tc_control_state *control_state_create(const tc_control *control, int32_t threads, tc_error *error) {
  tc_control_state *state = calloc(1, sizeof(*state));
  if (!state) {
    tc_error_set(error, TC_NO_MEMORY, "no memory for a context");
    return NULL;
  }
  const size_t results = (size_t)control->results, inputs = (size_t)tc_body_inputs(control);
  state->body_count = tc_control_bodies(control);
  state->buffer_count = control->carried + control->results;
  state->buffers = calloc((size_t)state->buffer_count + 1, sizeof(tc_buffer));
  state->inputs = calloc(inputs + 1, sizeof(void *));
  state->outputs = calloc((size_t)tc_body_outputs(control) + 1, sizeof(void *));
  state->bytes = calloc(inputs + 1, sizeof(int64_t));
  state->row_dims = calloc((results + 1) * TC_MAX_RANK, sizeof(int64_t));
  state->row_bytes = calloc(results + 1, sizeof(int64_t));
  bool enough =
      state->buffers && state->inputs && state->outputs && state->bytes && state->row_dims && state->row_bytes;
  error->code = enough ? TC_OK : tc_error_set(error, TC_NO_MEMORY, "no memory for a context");
  for (int b = 0; enough && b < state->body_count; b++) {
    const tc_program *body = control->bodies[b].program;
    state->symbols[b] = calloc((size_t)body->formulas.symbol_count + 1, sizeof(int64_t));
    if (!state->symbols[b]) {
      tc_error_set(error, TC_NO_MEMORY, "no memory for a context");
    }
    enough = state->symbols[b] && !tc_context_create(body, threads, &state->contexts[b], error);
  }
  if (!enough) {
    control_state_destroy(state);
    return NULL;
  }
  return state;
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
      tc_control_state *state = control_state_create(step->control, context->threads, error);
      if (!state) {
        return error->code;
      }
      context->controls[step->control_index] = state;
    }
  }
  return TC_OK;
}

int64_t tc_touched_bytes(const tc_context *context, bool is_output, int32_t index) {
  const tc_program *program = context->program;
  if (!tc_program_is_symbolic(program)) {
    return (is_output ? program->own.outputs : program->own.inputs)[index].bytes;
  }
  const int64_t value = (is_output ? program->output_values : program->input_values)[index];
  return value < 0 ? TC_MAX_BYTES : context->sized.values[value];
}

/* Notes the dimensions of one buffer, and holds them against what the program touches. */
static int32_t note_buffer(const tc_context *context, bool is_output, int32_t index, tc_error *error) {
  const tc_about *about = &context->program->about;
  const tc_type_of *type = &(is_output ? about->outputs : about->inputs)[index];
  int64_t *dims = context->dims + type->first_dim, bytes;
  for (int32_t d = 0; d < type->rank; d++) {
    dims[d] = tc_extent_at(&type->dims[d], tc_instance_of(context)->values);
  }
  if (type->grown) {
    return TC_OK;
  }
  for (int32_t d = 0; d < type->rank; d++) {
    if (dims[d] < 0) {
      return tc_error_set(error, TC_INVALID, "an array would have a dimension of %lld", (long long)dims[d]);
    }
  }
  if (!tc_bytes_of(type->rank, dims, type->element, &bytes)) {
    return tc_error_set(error, TC_TOO_LARGE, "no memory would hold an array");
  }
  return tc_touched_bytes(context, is_output, index) <= bytes
             ? TC_OK
             : tc_error_set(error, TC_INVALID, "the program reaches past the end of %s %d, which has %lld bytes",
                            is_output ? "output" : "input", index, (long long)bytes);
}

int32_t tc_context_note_dims(tc_context *context, tc_error *error) {
  const tc_program *program = context->program;
  for (int32_t i = 0; context->dims && i < program->input_count; i++) {
    if (note_buffer(context, false, i, error)) {
      return error->code;
    }
  }
  for (int32_t i = 0; context->dims && i < program->output_count; i++) {
    if (note_buffer(context, true, i, error)) {
      return error->code;
    }
  }
  context->has_dims = true;
  return TC_OK;
}

/* Makes room for the dimensions of inputs and outputs, and the sizes that they show; false without memory. */
static bool create_dims(const tc_program *program, tc_context *context) {
  if (!program->about.inputs) { /* it was not read */
    return true;
  }
  context->dims = calloc((size_t)program->about.dim_count + 1, sizeof(int64_t));
  context->symbols = calloc((size_t)program->formulas.symbol_count + 1, sizeof(int64_t));
  return context->dims && context->symbols;
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
      context->patches = context->values ? malloc(patches + 1) : NULL;
      if (patches && context->patches) {
        memcpy(context->patches, program->patches, patches);
      }
      if (!context->patches || !tc_instance_copy(program, &context->sized)) {
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
  if (!context || !context->arena || !context->scratch || !context->portions || !context->pointers ||
      !create_dims(program, context)) {
    tc_context_destroy(context);
    return tc_error_set(error, TC_NO_MEMORY, "no memory for an arena of %lld bytes and scratch of %lld",
                        (long long)program->own.arena_bytes, (long long)program->own.scratch_bytes);
  }
  if (create_controls(program, context, error) ||
      (!tc_program_is_symbolic(program) && tc_context_note_dims(context, error))) {
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
  context->is_planned = context->is_sized = context->is_set_up = context->is_steady = context->has_dims = false;
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

int64_t tc_context_needed_bytes(const tc_context *context) {
  const tc_instance *sized = &context->sized;
  return sized->arena_bytes + scratch_stride(sized) * context->threads + result_bytes(context->program, sized);
}

int32_t tc_context_work(const tc_context *context, int64_t instruction, tc_work *work) {
  const tc_program *program = context->program;
  if (instruction < 0 || instruction >= program->step_count) {
    return false;
  }
  *work = tc_steps_of(context)[instruction].work;
  return true;
}

int32_t tc_context_plan(const tc_context *context, int64_t instruction, tc_step_plan *plan) {
  return tc_step_plan_of(context->program, tc_instance_of(context), instruction, plan);
}

int32_t tc_context_cleared(const tc_context *context, int64_t i, int32_t *buffer, int64_t *begin, int64_t *end) {
  return tc_stretch_of(tc_instance_of(context), i, buffer, begin, end);
}

int64_t tc_context_written_bytes(const tc_context *context, int32_t output) {
  const tc_program *program = context->program;
  const bool unknown = tc_program_is_symbolic(program) && !context->is_sized;
  return output < 0 || output >= program->output_count || unknown
             ? 0
             : tc_written_bytes(program, tc_instance_of(context), output);
}

void tc_clear_output(const tc_context *context, int32_t output, void *data, int64_t bytes) {
  const int64_t written = tc_context_written_bytes(context, output);
  if (written < bytes) {
    memset((char *)data + written, 0, (size_t)(bytes - written));
  }
}

int32_t tc_context_grown(const tc_context *context, int32_t output, tc_grown *grown) {
  const bool known = context->grown && output >= 0 && output < context->program->output_count;
  *grown = known ? context->grown[output] : (tc_grown){.rank = -1};
  return grown->rank;
}

/* Sets the pointers into the caller's buffers, after checking their alignment. */
int32_t tc_context_resolve(tc_context *context, void *const *inputs, void *const *outputs, tc_error *error) {
  const tc_program *program = context->program;
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

/* Notes the size that a step has determined. Behind elements, steps are planned again before the first one that depends
 * on them, so that those that are read one after the other make one plan. */
int32_t tc_context_take_size(tc_context *context, int64_t found_by, tc_error *error) {
  const tc_program *program = context->program;
  const tc_formulas *formulas = &program->formulas;
  const tc_step *step = &context->sized.steps[found_by];
  int64_t size = *(const int64_t *)context->pointers[step->first_pointer + step->found_operand];
  const int64_t most = step->most < 0 ? TC_FARTHEST : context->sized.values[step->most];
  if (step->most < 0) {
    size = tc_max(tc_min(size, TC_FARTHEST), -TC_FARTHEST);
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
int32_t tc_context_take_over(tc_context *context, int64_t first, void *const *inputs, void *const *outputs,
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
  return tc_context_resolve(context, inputs, outputs, error);
}
