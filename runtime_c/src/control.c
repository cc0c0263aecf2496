/* Control flow: building, checking and running the instructions that run other programs. */
#include "control.h"

#include <stdlib.h>
#include <string.h>

#include "context.h"
#include "platform.h"
#include "pool.h"
#include "written.h"

/* Memory that grows from trip to trip. */
typedef struct tc_buffer {
  char *data;
  int64_t room;
} tc_buffer;

struct tc_control_state {
  int body_count;
  tc_context *contexts[2];
  int64_t *symbols[2]; /* of the bodies */
  void **inputs, **outputs;
  int64_t *bytes; /* of the inputs at hand */
  int32_t buffer_count;
  tc_buffer *buffers; /* two for every carried value, then one for every other result */
  int64_t *row_dims;  /* of the other results, TC_MAX_RANK each */
  int64_t *row_bytes;
};

int32_t tc_control_bodies(const tc_control *control) { return control->kind == TC_CONTROL_IF ? 2 : 1; }

/* Operands before the first carried or captured one. */
static int32_t leading(const tc_control *control) { return control->kind == TC_CONTROL_IF ? 1 : 2; }

int32_t tc_control_operands(const tc_control *control) {
  return leading(control) + control->carried + control->captured + control->results;
}

/* Inputs and outputs of every body. */
static int32_t body_inputs(const tc_control *control) {
  return control->carried + control->captured + (control->kind == TC_CONTROL_IF ? 0 : 2);
}

static int32_t body_outputs(const tc_control *control) {
  return control->results + (control->kind == TC_CONTROL_IF ? 0 : 1);
}

int64_t tc_extent_at(const tc_extent *extent, const int64_t *values) {
  return extent->value < 0 ? extent->number : values[extent->value];
}

static bool is_unknown(const tc_extent *extent) { return extent->value < 0 && extent->number < 0; }

/* ---- building ---- */

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
  if (!inner || !inner->finished || inner->left_count || inner->input_count != body_inputs(control) ||
      inner->output_count != body_outputs(control)) {
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
            (i >= leading(control) || control->operands[i].space == TC_NONE ||
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

/* ---- contexts ---- */

void tc_control_state_destroy(tc_control_state *state) {
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

tc_control_state *tc_control_state_create(const tc_control *control, int32_t threads, tc_error *error) {
  tc_control_state *state = calloc(1, sizeof(*state));
  if (!state) {
    tc_error_set(error, TC_NO_MEMORY, "no memory for a context");
    return NULL;
  }
  const size_t results = (size_t)control->results, inputs = (size_t)body_inputs(control);
  state->body_count = tc_control_bodies(control);
  state->buffer_count = control->carried + control->results;
  state->buffers = calloc((size_t)state->buffer_count + 1, sizeof(tc_buffer));
  state->inputs = calloc(inputs + 1, sizeof(void *));
  state->outputs = calloc((size_t)body_outputs(control) + 1, sizeof(void *));
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
    tc_control_state_destroy(state);
    return NULL;
  }
  return state;
}

/* ---- running ---- */

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
  return tc_run_entered(state->contexts[b], run->pool, state->inputs, state->outputs, NULL, run->error)
             ? because_of_data(run)
             : TC_OK;
}

/* The most bytes that a body touches of a buffer: over sizes, what its steps were checked against. */
static int64_t touched(const tc_context *inner, const tc_requirement *requirements, const int64_t *values, int32_t i) {
  if (!tc_program_is_symbolic(inner->program)) {
    return requirements[i].bytes;
  }
  return values[i] < 0 ? TC_MAX_BYTES : inner->sized.values[values[i]];
}

/* Checks that a body touches no more of its inputs than there is. */
static int32_t check_inputs(const tc_control_call *run, int b) {
  const tc_context *inner = run->state->contexts[b];
  for (int32_t i = 0; i < inner->program->input_count; i++) {
    const int64_t needed = touched(inner, inner->program->own.inputs, inner->program->input_values, i);
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
  const int64_t needed = touched(inner, inner->program->own.outputs, inner->program->output_values, index);
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
  const int32_t first = body_inputs(control) - control->captured, operand = leading(control) + control->carried;
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

int32_t tc_control_run(tc_context *context, const tc_step *step, tc_pool *pool, tc_error *error) {
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
