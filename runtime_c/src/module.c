/* Loading saved modules without Python: the member "native.bin" of the file says what the C runtime is told of every
 * program, in the order of tinycomp.h, and how the programs follow each other. tinycomp/runtime/native/record.py
 * writes it. Nothing in it is trusted: every count is held against the bytes that are left, every index against what
 * it names, and the runtime checks the programs as it checks those that come from Python. */
#include "module.h"

#include <stdlib.h>
#include <string.h>

#include "archive.h"
#include "control.h"
#include "platform.h"

#ifndef TC_FINGERPRINT /* of the interface: the build sets it, and so tells versions apart */
#define TC_FINGERPRINT 0
#endif

int64_t tc_fingerprint(void) { return TC_FINGERPRINT; }

enum call {
  CALL_SYMBOLS,
  CALL_CONSTANT,
  CALL_BUFFER_SIZE,
  CALL_WORD,
  CALL_PIECE,
  CALL_FORMULA,
  CALL_APPEND,
  CALL_PARAMETER,
  CALL_OFFSET,
  CALL_FINDS,
  CALL_CONTROL,
  CALL_LEAVES,
  CALL_SETUP,
  CALL_TYPICAL,
  CALL_FINISH
};

/* ---- types ---- */

static const struct {
  const char *name;
  int32_t element;
} dtypes[] = {
    {"float32", 4},       {"int64", 8},           {"int32", 4},       {"uint8", 1},           {"int8", 1},
    {"bool", 1},          {"float64", 8},         {"float16", 2},     {"bfloat16", 2},        {"int16", 2},
    {"uint16", 2},        {"uint32", 4},          {"uint64", 8},      {"complex64", 8},       {"complex128", 16},
    {"int4", 1},          {"uint4", 1},           {"int2", 1},        {"uint2", 1},           {"float4_e2m1fn", 1},
    {"float8_e4m3fn", 1}, {"float8_e4m3fnuz", 1}, {"float8_e5m2", 1}, {"float8_e5m2fnuz", 1}, {"float8_e8m0fnu", 1},
};

const char *tc_dtype_find(const char *name, int32_t *element) {
  for (size_t i = 0; name && i < sizeof(dtypes) / sizeof(dtypes[0]); i++) {
    if (dtypes[i].name == name || !strcmp(dtypes[i].name, name)) {
      *element = dtypes[i].element;
      return dtypes[i].name;
    }
  }
  return NULL;
}

bool tc_tensor_bytes(int32_t rank, const int64_t *dims, int32_t element, int64_t *bytes) {
  bool empty = false, sound = rank >= 0 && rank <= TC_TENSOR_RANK;
  for (int32_t d = 0; sound && d < rank; d++) {
    sound = dims[d] >= 0 && dims[d] <= TC_MAX_BYTES;
    empty = empty || dims[d] == 0;
  }
  *bytes = element;
  for (int32_t d = 0; sound && !empty && d < rank; d++) {
    sound = !__builtin_mul_overflow(*bytes, dims[d], bytes) && *bytes <= TC_MAX_BYTES;
  }
  *bytes = empty ? 0 : *bytes;
  return sound;
}

/* ---- memory of the description ---- */

struct tc_block {
  tc_block *next;
};

/* Zeroed memory that lives as long as the module; NULL if there is none. */
static void *keep(tc_module *module, int64_t bytes) {
  tc_block *block = tc_allocate(TC_ALIGNMENT + bytes);
  if (!block) {
    return NULL;
  }
  block->next = module->blocks;
  module->blocks = block;
  return (char *)block + TC_ALIGNMENT;
}

/* ---- reading ---- */

/* What is left of the description. After the first failure everything reads as 0, and the error says why. */
typedef struct reader {
  tc_module *module;
  const unsigned char *at, *end;
  const unsigned char *data; /* what offsets of arrays count from */
  int64_t data_bytes;
  int64_t array_count;
  const int64_t *arrays; /* offset and bytes of each */
  const tc_module_options *options;
  tc_error *error;
} reader;

static bool failed(const reader *r) { return r->error->code != TC_OK; }

static void fail(reader *r, const char *what) {
  if (!failed(r)) {
    tc_error_set(r->error, TC_INVALID, "the description in the file is damaged: %s", what);
  }
}

static void *allocate(reader *r, int64_t count, size_t size) {
  void *memory = failed(r) ? NULL : keep(r->module, (count + 1) * (int64_t)size);
  if (!memory && !failed(r)) {
    tc_error_set(r->error, TC_NO_MEMORY, "no memory for the description of a module");
  }
  return memory;
}

static int64_t number(reader *r) {
  if (failed(r) || r->end - r->at < 8) {
    fail(r, "it ends too early");
    return 0;
  }
  uint64_t value = 0;
  for (int i = 8; i-- > 0;) {
    value = value << 8 | r->at[i];
  }
  r->at += 8;
  return (int64_t)value;
}

/* A number from `least` to `most`. */
static int64_t within(reader *r, int64_t least, int64_t most) {
  const int64_t value = number(r);
  if (!failed(r) && (value < least || value > most)) {
    fail(r, "a number is out of range");
  }
  return failed(r) ? (least > 0 ? least : 0) : value;
}

/* How many items follow, each of which takes a number at least. */
static int64_t counted(reader *r) { return within(r, 0, (r->end - r->at) / 8); }

/* Bytes, of which a multiple of 8 is in the file. */
static const void *bytes_of(reader *r, int64_t *bytes) {
  *bytes = within(r, 0, r->end - r->at);
  const int64_t whole = tc_round_up(*bytes, 8);
  if (failed(r) || whole > r->end - r->at) {
    fail(r, "it ends too early");
    *bytes = 0;
    return r->at;
  }
  const void *found = r->at;
  r->at += whole;
  return found;
}

/* A text with its end. */
static const char *text(reader *r) {
  int64_t bytes;
  const char *found = bytes_of(r, &bytes);
  if (failed(r) || memchr(found, 0, (size_t)bytes) != found + bytes - 1) {
    fail(r, "a text has no end");
    return "";
  }
  return found;
}

static int64_t *numbers(reader *r, int64_t count) {
  int64_t *found = count <= (r->end - r->at) / 8 ? allocate(r, count, sizeof(int64_t)) : NULL;
  if (!found) {
    fail(r, "it ends too early");
    return NULL;
  }
  for (int64_t i = 0; i < count; i++) {
    found[i] = number(r);
  }
  return found;
}

static tc_extent extent(reader *r) {
  tc_extent found;
  found.value = within(r, -1, INT32_MAX);
  found.number = within(r, -1, TC_MAX_BYTES);
  return found;
}

static tc_extent *extents(reader *r, int64_t count) {
  tc_extent *found = count <= (r->end - r->at) / 16 ? allocate(r, count, sizeof(tc_extent)) : NULL;
  if (!found) {
    fail(r, "it ends too early");
    return NULL;
  }
  for (int64_t i = 0; i < count; i++) {
    found[i] = extent(r);
  }
  return found;
}

static tc_operand operand(reader *r) {
  tc_operand found;
  found.space = (int32_t)within(r, 0, TC_ARENA);
  found.index = (int32_t)within(r, 0, INT32_MAX);
  found.offset = number(r);
  return found;
}

static tc_operand *operands(reader *r, int64_t count) {
  tc_operand *found = count <= (r->end - r->at) / 24 ? allocate(r, count, sizeof(tc_operand)) : NULL;
  if (!found) {
    fail(r, "it ends too early");
    return NULL;
  }
  for (int64_t i = 0; i < count; i++) {
    found[i] = operand(r);
  }
  return found;
}

/* An array of the file. What is read while the module runs, or does not lie on a multiple of 8 bytes, is copied: a
 * file may be cut off later, and kernels read whole elements. */
static const void *array(reader *r, bool copied, int64_t *bytes) {
  const int64_t index = within(r, 0, r->array_count - 1);
  if (failed(r)) {
    *bytes = 0;
    return NULL;
  }
  const unsigned char *found = r->data + r->arrays[2 * index];
  *bytes = r->arrays[2 * index + 1];
  if (!copied && (uintptr_t)found % 8 == 0) {
    return found;
  }
  void *copy = allocate(r, *bytes, 1);
  return copy ? memcpy(copy, found, (size_t)*bytes) : NULL;
}

/* ---- programs ---- */

static void read_append(reader *r, tc_program *program) {
  const int32_t kernel = (int32_t)within(r, 0, INT32_MAX);
  const int64_t count = counted(r);
  const tc_operand *at = operands(r, count);
  int64_t bytes;
  const void *params = bytes_of(r, &bytes);
  if (!failed(r)) {
    tc_program_append(program, kernel, at, (int32_t)count, params, bytes, r->error);
  }
}

static tc_body *read_bodies(reader *r, const tc_control *control, int64_t known) {
  const int32_t count = tc_control_bodies(control);
  tc_body *bodies = allocate(r, count, sizeof(tc_body));
  for (int32_t b = 0; !failed(r) && b < count; b++) {
    const int64_t index = within(r, 0, known - 1);
    if (failed(r)) {
      break;
    }
    const tc_program *body = r->module->programs[index];
    const int64_t symbols = body->formulas.symbol_count;
    bodies[b].program = body;
    bodies[b].symbols = extents(r, symbols);
    bodies[b].next = numbers(r, symbols);
    bodies[b].outputs = extents(r, body->output_count);
  }
  return bodies;
}

static void read_control(reader *r, tc_program *program, int64_t known) {
  enum { MANY = 1 << 20 };
  tc_control control = {.kind = (int32_t)within(r, TC_CONTROL_IF, TC_CONTROL_LOOP)};
  control.carried = (int32_t)within(r, 0, MANY);
  control.captured = (int32_t)within(r, 0, MANY);
  control.results = (int32_t)within(r, 0, MANY);
  const int32_t count = tc_control_operands(&control);
  control.operands = operands(r, count);
  control.bytes = extents(r, count);
  control.bodies = read_bodies(r, &control, known);
  tc_growth *growths = allocate(r, control.results, sizeof(tc_growth));
  for (int32_t i = 0; !failed(r) && i < control.results; i++) {
    growths[i].rank = (int32_t)within(r, -1, TC_MAX_RANK);
    if (growths[i].rank >= 0) {
      growths[i].dims = extents(r, growths[i].rank);
      growths[i].first = extents(r, growths[i].rank);
    }
  }
  control.growths = growths;
  if (!failed(r)) {
    tc_program_control(program, &control, r->error);
  }
}

static void read_typical(reader *r, tc_program *program) {
  const int64_t count = counted(r);
  const int64_t *sizes = numbers(r, count);
  if (!failed(r) && count != program->formulas.symbol_count) {
    fail(r, "typical sizes of other symbols");
  }
  if (!failed(r)) {
    tc_program_typical(program, sizes, r->error);
  }
}

static void read_leaves(reader *r, tc_program *program) {
  const int32_t output = (int32_t)within(r, 0, INT32_MAX);
  const tc_operand place = operand(r);
  const int64_t bytes = number(r), rank = within(r, 0, TC_MAX_RANK);
  const int64_t *dims = numbers(r, rank);
  if (!failed(r)) {
    tc_program_leaves(program, output, &place, bytes, (int32_t)rank, dims, r->error);
  }
}

/* One call of the interface; false after the last one of a program. */
static bool read_call(reader *r, tc_program *program, int64_t known) {
  const int64_t call = within(r, 0, CALL_FINISH);
  if (failed(r)) {
    return false;
  }
  if (call == CALL_APPEND) {
    read_append(r, program);
  } else if (call == CALL_CONTROL) {
    read_control(r, program, known);
  } else if (call == CALL_TYPICAL) {
    read_typical(r, program);
  } else if (call == CALL_LEAVES) {
    read_leaves(r, program);
  } else if (call == CALL_CONSTANT) {
    int64_t bytes;
    const bool read = within(r, 0, 1);
    const void *data = array(r, read, &bytes);
    const bool mapped = r->module->mapped && !read && (const unsigned char *)data >= r->data &&
                        (const unsigned char *)data < r->data + r->data_bytes;
    if (!failed(r)) {
      tc_program_add_constant(program, data, bytes, mapped, r->error);
    }
  } else if (call == CALL_PIECE) {
    const int64_t value = number(r), count = counted(r);
    const int64_t *above = numbers(r, count);
    if (!failed(r)) {
      tc_program_piece(program, value, above, count, r->error);
    }
  } else {
    static const signed char arguments[] = {
        [CALL_SYMBOLS] = 2, [CALL_BUFFER_SIZE] = 3, [CALL_WORD] = 3,  [CALL_FORMULA] = 4, [CALL_PARAMETER] = 2,
        [CALL_OFFSET] = 2,  [CALL_FINDS] = 3,       [CALL_SETUP] = 1, [CALL_FINISH] = 1,
    };
    int64_t a[4] = {0};
    for (int i = 0; i < arguments[call]; i++) {
      const bool small =
          call == CALL_SYMBOLS || (i < 2 && call == CALL_BUFFER_SIZE) ||
          (i == 0 && (call == CALL_WORD || call == CALL_FORMULA || call == CALL_OFFSET || call == CALL_FINDS));
      a[i] = small ? within(r, 0, INT32_MAX) : number(r);
    }
    if (failed(r)) {
      return false;
    }
    switch (call) {
      case CALL_SYMBOLS:
        tc_program_symbols(program, (int32_t)a[0], (int32_t)a[1], r->error);
        break;
      case CALL_BUFFER_SIZE:
        tc_program_buffer_size(program, (int32_t)a[0], (int32_t)a[1], a[2], r->error);
        break;
      case CALL_WORD:
        tc_program_word(program, (int32_t)a[0], a[1], a[2], r->error);
        break;
      case CALL_FORMULA:
        tc_program_formula(program, (int32_t)a[0], a[1], a[2], a[3], r->error);
        break;
      case CALL_PARAMETER:
        tc_program_parameter(program, a[0], a[1], r->error);
        break;
      case CALL_OFFSET:
        tc_program_offset(program, (int32_t)a[0], a[1], r->error);
        break;
      case CALL_FINDS:
        tc_program_finds(program, (int32_t)a[0], a[1], a[2], r->error);
        break;
      case CALL_SETUP:
        tc_program_setup(program, a[0], r->error);
        break;
      default:
        tc_program_finish(program, r->module->weights, a[0], r->error);
        return false;
    }
  }
  return !failed(r);
}

/* Whether only a run shows the size of an output, which the program then has memory for. */
static bool is_grown(const tc_program *program, int32_t output) {
  bool grown = false;
  for (int64_t i = 0; i < program->left_count; i++) {
    grown = grown || program->left[i].output == output;
  }
  for (int64_t s = 0; s < program->step_count; s++) {
    const tc_control *control = program->own.steps[s].control;
    const tc_operand *results =
        control ? program->own.steps[s].operands + tc_control_operands(control) - control->results : NULL;
    for (int32_t i = 0; control && i < control->results; i++) {
      grown = grown || (control->growths[i].rank >= 0 && results[i].space == TC_OUTPUT && results[i].index == output);
    }
  }
  return grown;
}

/* An output whose size only a run shows has no memory of the caller's: it is made once, and nothing else uses it. */
static void check_grown(reader *r, const tc_program *program) {
  int32_t *made = allocate(r, program->output_count, sizeof(int32_t));
  for (int64_t i = 0; made && i < program->left_count; i++) {
    made[program->left[i].output]++;
  }
  for (int64_t s = 0; made && s < program->step_count && !failed(r); s++) {
    const tc_step *step = &program->own.steps[s];
    const int32_t first = step->control ? step->operand_count - step->control->results : step->operand_count;
    for (int32_t i = 0; i < step->operand_count; i++) {
      const tc_operand *operand = &step->operands[i];
      if (operand->space != TC_OUTPUT || !is_grown(program, operand->index)) {
        continue;
      }
      if (i < first || step->control->growths[i - first].rank < 0) {
        fail(r, "an output is used whose size only the end of a run shows");
      }
      made[operand->index]++;
    }
  }
  for (int32_t o = 0; made && o < program->output_count; o++) {
    if (made[o] > 1) {
      fail(r, "an output is made twice");
    }
  }
}

static void read_programs(reader *r) {
  tc_module *module = r->module;
  const int64_t count = counted(r);
  module->programs = allocate(r, count, sizeof(tc_program *));
  for (int64_t i = 0; i < count && !failed(r); i++) {
    const int32_t inputs = (int32_t)counted(r), outputs = (int32_t)counted(r);
    if (failed(r) || tc_program_create(r->options->isa, inputs, outputs, &module->programs[i], r->error)) {
      return;
    }
    module->program_count = i + 1;
    while (read_call(r, module->programs[i], i)) {
    }
    if (!failed(r)) {
      check_grown(r, module->programs[i]);
    }
  }
}

/* ---- the module around them ---- */

static tc_type_of type_of(reader *r) {
  tc_type_of type = {0};
  type.dtype = tc_dtype_find(text(r), &type.element);
  if (!type.dtype) {
    fail(r, "a type of elements is not known");
  }
  type.rank = (int32_t)within(r, -1, TC_TENSOR_RANK);
  for (int32_t d = 0; d < type.rank && !failed(r); d++) {
    type.dims[d] = extent(r);
  }
  return type;
}

/* The dimensions of a tensor of the module itself: no values, but symbols. */
static void check_symbols(reader *r, tc_type_of *type) {
  for (int32_t d = 0; d < type->rank && !failed(r); d++) {
    tc_extent *dim = &type->dims[d];
    if (dim->value >= r->module->symbol_count) {
      fail(r, "there is no such symbol");
    }
    dim->number = dim->value >= 0 ? -2 - dim->value : dim->number;
  }
}

static void read_fixed(reader *r, tc_fixed *fixed) {
  const tc_type_of type = type_of(r);
  int64_t wanted = 0;
  fixed->tensor = (tc_tensor){.dtype = type.dtype, .rank = type.rank};
  for (int32_t d = 0; d < type.rank; d++) {
    fixed->tensor.dims[d] = type.dims[d].number;
  }
  const void *data = array(r, true, &fixed->bytes);
  fixed->tensor.data = (void *)(uintptr_t)data;
  if (!failed(r) &&
      (!tc_tensor_bytes(type.rank, fixed->tensor.dims, type.element, &wanted) || wanted != fixed->bytes)) {
    fail(r, "a constant does not have the bytes of its type");
  }
}

static int32_t slot(reader *r) { return (int32_t)within(r, 0, r->module->slot_count - 1); }

static tc_port *read_ports(reader *r, int32_t *count) {
  const int64_t found = counted(r);
  tc_port *ports = allocate(r, found, sizeof(tc_port));
  for (int64_t i = 0; i < found && !failed(r); i++) {
    ports[i].name = text(r);
    ports[i].type = type_of(r);
    check_symbols(r, &ports[i].type);
    ports[i].slot = slot(r);
    ports[i].start = (int32_t)within(r, -1, r->module->default_count - 1);
  }
  *count = failed(r) ? 0 : (int32_t)found;
  return ports;
}

static void read_symbols(reader *r) {
  const int64_t count = counted(r);
  r->module->symbols = allocate(r, count, sizeof(tc_symbol));
  for (int64_t i = 0; i < count && !failed(r); i++) {
    r->module->symbols[i].name = text(r);
    r->module->symbols[i].least = number(r);
    r->module->symbols[i].most = number(r);
  }
  r->module->symbol_count = count;
}

static tc_fixed *read_all_fixed(reader *r, int64_t *count, bool with_slots) {
  const int64_t found = counted(r);
  tc_fixed *fixed = allocate(r, found, sizeof(tc_fixed));
  for (int64_t i = 0; i < found && !failed(r); i++) {
    fixed[i].slot = with_slots ? slot(r) : -1;
    read_fixed(r, &fixed[i]);
  }
  *count = failed(r) ? 0 : found;
  return fixed;
}

static void read_function(reader *r, tc_plan_step *step) {
  for (int32_t i = 0; i < r->options->regions; i++) {
    if (!strcmp(r->options->of[i].name, step->name)) {
      step->run = r->options->of[i].run;
    }
  }
  step->scratch_bytes = within(r, 0, TC_MAX_BYTES);
  const int64_t count = counted(r);
  step->constants = allocate(r, count, sizeof(void *));
  for (int64_t i = 0; i < count && !failed(r); i++) {
    int64_t bytes;
    step->constants[i] = array(r, true, &bytes);
  }
  if (!failed(r) && !step->run) {
    tc_error_set(r->error, TC_INVALID,
                 "the region \"%.100s\" has C source of its own: compile it, and pass its function in "
                 "tc_module_options.regions",
                 step->name);
  }
}

static void read_sources(reader *r, tc_plan_step *step) {
  step->source_count = counted(r);
  step->sources = allocate(r, step->source_count, sizeof(tc_source));
  for (int64_t i = 0; i < step->source_count && !failed(r); i++) {
    step->sources[i].input = (int32_t)within(r, 0, step->program->input_count - 1);
    step->sources[i].axis = within(r, -TC_MAX_BYTES, TC_TENSOR_RANK - 1);
  }
  const int64_t shown = step->program->formulas.symbol_count - step->program->found_count;
  if (!failed(r) && step->source_count != shown) {
    fail(r, "a program is told other sizes than it has");
  }
  step->condition_count = counted(r);
  step->conditions = allocate(r, step->condition_count, sizeof(char *));
  for (int64_t i = 0; i < step->condition_count && !failed(r); i++) {
    step->conditions[i] = text(r);
  }
}

/* Operands or results of a step: slots and types. */
static tc_type_of *read_values(reader *r, tc_plan_step *step, int32_t count, int32_t **slots) {
  tc_type_of *types = allocate(r, count, sizeof(tc_type_of));
  *slots = allocate(r, count, sizeof(int32_t));
  for (int32_t i = 0; i < count && !failed(r); i++) {
    (*slots)[i] = slot(r);
    types[i] = type_of(r);
    types[i].grown = within(r, 0, 1);
    for (int32_t d = 0; d < types[i].rank && !failed(r); d++) {
      const int64_t value = types[i].dims[d].value;
      if (value >= 0 && (!step->program || !tc_is_value(step->program, value))) {
        fail(r, "there is no such size");
      }
    }
    if (!failed(r) && types[i].rank < 0) {
      fail(r, "a value has no rank");
    }
  }
  return types;
}

/* A program over sizes is told how large every buffer is that it does not make itself. */
static void check_step(reader *r, const tc_plan_step *step) {
  const tc_program *program = step->program;
  const bool sized = program && tc_program_is_symbolic(program);
  for (int32_t i = 0; i < step->input_count; i++) {
    if (step->inputs[i].grown || (sized && program->input_values[i] < 0)) {
      fail(r, "an operand has no size");
    }
  }
  for (int32_t i = 0; i < step->output_count; i++) {
    const bool grown = program && is_grown(program, i);
    if (step->outputs[i].grown != grown || (sized && !grown && program->output_values[i] < 0)) {
      fail(r, "a result has no size, or has one where only a run shows it");
    }
  }
}

static void read_steps(reader *r) {
  tc_module *module = r->module;
  const int64_t count = counted(r);
  module->steps = allocate(r, count, sizeof(tc_plan_step));
  for (int64_t i = 0; i < count && !failed(r); i++) {
    tc_plan_step *step = &module->steps[i];
    step->name = text(r);
    const int64_t program = within(r, -1, module->program_count - 1);
    step->input_count = (int32_t)counted(r);
    step->output_count = (int32_t)counted(r);
    if (failed(r)) {
      return;
    }
    if (program >= 0) {
      step->program = module->programs[program];
      if (step->program->input_count != step->input_count || step->program->output_count != step->output_count) {
        fail(r, "a step takes or gives something else than its program");
      }
      read_sources(r, step);
    } else {
      read_function(r, step);
    }
    step->inputs = read_values(r, step, step->input_count, &step->reads);
    step->outputs = read_values(r, step, step->output_count, &step->writes);
  }
  for (int64_t i = 0; i < count && !failed(r); i++) {
    check_step(r, &module->steps[i]);
  }
  module->step_count = failed(r) ? 0 : count;
}

static void read_pairs(reader *r) {
  tc_module *module = r->module;
  module->pair_count = counted(r);
  module->pairs = allocate(r, module->pair_count, sizeof(tc_pair));
  for (int64_t i = 0; i < module->pair_count && !failed(r); i++) {
    module->pairs[i].input = (int32_t)within(r, 0, module->input_count - 1);
    module->pairs[i].output = (int32_t)within(r, 0, module->output_count - 1);
  }
}

/* Every slot is read after it has been written, and written once. */
static void check_flow(reader *r) {
  const tc_module *module = r->module;
  char *alive = allocate(r, module->slot_count, 1);
  if (!alive) {
    return;
  }
  bool sound = true;
  for (int64_t i = 0; i < module->constant_count; i++) {
    sound = sound && !alive[module->constants[i].slot];
    alive[module->constants[i].slot] = 1;
  }
  for (int32_t i = 0; i < module->input_count; i++) {
    sound = sound && !alive[module->inputs[i].slot];
    alive[module->inputs[i].slot] = 1;
  }
  for (int64_t s = 0; s < module->step_count; s++) {
    const tc_plan_step *step = &module->steps[s];
    for (int32_t i = 0; i < step->input_count; i++) {
      sound = sound && alive[step->reads[i]];
    }
    for (int32_t i = 0; i < step->output_count; i++) {
      sound = sound && !alive[step->writes[i]];
      alive[step->writes[i]] = 1;
    }
  }
  for (int32_t i = 0; i < module->output_count; i++) {
    sound = sound && alive[module->outputs[i].slot];
  }
  if (!sound) {
    fail(r, "a value is read that nothing makes, or made twice");
  }
}

/* Where all arrays lie: in the tensors of the safetensors member, behind its header. */
static void read_arrays(reader *r, const tc_member *tensors) {
  uint64_t header = 0;
  for (int i = 8; tensors->bytes >= 8 && i-- > 0;) {
    header = header << 8 | tensors->data[i];
  }
  if (tensors->bytes < 8 || header > (uint64_t)tensors->bytes - 8) {
    fail(r, "its arrays have no beginning");
    return;
  }
  r->data = tensors->data + 8 + header;
  r->data_bytes = tensors->bytes - 8 - (int64_t)header;
  const int64_t count = counted(r);
  r->arrays = numbers(r, 2 * count);
  for (int64_t i = 0; i < count && !failed(r); i++) {
    const int64_t offset = r->arrays[2 * i], bytes = r->arrays[2 * i + 1];
    if (offset < 0 || bytes < 0 || bytes > r->data_bytes - offset) {
      fail(r, "an array does not lie in the file");
    }
  }
  r->array_count = count;
}

static void read_module(reader *r, const tc_member *tensors) {
  static const int64_t mark = 0x31504d4f43594e54; /* "TNYCOMP1" */
  tc_module *module = r->module;
  if (number(r) != mark) {
    fail(r, "it begins with something else");
  }
  if (number(r) != tc_fingerprint() && !failed(r)) {
    tc_error_set(r->error, TC_UNSUPPORTED,
                 "the module was saved by another version of tinycomp than this library is of; save it again");
  }
  read_arrays(r, tensors);
  read_programs(r);
  module->slot_count = (int32_t)counted(r); /* each is named somewhere */
  read_symbols(r);
  module->defaults = read_all_fixed(r, &module->default_count, false);
  module->constants = read_all_fixed(r, &module->constant_count, true);
  module->inputs = read_ports(r, &module->input_count);
  module->outputs = read_ports(r, &module->output_count);
  read_pairs(r);
  read_steps(r);
  if (!failed(r)) {
    check_flow(r);
  }
}

/* ---- opening and closing ---- */

static int32_t load(tc_module *module, const void *data, size_t bytes, const tc_module_options *options,
                    tc_error *error) {
  tc_member description, tensors;
  if (tc_archive_find(data, (int64_t)bytes, "native.bin", &description, error) ||
      tc_archive_find(data, (int64_t)bytes, "arrays.safetensors", &tensors, error)) {
    return error->code;
  }
  module->threads = options->threads ? options->threads : tc_processors();
  if (tc_pool_create(module->threads, &module->pool, error) || tc_weights_create(&module->weights, error)) {
    return error->code;
  }
  unsigned char *copy = keep(module, description.bytes); /* texts live as long as the module */
  if (!copy) {
    return tc_error_set(error, TC_NO_MEMORY, "no memory for the description of a module");
  }
  memcpy(copy, description.data, (size_t)description.bytes);
  reader r = {.module = module, .at = copy, .end = copy + description.bytes, .options = options, .error = error};
  read_module(&r, &tensors);
  return error->code;
}

static int32_t create(void *mapped, const void *data, size_t bytes, const tc_module_options *options, tc_module **out,
                      tc_error *error) {
  static const tc_module_options none;
  *error = (tc_error){0};
  tc_module *module = calloc(1, sizeof(*module));
  if (!module) {
    return tc_error_set(error, TC_NO_MEMORY, "no memory for a module");
  }
  module->mapped = mapped;
  module->mapped_bytes = mapped ? (int64_t)bytes : 0;
  if (load(module, data, bytes, options ? options : &none, error)) {
    module->mapped = NULL; /* whoever has mapped it gives it back */
    tc_module_close(module);
    return error->code;
  }
  *out = module;
  return TC_OK;
}

int32_t tc_module_read(const void *data, size_t bytes, const tc_module_options *options, tc_module **module,
                       tc_error *error) {
  *module = NULL;
  return create(NULL, data, bytes, options, module, error);
}

int32_t tc_module_open(const char *path, const tc_module_options *options, tc_module **module, tc_error *error) {
  *module = NULL;
  void *data;
  size_t bytes;
  switch (tc_map_file(path, &data, &bytes)) {
    case TC_MAP_NO_FILE:
      return tc_error_set(error, TC_INVALID, "%.200s: there is no such file, or it is empty", path);
    case TC_MAP_REFUSED:
      return tc_error_set(error, TC_NO_MEMORY, "%.200s: the system does not map the file", path);
    case TC_MAP_DONE:
      break;
  }
  if (create(data, data, bytes, options, module, error)) {
    tc_unmap_file(data, bytes);
  }
  return error->code;
}

void tc_module_close(tc_module *module) {
  if (!module) {
    return;
  }
  for (int64_t i = module->program_count; i-- > 0;) { /* bodies lie before what runs them */
    tc_program_destroy(module->programs[i]);
  }
  tc_weights_destroy(module->weights);
  tc_pool_destroy(module->pool);
  for (tc_block *block = module->blocks; block;) {
    tc_block *next = block->next;
    tc_free(block);
    block = next;
  }
  if (module->mapped) {
    tc_unmap_file(module->mapped, (size_t)module->mapped_bytes);
  }
  free(module);
}

/* ---- what it says of itself ---- */

int32_t tc_module_input_count(const tc_module *module) { return module->input_count; }

int32_t tc_module_output_count(const tc_module *module) { return module->output_count; }

static int32_t describe(const tc_module *module, const tc_port *ports, int32_t count, int32_t index,
                        tc_tensor_spec *spec) {
  if (index < 0 || index >= count) {
    return TC_INVALID;
  }
  const tc_port *port = &ports[index];
  *spec = (tc_tensor_spec){.name = port->name, .dtype = port->type.dtype, .rank = port->type.rank};
  spec->optional = port->start >= 0;
  for (int32_t d = 0; d < port->type.rank; d++) {
    const int64_t number = port->type.dims[d].number;
    spec->dims[d] = number < 0 ? -1 : number;
    spec->symbols[d] = number <= -2 ? module->symbols[-2 - number].name : NULL;
  }
  return TC_OK;
}

int32_t tc_module_input(const tc_module *module, int32_t index, tc_tensor_spec *spec) {
  return describe(module, module->inputs, module->input_count, index, spec);
}

int32_t tc_module_output(const tc_module *module, int32_t index, tc_tensor_spec *spec) {
  return describe(module, module->outputs, module->output_count, index, spec);
}

static int32_t find(const tc_port *ports, int32_t count, const char *name) {
  for (int32_t i = 0; i < count; i++) {
    if (!strcmp(ports[i].name, name)) {
      return i;
    }
  }
  return -1;
}

int32_t tc_module_find_input(const tc_module *module, const char *name) {
  return find(module->inputs, module->input_count, name);
}

int32_t tc_module_find_output(const tc_module *module, const char *name) {
  return find(module->outputs, module->output_count, name);
}
