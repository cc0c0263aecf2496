/* Arguments of programs that were read: sizes are read off them, and their dimensions held against the program's. */
#include <stdio.h>
#include <string.h>

#include "context.h"

/* Writes dimensions as in "[2, 3]", as far as there is room. */
static const char *text_of(const int64_t *dims, int64_t rank, char *text, size_t room) {
  size_t length = (size_t)snprintf(text, room, "[");
  for (int64_t d = 0; d < rank && length + 24 < room; d++) {
    length += (size_t)snprintf(text + length, room - length, d ? ", %lld" : "%lld", (long long)dims[d]);
  }
  snprintf(text + length, room - length, "]");
  return text;
}

static int32_t misfit(int32_t index, const tc_argument *argument, const int64_t *dims, int64_t rank, tc_error *error) {
  char found[100], expected[100];
  return tc_error_set(error, TC_INVALID, "input %d is %s, not %s", index,
                      text_of(argument->dims, argument->rank, found, sizeof(found)),
                      text_of(dims, rank, expected, sizeof(expected)));
}

/* An element as a size: numbers beyond all sizes are the farthest ones. */
static int64_t element_at(const void *data, int64_t place, int32_t bytes) {
  int64_t wide = 0;
  int32_t narrow = 0;
  if (bytes == sizeof(narrow)) {
    memcpy(&narrow, (const char *)data + place * bytes, sizeof(narrow));
    wide = narrow;
  } else {
    memcpy(&wide, (const char *)data + place * bytes, sizeof(wide));
  }
  return tc_max(-TC_FARTHEST, tc_min(wide, TC_FARTHEST));
}

/* Reads the sizes of a program off its arguments. An element is one of an input whose dimensions are known. */
static int32_t read_symbols(const tc_context *context, const tc_argument *arguments, tc_error *error) {
  const tc_program *program = context->program;
  for (int64_t s = 0; s < program->formulas.symbol_count - program->found_count; s++) {
    const int32_t index = (int32_t)program->about.sources[2 * s];
    const int64_t axis = program->about.sources[2 * s + 1];
    const tc_argument *argument = &arguments[index];
    const tc_type_of *type = &program->about.inputs[index];
    if (axis >= 0) {
      context->symbols[s] = argument->dims[axis];
      continue;
    }
    for (int32_t d = 0; d < type->rank; d++) {
      if (argument->dims[d] != type->dims[d].number) {
        return tc_error_set(error, TC_INVALID, "input %d, whose elements are sizes, has other dimensions", index);
      }
    }
    context->symbols[s] = element_at(argument->data, -1 - axis, type->element);
  }
  return TC_OK;
}

int32_t tc_context_fit(tc_context *context, const tc_argument *arguments, int64_t most, tc_error *error) {
  const tc_program *program = context->program;
  error->code = TC_OK;
  if (!context->dims) {
    return tc_error_set(error, TC_INVALID, "the program was not read: it has no types");
  }
  for (int32_t i = 0; i < program->input_count; i++) {
    if (arguments[i].rank != program->about.inputs[i].rank) {
      return tc_error_set(error, TC_INVALID, "input %d has %lld dimensions, not %d", i, (long long)arguments[i].rank,
                          program->about.inputs[i].rank);
    }
  }
  if (tc_program_is_symbolic(program) &&
      (read_symbols(context, arguments, error) || tc_context_resize(context, context->symbols, most, error))) {
    return error->code;
  }
  if (!context->has_dims && tc_context_note_dims(context, error)) {
    return error->code;
  }
  for (int32_t i = 0; i < program->input_count; i++) {
    const int64_t *dims = context->dims + program->about.inputs[i].first_dim, rank = arguments[i].rank;
    if (rank && memcmp(arguments[i].dims, dims, (size_t)rank * sizeof(*dims))) {
      return misfit(i, &arguments[i], dims, rank, error);
    }
  }
  return TC_OK;
}

const int64_t *tc_context_symbols(const tc_context *context) { return context->symbols; }

int32_t tc_context_result(const tc_context *context, int32_t output, const int64_t **dims) {
  const tc_program *program = context->program;
  if (!context->dims || output < 0 || output >= program->output_count || program->about.outputs[output].grown) {
    return -1;
  }
  *dims = context->dims + program->about.outputs[output].first_dim;
  return program->about.outputs[output].rank;
}
