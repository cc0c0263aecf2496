/* Making a program of its records: each is a call of building.h, which checks what it is told. */
#include "reading.h"

#include <stdlib.h>
#include <string.h>

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

/* ---- a unit while it is read ---- */

typedef struct unit {
  tc_reader *reader;
  const tc_arrays *arrays;
  const tc_making *making;
  tc_array *copies; /* of arrays that go away, where they have been needed */
  tc_program **programs;
  int64_t count;
  tc_control control; /* whose bodies and growths are being read; without operands: none */
  tc_body *bodies;
  tc_growth *growths;
  int32_t body_count, growth_count;
} unit;

static void read_buffer(unit *u, tc_program *program, const tc_field *f) {
  tc_reader *r = u->reader;
  const int64_t space = f[0].number, index = f[1].number;
  const bool written = space == TC_OUTPUT;
  if ((space != TC_INPUT && !written) || index >= (written ? program->output_count : program->input_count)) {
    tc_record_fail(r, "there is no such buffer");
    return;
  }
  tc_type_of *type = &(written ? program->about.outputs : program->about.inputs)[index];
  if (type->dtype) {
    tc_record_fail(r, "a buffer is described twice");
    return;
  }
  type->dtype = tc_dtype_find(f[4].text, &type->element);
  type->rank = (int32_t)tc_min(f[5].number, INT32_MAX);
  type->dims = tc_store_copy(&program->about.store, f[5].extents, f[5].number, sizeof(tc_extent), r);
  for (int64_t d = 0; d < f[5].number && !tc_record_failed(r); d++) {
    if (f[5].extents[d].value >= 0 && !tc_is_value(program, f[5].extents[d].value)) {
      tc_record_fail(r, "there is no such size");
    }
  }
  if (!type->dtype) {
    tc_record_fail(r, "a type of elements is not known");
  }
  if (f[2].number != -1 && !tc_record_failed(r)) {
    tc_program_buffer_size(program, (int32_t)space, (int32_t)index, f[2].number, r->error);
  }
}

static void read_condition(unit *u, tc_program *program, const tc_field *f) {
  tc_about *about = &program->about;
  if (!tc_reserve((void **)&about->conditions, about->condition_count, &about->condition_capacity,
                  sizeof(struct tc_said))) {
    tc_record_no_memory(u->reader);
    return;
  }
  const struct tc_said said = {tc_store_text(&about->store, f[1].text, u->reader),
                               tc_store_text(&about->store, f[2].text, u->reader)};
  if (!tc_record_failed(u->reader)) {
    tc_program_formula(program, TC_FORMULA_CONDITION, f[0].number, about->condition_count, 0, u->reader->error);
    about->conditions[about->condition_count++] = said;
  }
}

/* Takes an instruction with bodies as soon as all of these, and the growths of its results, have been read. */
static void take_control(unit *u, tc_program *program) {
  const tc_control *control = &u->control;
  const bool grows = control->kind == TC_CONTROL_LOOP;
  if (!tc_record_failed(u->reader) && control->operands && u->body_count == tc_control_bodies(control) &&
      u->growth_count == (grows ? control->results : 0)) {
    tc_program_control(program, control, u->reader->error);
    u->control.operands = NULL;
  }
}

static void read_control(unit *u, const tc_field *f) {
  enum { MANY = 1 << 20 };
  tc_reader *r = u->reader;
  for (int i = 0; i < 4; i++) {
    if (f[i].number > (i ? MANY : TC_CONTROL_LOOP)) {
      tc_record_fail(r, "a number is out of range");
      return;
    }
  }
  u->control = (tc_control){(int32_t)f[0].number,
                            (int32_t)f[1].number,
                            (int32_t)f[2].number,
                            (int32_t)f[3].number,
                            f[4].operands,
                            f[5].extents,
                            NULL,
                            NULL};
  const int32_t count = tc_control_operands(&u->control);
  if (f[4].number != count || f[5].number != count) {
    tc_record_fail(r, "another number of operands than it has");
    return;
  }
  u->body_count = u->growth_count = 0;
  u->bodies = tc_store_take(&r->items, 2, sizeof(tc_body));
  u->growths = tc_store_take(&r->items, u->control.results, sizeof(tc_growth));
  if (!u->bodies || !u->growths) {
    tc_record_no_memory(r);
    return;
  }
  u->control.bodies = u->bodies;
  u->control.growths = u->control.kind == TC_CONTROL_LOOP ? u->growths : NULL;
}

static void read_body(unit *u, tc_program *program, const tc_field *f) {
  tc_reader *r = u->reader;
  if (!u->control.operands || u->body_count == tc_control_bodies(&u->control) || f[0].number >= u->count - 1) {
    tc_record_fail(r, "there is no such body, or no control flow that runs it");
    return;
  }
  const tc_program *body = u->programs[f[0].number];
  const int64_t symbols = body->formulas.symbol_count;
  if (f[1].number != symbols || f[2].number != symbols || f[3].number != body->output_count) {
    tc_record_fail(r, "sizes or outputs of another body");
    return;
  }
  u->bodies[u->body_count++] = (tc_body){body, f[1].extents, f[2].numbers, f[3].extents};
  take_control(u, program);
}

static void read_growth(unit *u, tc_program *program, const tc_field *f) {
  const int64_t rank = f[0].number;
  const bool known = u->control.operands && u->control.kind == TC_CONTROL_LOOP && u->body_count == 1;
  if (!known || u->growth_count == u->control.results || rank < -1 || rank > TC_MAX_RANK ||
      f[1].number != tc_max(rank, 0) || f[2].number != tc_max(rank, 0)) {
    tc_record_fail(u->reader, "there is no loop with such a result");
    return;
  }
  u->growths[u->growth_count++] = (tc_growth){(int32_t)rank, f[1].extents, f[2].extents};
  take_control(u, program);
}

/* Copies the arrays that instructions of a program read while it runs, if they go away. Kernels read whole elements,
 * and a file may be cut off later. */
static void keep_constants(unit *u, tc_program *program) {
  tc_reader *r = u->reader;
  for (int64_t s = 0; u->arrays->passing && s < program->step_count; s++) {
    const tc_step *step = &program->own.steps[s];
    for (int32_t i = 0; i < step->operand_count && !tc_record_failed(r); i++) {
      const char role = step->control ? 'i' : tc_kernel_infos[step->kernel].signature[i];
      if (step->operands[i].space != TC_CONSTANT || tc_role(role) == 'p') {
        continue;
      }
      tc_constant *constant = &program->constants[step->operands[i].index];
      tc_array *copy = &u->copies[step->operands[i].index];
      if (!copy->data) {
        /* of the outermost program, which the first one is made for */
        copy->data = tc_store_copy(&u->programs[0]->about.store, constant->data, constant->bytes, 1, r);
      }
      constant->data = copy->data;
      constant->mapped = false;
    }
  }
}

static bool is_empty(const tc_type_of *type) {
  for (int32_t d = 0; d < type->rank; d++) {
    if (type->dims[d].value < 0 && type->dims[d].number == 0) {
      return true;
    }
  }
  return false;
}

/* Every output is written. One whose size only a run shows has no memory of the caller's: it is made once, and nothing
 * else uses it. */
static void check_outputs(unit *u, tc_program *program) {
  tc_type_of *outputs = program->about.outputs;
  int32_t *made = tc_store_take(&u->reader->items, program->output_count, sizeof(int32_t));
  if (!made) {
    tc_record_no_memory(u->reader);
    return;
  }
  for (int64_t i = 0; i < program->left_count; i++) {
    outputs[program->left[i].output].grown = true;
    made[program->left[i].output]++;
  }
  for (int pass = 0; pass < 2; pass++) { /* finds those that grow, and then whatever uses them */
    for (int64_t s = 0; s < program->step_count; s++) {
      const tc_step *step = &program->own.steps[s];
      const int32_t first = step->control ? step->operand_count - step->control->results : step->operand_count;
      for (int32_t i = 0; i < step->operand_count; i++) {
        const tc_operand *operand = &step->operands[i];
        const bool grows = i >= first && step->control->growths[i - first].rank >= 0;
        const bool writes = step->control ? i >= first : tc_role(tc_kernel_infos[step->kernel].signature[i]) == 'o';
        if (operand->space != TC_OUTPUT) {
          continue;
        }
        if (pass == 0) {
          outputs[operand->index].grown = outputs[operand->index].grown || grows;
        } else {
          made[operand->index] += writes;
          if (outputs[operand->index].grown && !grows) {
            tc_record_fail(u->reader, "an output is used whose size only the end of a run shows");
          }
        }
      }
    }
  }
  for (int32_t o = 0; o < program->output_count; o++) {
    if (made[o] > 1 && outputs[o].grown) {
      tc_record_fail(u->reader, "an output is made twice");
    }
    if (made[o] == 0 && !is_empty(&outputs[o])) {
      tc_record_fail(u->reader, "no instruction writes an output");
    }
  }
}

/* Whether all dimensions of a type are numbers, and there is an element of this number. */
static bool has_element(const tc_type_of *type, int64_t place) {
  int64_t bytes, dims[TC_MAX_RANK];
  for (int32_t d = 0; d < type->rank && d < TC_MAX_RANK; d++) {
    dims[d] = type->dims[d].value < 0 ? type->dims[d].number : -1;
  }
  return type->rank <= TC_MAX_RANK && tc_bytes_of(type->rank, dims, type->element, &bytes) &&
         place < bytes / type->element;
}

/* Sizes are read off dimensions, and off elements that are whole numbers. */
static void check_sources(unit *u, const tc_program *program) {
  for (int64_t s = 0; s < program->formulas.symbol_count - program->found_count; s++) {
    const tc_type_of *type = &program->about.inputs[program->about.sources[2 * s]];
    const int64_t axis = program->about.sources[2 * s + 1];
    const bool whole = type->dtype && (!strcmp(type->dtype, "int64") || !strcmp(type->dtype, "int32"));
    if (axis >= 0 ? axis >= type->rank : !whole || !has_element(type, -1 - axis)) {
      tc_record_fail(u->reader, "a size is read off something else than a dimension or a whole number");
    }
  }
}

/* A program over sizes is told how large every buffer is that it does not make itself. */
static void check_buffers(unit *u, const tc_program *program) {
  const bool sized = tc_program_is_symbolic(program);
  for (int32_t i = 0; i < program->input_count; i++) {
    if (!program->about.inputs[i].dtype || (sized && program->input_values[i] < 0)) {
      tc_record_fail(u->reader, "an input has no type or no size");
    }
  }
  check_sources(u, program);
  for (int32_t i = 0; i < program->output_count; i++) {
    const tc_type_of *type = &program->about.outputs[i];
    if (!type->dtype || (sized && (program->output_values[i] < 0) != type->grown)) {
      tc_record_fail(u->reader, "an output has no type or no size, or has one that only a run shows");
    }
  }
}

/* Numbers the dimensions of all inputs and outputs, as contexts hold them. */
static void number_dims(tc_program *program) {
  tc_about *about = &program->about;
  for (int32_t i = 0; i < program->input_count; i++) {
    about->inputs[i].first_dim = about->dim_count;
    about->dim_count += about->inputs[i].rank;
  }
  for (int32_t i = 0; i < program->output_count; i++) {
    about->outputs[i].first_dim = about->dim_count;
    about->dim_count += about->outputs[i].rank;
  }
}

static void read_end(unit *u, tc_program *program, const tc_field *f) {
  tc_reader *r = u->reader;
  if (u->control.operands) {
    tc_record_fail(r, "bodies or growths are missing");
  }
  check_outputs(u, program);
  check_buffers(u, program);
  number_dims(program);
  keep_constants(u, program);
  if (!tc_record_failed(r)) {
    tc_program_finish(program, u->making->weights, f[0].number, r->error);
  }
}

static void read_program(unit *u, const tc_field *f) {
  tc_reader *r = u->reader;
  tc_program *program;
  const int64_t symbols = f[3].number, shown = f[4].number;
  if (f[1].number > 1 << 20 || f[2].number > 1 << 20 || shown > symbols || symbols > TC_MAX_SYMBOLS ||
      f[5].number != 2 * shown) {
    tc_record_fail(r, "a number is out of range");
    return;
  }
  if (tc_program_create(u->making->isa, (int32_t)f[1].number, (int32_t)f[2].number, &program, r->error)) {
    return;
  }
  u->programs[u->count++] = program;
  if (u->making->cache) {
    tc_program_assume_cache(program, u->making->cache);
  }
  tc_about *about = &program->about;
  about->inputs = tc_store_take(&about->store, f[1].number, sizeof(tc_type_of));
  about->outputs = tc_store_take(&about->store, f[2].number, sizeof(tc_type_of));
  about->sources = tc_store_copy(&about->store, f[5].numbers, f[5].number, sizeof(int64_t), r);
  if (!about->inputs || !about->outputs) {
    tc_record_no_memory(r);
  }
  for (int64_t s = 0; s < shown && !tc_record_failed(r); s++) {
    if (about->sources[2 * s] < 0 || about->sources[2 * s] >= program->input_count ||
        about->sources[2 * s + 1] < -TC_MAX_BYTES || about->sources[2 * s + 1] > INT32_MAX) {
      tc_record_fail(r, "a size is read off no input");
    }
  }
  if (!tc_record_failed(r) && symbols) {
    tc_program_symbols(program, (int32_t)shown, (int32_t)(symbols - shown), r->error);
  }
  for (int64_t i = 0; i < u->arrays->count && !tc_record_failed(r); i++) {
    const tc_array *array = &u->arrays->items[i];
    tc_program_add_constant(program, array->data, array->bytes, array->mapped, r->error);
  }
}

/* One record of a program; some are for Python alone. */
static void read_record(unit *u, tc_program *program, int32_t kind, const tc_field *f) {
  tc_error *error = u->reader->error;
  switch (kind) {
    case TC_RECORD_FORMULA:
      if (f[0].number == TC_FORMULA_CONDITION) {
        tc_record_fail(u->reader, "a condition without a text");
        break;
      }
      tc_program_formula(program, (int32_t)f[0].number, f[1].number, f[2].number, f[3].number, error);
      break;
    case TC_RECORD_BUFFER:
      read_buffer(u, program, f);
      break;
    case TC_RECORD_WORD:
      tc_program_word(program, (int32_t)f[0].number, f[1].number, f[2].number, error);
      break;
    case TC_RECORD_PIECE:
      tc_program_piece(program, f[0].number, f[1].numbers, f[1].number, error);
      break;
    case TC_RECORD_CALL:
      tc_program_append(program, (int32_t)f[0].number, f[1].operands, (int32_t)tc_min(f[1].number, INT32_MAX),
                        f[2].data, f[2].number, error);
      break;
    case TC_RECORD_PARAMETER:
      tc_program_parameter(program, f[0].number, f[1].number, error);
      break;
    case TC_RECORD_OFFSET:
      tc_program_offset(program, (int32_t)f[0].number, f[1].number, error);
      break;
    case TC_RECORD_FINDS:
      tc_program_finds(program, (int32_t)f[0].number, f[1].number, f[2].number, error);
      break;
    case TC_RECORD_CONTROL:
      read_control(u, f);
      take_control(u, program);
      break;
    case TC_RECORD_BODY:
      read_body(u, program, f);
      break;
    case TC_RECORD_GROWTH:
      read_growth(u, program, f);
      break;
    case TC_RECORD_LEAVES:
      tc_program_leaves(program, (int32_t)f[0].number, f[1].operands, f[2].number,
                        (int32_t)tc_min(f[3].number, INT32_MAX), f[3].numbers, error);
      break;
    case TC_RECORD_CONDITION:
      read_condition(u, program, f);
      break;
    case TC_RECORD_SETUP:
      tc_program_setup(program, f[0].number, error);
      break;
    case TC_RECORD_TYPICAL:
      if (f[0].number != program->formulas.symbol_count) {
        tc_record_fail(u->reader, "typical sizes of other symbols");
        break;
      }
      tc_program_typical(program, f[0].numbers, error);
      break;
    case TC_RECORD_TEXTS:
      program->about.has_texts = true;
      break;
    case TC_RECORD_NAMED:
    case TC_RECORD_BLOCK:
      break;
    default:
      tc_record_fail(u->reader, "it does not belong into a program");
  }
}

static void read_programs(unit *u, int64_t count) {
  tc_reader *r = u->reader;
  tc_field fields[TC_MOST_FIELDS];
  while (u->count < count && !tc_record_failed(r)) {
    int32_t kind = tc_record_read(r, fields);
    if (kind != TC_RECORD_PROGRAM) {
      tc_record_fail(r, "a program begins otherwise");
      return;
    }
    read_program(u, fields);
    while (!tc_record_failed(r) && kind != TC_RECORD_END) {
      if (!u->control.operands) { /* whose lists are needed until all of it has been read */
        tc_record_forget(r);
      }
      kind = tc_record_read(r, fields);
      if (kind == TC_RECORD_END) {
        read_end(u, u->programs[u->count - 1], fields);
      } else if (kind == TC_RECORD_KINDS) {
        tc_record_fail(r, "it ends too early");
      } else {
        read_record(u, u->programs[u->count - 1], kind, fields);
      }
    }
  }
}

tc_program *tc_unit_read(tc_reader *reader, const tc_field *about, const tc_arrays *arrays, const tc_making *making) {
  unit u = {.reader = reader, .arrays = arrays, .making = making};
  const int64_t count = about[0].number;
  if (count < 1 || count > (reader->end - reader->at) / 8 || about[1].number != arrays->count) {
    tc_record_fail(reader, "another number of programs or constants than there is");
    return NULL;
  }
  u.programs = calloc((size_t)count, sizeof(tc_program *));
  u.copies = calloc((size_t)arrays->count + 1, sizeof(tc_array));
  if (!u.programs || !u.copies) {
    tc_record_no_memory(reader);
  }
  read_programs(&u, u.programs && u.copies ? count : 0);
  free(u.copies);
  if (tc_record_failed(reader)) {
    while (u.count-- > 0) { /* bodies lie before what runs them */
      tc_program_destroy(u.programs[u.count]);
    }
    free(u.programs);
    return NULL;
  }
  tc_program *outermost = u.programs[count - 1];
  outermost->about.bodies = u.programs;
  outermost->about.body_count = count - 1;
  return outermost;
}

int32_t tc_program_read(const void *records, int64_t bytes, const tc_array *constants, int64_t count,
                        const tc_making *making, tc_program **program, tc_error *error) {
  *error = (tc_error){0};
  *program = NULL;
  tc_reader reader = {.at = records, .end = (const unsigned char *)records + bytes, .record = "unit", .error = error};
  const tc_arrays arrays = {constants, count, false};
  tc_field fields[TC_MOST_FIELDS];
  if (tc_record_read(&reader, fields) != TC_RECORD_UNIT) {
    tc_record_fail(&reader, "it begins with something else");
  } else {
    *program = tc_unit_read(&reader, fields, &arrays, making);
  }
  tc_store_free(&reader.items);
  return error->code;
}

const tc_program *tc_program_body(const tc_program *program, int64_t instruction, int32_t body) {
  const tc_control *control =
      instruction >= 0 && instruction < program->step_count ? program->own.steps[instruction].control : NULL;
  return control && body >= 0 && body < tc_control_bodies(control) ? control->bodies[body].program : NULL;
}
