/* Running modules: a session holds what one run at a time needs. */
#include <stdlib.h>
#include <string.h>

#include "context.h"
#include "module.h"
#include "platform.h"

/* A value of a run. */
typedef struct value {
  tc_tensor tensor;
  int64_t bytes;
  void *own; /* memory of the session for it, kept from run to run */
  int64_t room;
  bool grown; /* whether it lies in the context of its step, which the next run uses again */
} value;

/* Where the caller wants a result. */
typedef struct given {
  void *data;
  int64_t bytes;
} given;

struct tc_session {
  const tc_module *module;
  tc_context **contexts; /* one per step */
  value *values;         /* one per slot */
  tc_tensor *inputs;     /* as they were set; data NULL for those that were not */
  int64_t *input_bytes;
  given *outputs;
  tc_tensor *results;
  int64_t *sizes;         /* of the module's symbols */
  tc_argument *arguments; /* of the program at hand */
  void **pointers;        /* operands and results of the step at hand */
  void *scratch;          /* for functions of regions */
  int64_t scratch_room;
  double seconds;
  int64_t most_bytes;
  bool has_run;
};

/* Whether control flow may hold so many bytes; session->most_bytes is the owner's to change. */
static int32_t permits(void *owner, int64_t bytes) {
  const tc_session *session = owner;
  return !session->most_bytes || bytes <= session->most_bytes;
}

int32_t tc_session_open(const tc_module *module, tc_session **out, tc_error *error) {
  *out = NULL;
  *error = (tc_error){0};
  int64_t operands = 1;
  for (int64_t s = 0; s < module->step_count; s++) {
    operands = tc_max(operands, (int64_t)module->steps[s].input_count + module->steps[s].output_count + 1);
  }
  tc_session *session = calloc(1, sizeof(*session));
  if (session) {
    session->module = module;
    session->contexts = calloc((size_t)module->step_count + 1, sizeof(tc_context *));
    session->values = calloc((size_t)module->slot_count, sizeof(value));
    session->inputs = calloc((size_t)module->input_count + 1, sizeof(tc_tensor));
    session->input_bytes = calloc((size_t)module->input_count + 1, sizeof(int64_t));
    session->outputs = calloc((size_t)module->output_count + 1, sizeof(given));
    session->results = calloc((size_t)module->output_count + 1, sizeof(tc_tensor));
    session->sizes = calloc((size_t)module->symbol_count + 1, sizeof(int64_t));
    session->arguments = calloc((size_t)operands, sizeof(tc_argument));
    session->pointers = calloc((size_t)operands, sizeof(void *));
  }
  if (!session || !session->contexts || !session->values || !session->inputs || !session->input_bytes ||
      !session->outputs || !session->results || !session->sizes || !session->arguments || !session->pointers) {
    tc_session_close(session);
    return tc_error_set(error, TC_NO_MEMORY, "no memory for a session");
  }
  for (int64_t s = 0; s < module->step_count; s++) {
    const tc_program *program = module->steps[s].program;
    if (program && tc_context_create(program, module->threads, &session->contexts[s], error)) {
      tc_session_close(session);
      return error->code;
    }
    if (program) {
      tc_context_supervise(session->contexts[s], permits, session);
    }
  }
  for (int64_t c = 0; c < module->constant_count; c++) {
    const tc_fixed *constant = &module->constants[c];
    session->values[constant->slot] = (value){.tensor = constant->tensor, .bytes = constant->bytes};
  }
  *out = session;
  return TC_OK;
}

void tc_session_close(tc_session *session) {
  if (!session) {
    return;
  }
  for (int64_t s = 0; session->contexts && s < session->module->step_count; s++) {
    tc_context_destroy(session->contexts[s]);
  }
  for (int32_t v = 0; session->values && v < session->module->slot_count; v++) {
    tc_free(session->values[v].own);
  }
  tc_free(session->scratch);
  free(session->contexts);
  free(session->values);
  free(session->inputs);
  free(session->input_bytes);
  free(session->outputs);
  free(session->results);
  free(session->sizes);
  free(session->arguments);
  free(session->pointers);
  free(session);
}

/* ---- what goes in and where results go ---- */

int32_t tc_session_set_input(tc_session *session, int32_t index, const tc_tensor *tensor, tc_error *error) {
  const tc_module *module = session->module;
  *error = (tc_error){0};
  if (index < 0 || index >= module->input_count) {
    return tc_error_set(error, TC_INVALID, "there is no input %d; the module has %d", index, module->input_count);
  }
  const tc_port *port = &module->inputs[index];
  int32_t element = 0;
  const char *dtype = tc_dtype_find(tensor->dtype, &element);
  if (dtype != port->type.dtype) {
    return tc_error_set(error, TC_INVALID, "input \"%.100s\" is of type %s, not %.50s", port->name, port->type.dtype,
                        tensor->dtype ? tensor->dtype : "NULL");
  }
  if (port->type.rank >= 0 && tensor->rank != port->type.rank) {
    return tc_error_set(error, TC_INVALID, "input \"%.100s\" has %d dimensions, not %d", port->name, port->type.rank,
                        tensor->rank);
  }
  int64_t bytes;
  if (!tc_tensor_bytes(tensor->rank, tensor->dims, element, &bytes) || (!tensor->data && bytes)) {
    return tc_error_set(error, TC_INVALID, "input \"%.100s\": no data, or dimensions that no memory holds", port->name);
  }
  for (int32_t d = 0; d < port->type.rank; d++) {
    const int64_t wanted = port->type.dims[d].number;
    if (wanted >= 0 && tensor->dims[d] != wanted) {
      return tc_error_set(error, TC_INVALID, "input \"%.100s\": dimension %d is %lld, not %lld", port->name, d,
                          (long long)wanted, (long long)tensor->dims[d]);
    }
  }
  if ((uintptr_t)tensor->data % (uintptr_t)tc_min(element, 8)) {
    return tc_error_set(error, TC_INVALID, "input \"%.100s\" is not aligned to its elements", port->name);
  }
  static const char nothing[TC_ALIGNMENT];
  session->inputs[index] = *tensor;
  session->inputs[index].dtype = dtype;
  session->inputs[index].data = tensor->data ? tensor->data : (void *)(uintptr_t)nothing;
  session->input_bytes[index] = bytes;
  return TC_OK;
}

int32_t tc_session_set_output(tc_session *session, int32_t index, void *data, int64_t bytes, tc_error *error) {
  *error = (tc_error){0};
  if (index < 0 || index >= session->module->output_count) {
    return tc_error_set(error, TC_INVALID, "there is no output %d; the module has %d", index,
                        session->module->output_count);
  }
  const tc_port *port = &session->module->outputs[index];
  if (bytes < 0 || (uintptr_t)data % (uintptr_t)tc_min(port->type.element, 8)) {
    return tc_error_set(error, TC_INVALID, "output \"%.100s\": fewer than no bytes, or not aligned to its elements",
                        port->name);
  }
  session->outputs[index] = (given){data, data ? bytes : 0};
  return TC_OK;
}

void tc_session_limit(tc_session *session, double seconds, int64_t bytes) {
  session->seconds = seconds;
  session->most_bytes = bytes;
}

/* ---- a run ---- */

/* Takes the inputs into their slots; sizes of one name agree and stay within their bounds. */
static int32_t take_inputs(tc_session *session, tc_error *error) {
  const tc_module *module = session->module;
  for (int64_t s = 0; s < module->symbol_count; s++) {
    session->sizes[s] = -1;
  }
  for (int32_t i = 0; i < module->input_count; i++) {
    const tc_port *port = &module->inputs[i];
    value *taken = &session->values[port->slot];
    if (session->inputs[i].data) {
      taken->tensor = session->inputs[i];
      taken->bytes = session->input_bytes[i];
    } else if (port->start >= 0) {
      taken->tensor = module->defaults[port->start].tensor;
      taken->bytes = module->defaults[port->start].bytes;
    } else {
      return tc_error_set(error, TC_INVALID, "input \"%.100s\" has not been set", port->name);
    }
    for (int32_t d = 0; d < port->type.rank && d < taken->tensor.rank; d++) {
      const int64_t symbol = -2 - port->type.dims[d].number, size = taken->tensor.dims[d];
      if (symbol < 0) {
        continue;
      }
      if (session->sizes[symbol] >= 0 && session->sizes[symbol] != size) {
        return tc_error_set(error, TC_INVALID, "input \"%.80s\": %.60s is %lld there, and %lld in another input",
                            port->name, module->symbols[symbol].name, (long long)size,
                            (long long)session->sizes[symbol]);
      }
      if (size < module->symbols[symbol].least || size > module->symbols[symbol].most) {
        return tc_error_set(error, TC_INVALID, "input \"%.80s\": %.60s is %lld, which is not from %lld to %lld",
                            port->name, module->symbols[symbol].name, (long long)size,
                            (long long)module->symbols[symbol].least, (long long)module->symbols[symbol].most);
      }
      session->sizes[symbol] = size;
    }
  }
  return TC_OK;
}

static bool overlap(const void *a, int64_t a_bytes, const void *b, int64_t b_bytes) {
  return (uintptr_t)a < (uintptr_t)b + (uintptr_t)b_bytes && (uintptr_t)b < (uintptr_t)a + (uintptr_t)a_bytes;
}

/* Whether some memory of the caller is the session's for a result, which the next run writes. */
static bool is_ours(const tc_session *session, int32_t output, const void *data, int64_t bytes) {
  const value *result = &session->values[session->module->outputs[output].slot];
  const bool own = result->own && !session->outputs[output].data && overlap(data, bytes, result->own, result->room);
  return bytes > 0 && (own || (result->grown && overlap(data, bytes, result->tensor.data, result->bytes)));
}

/* Results in memory of the session are neither fed to the next run, nor memory for others of its results. */
static int32_t check_results(tc_session *session, tc_error *error) {
  const tc_module *module = session->module;
  for (int32_t o = 0; o < module->output_count; o++) {
    const char *named = NULL;
    for (int32_t i = 0; i < module->input_count; i++) {
      named = is_ours(session, o, session->inputs[i].data, session->input_bytes[i]) ? module->inputs[i].name : named;
    }
    for (int32_t other = 0; other < module->output_count; other++) {
      const given *its = &session->outputs[other];
      const bool same = module->outputs[other].slot == module->outputs[o].slot;
      named = !same && its->data && is_ours(session, o, its->data, its->bytes) ? module->outputs[other].name : named;
    }
    if (named) {
      return tc_error_set(error, TC_INVALID,
                          "the memory of \"%.80s\" is the session's for output \"%.80s\", which a run writes: copy it, "
                          "or set memory for the output",
                          named, module->outputs[o].name);
    }
  }
  for (int32_t o = 0; o < module->output_count; o++) {
    session->values[module->outputs[o].slot].grown = false;
  }
  return TC_OK;
}

/* Memory of the caller that results go to overlaps nothing but a cache that the run extends there. */
static int32_t check_outputs(const tc_session *session, tc_error *error) {
  const tc_module *module = session->module;
  for (int32_t o = 0; o < module->output_count; o++) {
    const given *mine = &session->outputs[o];
    if (!mine->data) {
      continue;
    }
    for (int32_t other = 0; other < o; other++) {
      if (session->outputs[other].data &&
          overlap(mine->data, mine->bytes, session->outputs[other].data, session->outputs[other].bytes)) {
        return tc_error_set(error, TC_INVALID, "the memory of outputs \"%.80s\" and \"%.80s\" overlaps",
                            module->outputs[other].name, module->outputs[o].name);
      }
    }
    for (int32_t i = 0; i < module->input_count; i++) {
      const value *input = &session->values[module->inputs[i].slot];
      bool extended = false;
      for (int64_t p = 0; p < module->pair_count; p++) {
        extended = extended || (module->pairs[p].input == i && module->pairs[p].output == o &&
                                input->tensor.data == mine->data && input->bytes == mine->bytes);
      }
      if (!extended && overlap(mine->data, mine->bytes, input->tensor.data, input->bytes)) {
        return tc_error_set(error, TC_INVALID, "the memory of output \"%.80s\" overlaps input \"%.80s\"",
                            module->outputs[o].name, module->inputs[i].name);
      }
    }
  }
  return TC_OK;
}

/* Puts the text of a failed condition of the model in place of its number, and the step in front. */
static int32_t explain(const tc_plan_step *step, tc_error *error) {
  tc_error found = *error;
  long long condition = 0;
  const char *mark = "condition ";
  const char *at = strncmp(found.message, mark, strlen(mark)) ? NULL : found.message + strlen(mark);
  for (; at && *at >= '0' && *at <= '9' && condition < INT32_MAX; at++) {
    condition = 10 * condition + (*at - '0');
  }
  if (!at || *at || condition >= step->program->about.condition_count) {
    return tc_error_set(error, found.code, "%.80s: %.200s", step->name, found.message);
  }
  const struct tc_said *said = &step->program->about.conditions[condition];
  return tc_error_set(error, found.code, "%.80s: %.140s (node %.60s)", step->name, said->text, said->node);
}

/* Whether an operand is of a type that has no dimensions that depend on sizes. */
static bool is_of(const tc_type_of *type, const tc_tensor *tensor) {
  bool fits = tensor->rank == type->rank;
  for (int32_t d = 0; fits && d < type->rank; d++) {
    fits = tensor->dims[d] == type->dims[d].number;
  }
  return fits;
}

/* Looks at the operands of a step, and makes its context ready for their sizes, within the session's limit. */
static int32_t fit(tc_session *session, const tc_plan_step *step, tc_context *context, tc_error *error) {
  for (int32_t i = 0; i < step->input_count; i++) {
    const tc_tensor *tensor = &session->values[step->reads[i]].tensor;
    if (tensor->dtype != step->inputs[i].dtype || (!step->program && !is_of(&step->inputs[i], tensor))) {
      return tc_error_set(error, TC_INVALID, "%.100s: operand %d has another type or shape than the program",
                          step->name, i);
    }
    session->arguments[i] = (tc_argument){tensor->data, tensor->dims, tensor->rank};
  }
  const int64_t most = session->most_bytes ? session->most_bytes : INT64_MAX;
  if (!step->program || !tc_context_fit(context, session->arguments, most, error)) {
    return TC_OK;
  }
  if (error->code == TC_LIMIT) {
    return tc_error_set(error, TC_LIMIT, "%.100s would hold %lld bytes, more than the session's %lld", step->name,
                        (long long)tc_context_needed_bytes(context), (long long)most);
  }
  return explain(step, error);
}

/* Memory of the session for a value; NULL if there is none. */
static void *room(value *of, int64_t bytes) {
  if (!of->own || of->room < bytes) {
    tc_free(of->own);
    of->own = tc_allocate(tc_max(bytes, 1));
    of->room = of->own ? bytes : 0;
  }
  return of->own;
}

/* Where a step writes a value: to memory of the caller if that is a result with some, or to the session's. */
static void *target(tc_session *session, int32_t slot, int64_t bytes, tc_error *error) {
  const tc_module *module = session->module;
  for (int32_t o = 0; o < module->output_count; o++) {
    if (module->outputs[o].slot == slot && session->outputs[o].data) {
      if (session->outputs[o].bytes < bytes) {
        tc_error_set(error, TC_INVALID, "output \"%.100s\" has %lld bytes, and there is room for %lld",
                     module->outputs[o].name, (long long)bytes, (long long)session->outputs[o].bytes);
        return NULL;
      }
      return session->outputs[o].data;
    }
  }
  void *memory = room(&session->values[slot], bytes);
  if (!memory) {
    tc_error_set(error, TC_NO_MEMORY, "no memory for a value of %lld bytes", (long long)bytes);
  }
  return memory;
}

/* Finds memory for a result of a step whose size is known before it runs; what no call writes for certain is 0. */
static int32_t place_result(tc_session *session, const tc_plan_step *step, int32_t index, const tc_context *context,
                            void **pointer, tc_error *error) {
  const tc_type_of *type = &step->outputs[index];
  value *result = &session->values[step->writes[index]];
  tc_tensor tensor = {.dtype = type->dtype, .rank = type->rank};
  int64_t bytes;
  const int64_t *dims = NULL;
  if (step->program) {
    (void)tc_context_result(context, index, &dims);
  }
  for (int32_t d = 0; d < type->rank; d++) {
    tensor.dims[d] = dims ? dims[d] : type->dims[d].number;
  }
  if (!tc_tensor_bytes(type->rank, tensor.dims, type->element, &bytes)) {
    return tc_error_set(error, TC_INVALID, "%.100s: result %d would not fit into any memory", step->name, index);
  }
  tensor.data = target(session, step->writes[index], bytes, error);
  if (!tensor.data) {
    return error->code;
  }
  const int64_t written = step->program ? tc_context_written_bytes(context, index) : 0;
  if (written < bytes) {
    memset((char *)tensor.data + written, 0, (size_t)(bytes - written));
  }
  result->tensor = tensor;
  result->bytes = bytes;
  *pointer = tensor.data;
  return TC_OK;
}

/* Takes a result whose size the run has shown from the context, where it lies until the next run. */
static int32_t take_grown(tc_session *session, const tc_plan_step *step, int32_t index, const tc_context *context,
                          tc_error *error) {
  const tc_type_of *type = &step->outputs[index];
  value *result = &session->values[step->writes[index]];
  tc_grown grown;
  int64_t bytes;
  const int32_t rank = tc_context_grown(context, index, &grown);
  if (rank != type->rank || !tc_tensor_bytes(rank, grown.dims, type->element, &bytes) || bytes != grown.bytes) {
    return tc_error_set(error, TC_FAILED, "%.100s: result %d does not have the size that its dimensions say",
                        step->name, index);
  }
  result->tensor = (tc_tensor){.data = (void *)(uintptr_t)grown.data, .dtype = type->dtype, .rank = rank};
  memcpy(result->tensor.dims, grown.dims, sizeof(result->tensor.dims));
  result->bytes = bytes;
  result->grown = true;
  return TC_OK;
}

static int32_t run_function(tc_session *session, const tc_plan_step *step, void **inputs, void **outputs,
                            tc_error *error) {
  if (step->scratch_bytes > session->scratch_room) {
    tc_free(session->scratch);
    session->scratch = tc_allocate(step->scratch_bytes);
    session->scratch_room = session->scratch ? step->scratch_bytes : 0;
    if (!session->scratch) {
      return tc_error_set(error, TC_NO_MEMORY, "no memory for scratch of %.100s", step->name);
    }
  }
  const int status =
      step->run((const void *const *)inputs, outputs, step->constants, step->scratch_bytes ? session->scratch : NULL);
  return status
             ? tc_error_set(error, TC_FAILED, "the function of region %.100s reports a failure: %d", step->name, status)
             : TC_OK;
}

static int32_t run_step(tc_session *session, int64_t index, double deadline, tc_error *error) {
  const tc_plan_step *step = &session->module->steps[index];
  tc_context *context = session->contexts[index];
  void **inputs = session->pointers, **outputs = session->pointers + step->input_count;
  if (fit(session, step, context, error)) {
    return error->code;
  }
  for (int32_t i = 0; i < step->input_count; i++) {
    inputs[i] = session->values[step->reads[i]].tensor.data;
  }
  for (int32_t i = 0; i < step->output_count; i++) {
    outputs[i] = NULL;
    if (!step->outputs[i].grown && place_result(session, step, i, context, &outputs[i], error)) {
      return error->code;
    }
  }
  if (!step->program) {
    return run_function(session, step, inputs, outputs, error);
  }
  if (deadline > 0) {
    tc_context_end_after(context, tc_seconds_now() < deadline ? deadline - tc_seconds_now() : 1e-9);
  }
  const int32_t status = tc_run(step->program, context, session->module->pool, inputs, outputs, error);
  if (deadline > 0) {
    tc_context_end_after(context, 0);
  }
  if (status) {
    return explain(step, error);
  }
  for (int32_t i = 0; i < step->output_count; i++) {
    if (step->outputs[i].grown && take_grown(session, step, i, context, error)) {
      return error->code;
    }
  }
  return TC_OK;
}

/* Hands the results over: to memory of the caller where they do not lie there already. */
static int32_t give_outputs(tc_session *session, tc_error *error) {
  const tc_module *module = session->module;
  for (int32_t o = 0; o < module->output_count; o++) {
    const tc_port *port = &module->outputs[o];
    const value *result = &session->values[port->slot];
    const given *mine = &session->outputs[o];
    bool fits =
        result->tensor.dtype == port->type.dtype && (port->type.rank < 0 || result->tensor.rank == port->type.rank);
    for (int32_t d = 0; fits && d < port->type.rank; d++) {
      fits = port->type.dims[d].number < 0 || port->type.dims[d].number == result->tensor.dims[d];
    }
    if (!fits) {
      return tc_error_set(error, TC_FAILED, "output \"%.100s\" has another type or shape than the module declares",
                          port->name);
    }
    session->results[o] = result->tensor;
    if (mine->data && mine->data != result->tensor.data) {
      if (mine->bytes < result->bytes) {
        return tc_error_set(error, TC_INVALID, "output \"%.100s\" has %lld bytes, and there is room for %lld",
                            port->name, (long long)result->bytes, (long long)mine->bytes);
      }
      memcpy(mine->data, result->tensor.data, (size_t)result->bytes);
      session->results[o].data = mine->data;
    }
  }
  return TC_OK;
}

int32_t tc_session_run(tc_session *session, tc_error *error) {
  *error = (tc_error){0};
  session->has_run = false;
  const double deadline = session->seconds > 0 ? tc_seconds_now() + session->seconds : 0;
  if (check_results(session, error) || take_inputs(session, error) || check_outputs(session, error)) {
    return error->code;
  }
  for (int64_t s = 0; s < session->module->step_count; s++) {
    if (deadline > 0 && tc_seconds_now() > deadline) {
      return tc_error_set(error, TC_LIMIT, "the time is up before %.100s", session->module->steps[s].name);
    }
    if (run_step(session, s, deadline, error)) {
      return error->code;
    }
  }
  if (give_outputs(session, error)) {
    return error->code;
  }
  session->has_run = true;
  return TC_OK;
}

int32_t tc_session_output(const tc_session *session, int32_t index, tc_tensor *tensor, tc_error *error) {
  *error = (tc_error){0};
  if (index < 0 || index >= session->module->output_count || !session->has_run) {
    return tc_error_set(error, TC_INVALID, "there is no output %d, or no run has ended well", index);
  }
  *tensor = session->results[index];
  return TC_OK;
}
