/* Running a program in a context. */
#include "context.h"

#include <stdlib.h>
#include <string.h>

#include "platform.h"
#include "pool.h"

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

/* ---- control flow ---- */

/* Runs a program on threads of a pool that the caller has entered. */
static int32_t run_entered(tc_context *context, tc_pool *pool, void *const *inputs, void *const *outputs,
                           double *seconds, tc_error *error);

/* What a step with bodies has at hand in a run. */
typedef struct tc_control_call {
  tc_context *context;
  const tc_step *step;
  const tc_control *control;
  tc_control_state *state;
  void *const *pointers; /* of the operands */
  const int64_t *values; /* of the program around */
  tc_pool *pool;
  tc_error *error;
} tc_control_call;

/* Takes so many more bytes, or gives some back, if that is allowed. */
static int32_t take(const tc_control_call *run, int64_t bytes) {
  tc_supervision *supervision = run->context->supervisor;
  const bool asks = bytes > 0 && supervision->permits && !supervision->is_closed;
  if ((bytes > 0 && supervision->is_closed) ||
      (asks && !supervision->permits(supervision->owner, supervision->bytes + bytes))) {
    return tc_error_set(run->error, TC_LIMIT, "control flow may not take %lld bytes more", (long long)bytes);
  }
  supervision->bytes += bytes;
  supervision->has_taken = supervision->has_taken || bytes > 0;
  return TC_OK;
}

/* Asks now and then whether a loop may go on. */
static int32_t go_on(const tc_control_call *run) {
  static const double INTERVAL = 0.05;
  tc_supervision *supervision = run->context->supervisor;
  const bool asks = supervision->permits && !supervision->is_closed;
  const double now = asks ? tc_seconds_now() : 0;
  if (asks && now - supervision->asked > INTERVAL) {
    supervision->asked = now;
    if (!supervision->permits(supervision->owner, supervision->bytes)) {
      return tc_error_set(run->error, TC_LIMIT, "the loop may not go on");
    }
  }
  return TC_OK;
}

/* Makes room for so many bytes, of which the first `kept` stay; what grows by a little seldom asks for it. */
static int32_t reserve_bytes(const tc_control_call *run, tc_buffer *buffer, int64_t bytes, int64_t kept) {
  if (bytes <= buffer->room && buffer->data) {
    return TC_OK;
  }
  if (bytes < 0 || bytes > TC_MAX_BYTES) {
    return tc_error_set(run->error, TC_NO_MEMORY, "a loop would make a value of %lld bytes", (long long)bytes);
  }
  const int64_t room = bytes + bytes / 2;
  if (take(run, room - buffer->room)) {
    return run->error->code;
  }
  char *larger = tc_allocate(room);
  if (!larger) {
    take(run, buffer->room - room);
    return tc_error_set(run->error, TC_NO_MEMORY, "no memory for a value of %lld bytes that a loop makes",
                        (long long)bytes);
  }
  if (kept) {
    memcpy(larger, buffer->data, (size_t)kept);
  }
  tc_free(buffer->data);
  *buffer = (tc_buffer){larger, room};
  return TC_OK;
}

/* Sizes of bodies depend on data, so that it is the run that fails. */
static int32_t because_of_data(const tc_control_call *run) {
  run->error->code = run->error->code == TC_INVALID ? TC_FAILED : run->error->code;
  return run->error->code;
}

/* Makes a body ready for its sizes. */
static int32_t resize_body(const tc_control_call *run, int b) {
  tc_context *inner = run->state->contexts[b];
  const int64_t *symbols = run->state->symbols[b];
  inner->supervisor = run->context->supervisor;
  if (!tc_program_is_symbolic(inner->program) || !tc_context_resize(inner, symbols, 0, run->error)) {
    return TC_OK;
  }
  if (run->error->code == TC_LIMIT) {
    const int64_t needed = tc_context_needed_bytes(inner);
    if (take(run, needed - inner->granted)) {
      return run->error->code;
    }
    tc_context_resize(inner, symbols, needed, run->error);
  }
  if (run->error->code) {
    return because_of_data(run);
  }
  return TC_OK;
}

/* Runs a body, whose own instructions may find out sizes that it does not work for. */
static int32_t run_body(const tc_control_call *run, int b) {
  const tc_control_state *state = run->state;
  return run_entered(state->contexts[b], run->pool, state->inputs, state->outputs, NULL, run->error)
             ? because_of_data(run)
             : TC_OK;
}

/* Checks that a body touches no more of its inputs than there is. */
static int32_t check_inputs(const tc_control_call *run, int b) {
  const tc_context *inner = run->state->contexts[b];
  for (int32_t i = 0; i < inner->program->input_count; i++) {
    const int64_t needed = tc_touched_bytes(inner, false, i);
    if (needed > run->state->bytes[i]) {
      return tc_error_set(run->error, TC_FAILED, "the body reads %lld bytes of its input %d, which has %lld",
                          (long long)needed, i, (long long)run->state->bytes[i]);
    }
  }
  return TC_OK;
}

/* The bytes of a body's output; no fewer than it touches, or else the run fails. */
static int32_t output_bytes(const tc_control_call *run, int b, int32_t index, int64_t *bytes) {
  const tc_context *inner = run->state->contexts[b];
  const int64_t needed = tc_touched_bytes(inner, true, index);
  *bytes = tc_extent_at(&run->control->bodies[b].outputs[index], tc_instance_of(inner)->values);
  if (*bytes < needed) {
    return tc_error_set(run->error, TC_FAILED, "the body writes %lld bytes of its output %d, which has %lld",
                        (long long)needed, index, (long long)*bytes);
  }
  return TC_OK;
}

static int64_t operand_bytes(const tc_control_call *run, int32_t operand) {
  return tc_extent_at(&run->control->bytes[operand], run->values);
}

static int32_t differs(const tc_control_call *run, int32_t result, int64_t found, int64_t expected) {
  return tc_error_set(run->error, TC_FAILED, "result %d has %lld bytes, not %lld", result, (long long)found,
                      (long long)expected);
}

/* Gives the body what its symbols are at first, and the captured operands. */
static void begin_body(const tc_control_call *run, int b) {
  const tc_control *control = run->control;
  const tc_body *body = &control->bodies[b];
  for (int64_t s = 0; s < body->program->formulas.symbol_count; s++) {
    run->state->symbols[b][s] = tc_extent_at(&body->symbols[s], run->values);
  }
  const int32_t first = tc_body_inputs(control) - control->captured,
                operand = tc_control_leading(control) + control->carried;
  for (int32_t i = 0; i < control->captured; i++) {
    run->state->inputs[first + i] = run->pointers[operand + i];
    run->state->bytes[first + i] = operand_bytes(run, operand + i);
  }
}

static int32_t nowhere(const tc_control_call *run, int32_t result) {
  return tc_error_set(run->error, TC_FAILED, "result %d has no place", result);
}

static int32_t run_if(const tc_control_call *run) {
  const tc_control *control = run->control;
  const int b = *(const uint8_t *)run->pointers[0] ? 0 : 1;
  begin_body(run, b);
  if (resize_body(run, b) || check_inputs(run, b)) {
    return run->error->code;
  }
  for (int32_t r = 0; r < control->results; r++) {
    const int32_t operand = 1 + control->captured + r;
    const int64_t room = operand_bytes(run, operand);
    int64_t bytes;
    if (output_bytes(run, b, r, &bytes)) {
      return run->error->code;
    }
    if (bytes != room) {
      return differs(run, r, bytes, room);
    }
    if (bytes && !run->pointers[operand]) {
      return nowhere(run, r);
    }
    run->state->outputs[r] = run->pointers[operand];
    tc_clear_output(run->state->contexts[b], r, run->pointers[operand], bytes);
  }
  return run_body(run, b);
}

/* Where the row of this trip goes. */
static int32_t place_row(const tc_control_call *run, int32_t result, int64_t trip) {
  const tc_control *control = run->control;
  tc_control_state *state = run->state;
  const tc_growth *growth = &control->growths[result];
  const int64_t *values = tc_instance_of(state->contexts[0])->values;
  int64_t bytes;
  if (output_bytes(run, 0, 1 + result, &bytes)) {
    return run->error->code;
  }
  int64_t *dims = state->row_dims + (int64_t)TC_MAX_RANK * result;
  bool same = trip == 0 || bytes == state->row_bytes[result];
  for (int32_t d = 0; d < growth->rank; d++) {
    const int64_t size = tc_extent_at(&growth->dims[d], values);
    same = same && (trip == 0 || size == dims[d]);
    dims[d] = size;
  }
  if (!same) {
    return tc_error_set(run->error, TC_FAILED, "scan output %d changes its shape between trips",
                        result - control->carried);
  }
  state->row_bytes[result] = bytes;
  if (growth->rank < 0) {
    const int32_t operand = tc_control_operands(control) - control->results + result;
    const int64_t room = operand_bytes(run, operand);
    if (bytes && trip >= room / bytes) {
      return tc_error_set(run->error, TC_FAILED, "there are more rows of scan output %d than expected",
                          result - control->carried);
    }
    if (bytes && !run->pointers[operand]) {
      return nowhere(run, result);
    }
    state->outputs[1 + result] = (char *)run->pointers[operand] + trip * bytes;
    tc_clear_output(state->contexts[0], 1 + result, state->outputs[1 + result], bytes);
    return TC_OK;
  }
  tc_buffer *buffer = &state->buffers[control->carried + result];
  if (reserve_bytes(run, buffer, (trip + 1) * bytes, trip * bytes)) {
    return run->error->code;
  }
  state->outputs[1 + result] = buffer->data + trip * bytes;
  tc_clear_output(state->contexts[0], 1 + result, state->outputs[1 + result], bytes);
  return TC_OK;
}

/* Places for the results of one trip, but for the condition. */
static int32_t place_results(const tc_control_call *run, int64_t trip) {
  const tc_control *control = run->control;
  tc_control_state *state = run->state;
  for (int32_t r = 0; r < control->carried; r++) {
    tc_buffer *buffer = &state->buffers[2 * r + (trip & 1)];
    if (output_bytes(run, 0, 1 + r, &state->row_bytes[r]) || reserve_bytes(run, buffer, state->row_bytes[r], 0)) {
      return run->error->code;
    }
    state->outputs[1 + r] = buffer->data;
    tc_clear_output(state->contexts[0], 1 + r, buffer->data, state->row_bytes[r]);
  }
  for (int32_t r = control->carried; r < control->results; r++) {
    if (place_row(run, r, trip)) {
      return run->error->code;
    }
  }
  return TC_OK;
}

/* Takes over what one trip has made. */
static void advance(const tc_control_call *run) {
  const tc_control *control = run->control;
  tc_control_state *state = run->state;
  const tc_body *body = &control->bodies[0];
  const int64_t *values = tc_instance_of(state->contexts[0])->values;
  for (int32_t r = 0; r < control->carried; r++) {
    state->inputs[2 + r] = state->outputs[1 + r];
    state->bytes[2 + r] = state->row_bytes[r];
  }
  for (int64_t s = 0; s < body->program->formulas.symbol_count; s++) {
    if (body->next[s] >= 0) {
      state->symbols[0][s] = values[body->next[s]];
    }
  }
}

/* Hands a result of unknown size out. */
static void give_grown(const tc_control_call *run, int32_t result, int64_t trips) {
  const tc_control *control = run->control;
  const tc_control_state *state = run->state;
  const tc_growth *growth = &control->growths[result];
  const int32_t operand = tc_control_operands(control) - control->results + result;
  const bool is_row = result >= control->carried;
  const tc_instance *inner = tc_instance_of(state->contexts[0]);
  tc_grown *grown = &run->context->grown[run->step->operands[operand].index];
  grown->rank = growth->rank + is_row;
  grown->dims[0] = trips;
  for (int32_t d = 0; d < growth->rank; d++) {
    grown->dims[is_row + d] =
        trips ? tc_extent_at(&growth->dims[d], inner->values) : tc_extent_at(&growth->first[d], run->values);
  }
  grown->data = is_row ? state->buffers[control->carried + result].data : state->inputs[2 + result];
  grown->bytes = is_row ? (trips ? trips * state->row_bytes[result] : 0) : state->bytes[2 + result];
}

/* Puts the results where they belong. */
static int32_t finish_loop(const tc_control_call *run, int64_t trips) {
  const tc_control *control = run->control;
  const tc_control_state *state = run->state;
  for (int32_t r = 0; r < control->results; r++) {
    const int32_t operand = tc_control_operands(control) - control->results + r;
    if (control->growths[r].rank >= 0) {
      give_grown(run, r, trips);
      continue;
    }
    if (run->step->operands[operand].space == TC_NONE) {
      continue;
    }
    const int64_t room = operand_bytes(run, operand);
    const int64_t bytes = r < control->carried ? state->bytes[2 + r] : trips ? trips * state->row_bytes[r] : 0;
    if (bytes != room) {
      return differs(run, r, bytes, room);
    }
    if (r < control->carried && bytes) {
      memcpy(run->pointers[operand], state->inputs[2 + r], (size_t)bytes);
    }
  }
  return TC_OK;
}

static int32_t run_loop(const tc_control_call *run) {
  const tc_control *control = run->control;
  tc_control_state *state = run->state;
  const int64_t limit = run->pointers[0] ? *(const int64_t *)run->pointers[0] : INT64_MAX;
  uint8_t goes_on = run->pointers[1] ? *(const uint8_t *)run->pointers[1] : 1;
  int64_t trip = 0;
  uint8_t condition = 1;
  begin_body(run, 0);
  state->inputs[0] = &trip;
  state->bytes[0] = sizeof(trip);
  state->inputs[1] = &condition;
  state->bytes[1] = sizeof(condition);
  for (int32_t r = 0; r < control->carried; r++) {
    state->inputs[2 + r] = run->pointers[2 + r];
    state->bytes[2 + r] = operand_bytes(run, 2 + r);
  }
  state->outputs[0] = &goes_on;
  for (; goes_on && trip < limit; trip++) {
    int64_t bytes;
    if (go_on(run) || resize_body(run, 0) || check_inputs(run, 0) || output_bytes(run, 0, 0, &bytes)) {
      return run->error->code;
    }
    if (bytes != sizeof(goes_on)) {
      return tc_error_set(run->error, TC_FAILED, "the condition has %lld bytes", (long long)bytes);
    }
    if (place_results(run, trip) || run_body(run, 0)) {
      return run->error->code;
    }
    advance(run);
  }
  return finish_loop(run, trip);
}

/* Runs a step with bodies as a part of a run of the context. */
static int32_t run_control(tc_context *context, const tc_step *step, tc_pool *pool, tc_error *error) {
  const tc_control_call run = {.context = context,
                               .step = step,
                               .control = step->control,
                               .state = context->controls[step->control_index],
                               .pointers = context->pointers + step->first_pointer,
                               .values = tc_instance_of(context)->values,
                               .pool = pool,
                               .error = error};
  return step->control->kind == TC_CONTROL_IF ? run_if(&run) : run_loop(&run);
}

/* ---- programs ---- */

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
  const tc_step *steps = tc_steps_of(context);
  context->is_set_up = context->is_set_up && !tc_instance_of(context)->repeats;
#ifdef TC_POISON
  poison(context, outputs);
#endif
  tc_clear_arena(tc_instance_of(context), context->arena);
  context->pending = 0; /* an earlier run may have failed */
  for (int64_t s = context->is_set_up ? program->setup_count : 0; s < program->step_count; s++) {
    const double start = seconds ? tc_seconds_now() : 0;
    task.step = &steps[s];
    if (context->pending && task.step->late && tc_context_take_over(context, s, inputs, outputs, error)) {
      return error->code;
    }
    if (task.step->control) {
      if (run_control(context, task.step, pool, error)) {
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
    if (task.step->finds && tc_context_take_size(context, s, error)) {
      return error->code;
    }
    /* A count says how much of a buffer has been written, which a step may read that does not depend on it. */
    if (task.step->finds && task.step->most >= 0 && tc_context_take_over(context, s + 1, inputs, outputs, error)) {
      return error->code;
    }
    context->is_set_up = context->is_set_up || s + 1 >= program->setup_count;
  }
  if (context->pending && tc_context_take_over(context, program->step_count, inputs, outputs, error)) {
    return error->code;
  }
  return leave_outputs(program, context, error);
}

static int32_t run_entered(tc_context *context, tc_pool *pool, void *const *inputs, void *const *outputs,
                           double *seconds, tc_error *error) {
  if (tc_context_resolve(context, inputs, outputs, error)) {
    return error->code;
  }
  return run_steps(context, pool, inputs, outputs, seconds, error);
}

int32_t tc_run_profiled(const tc_program *program, tc_context *context, tc_pool *pool, void *const *inputs,
                        void *const *outputs, double *seconds, tc_error *error) {
  (void)program;
  const bool entered = tc_pool_enter(pool);
  const int32_t status = run_entered(context, entered ? pool : NULL, inputs, outputs, seconds, error);
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
