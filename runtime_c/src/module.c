/* Loading saved modules without Python: the member "native.bin" of the file holds the records of its programs, and of
 * how these follow each other (records.def). Nothing in it is trusted: every count is held against the bytes that are
 * left, every index against what it names, and the runtime checks the programs as it checks those that come from
 * Python. */
#include "module.h"

#include <stdlib.h>
#include <string.h>

#include "archive.h"
#include "platform.h"

#ifndef TC_FINGERPRINT /* of the interface: the build sets it, and so tells versions apart */
#define TC_FINGERPRINT 0
#endif

int64_t tc_fingerprint(void) { return TC_FINGERPRINT; }

bool tc_tensor_bytes(int32_t rank, const int64_t *dims, int32_t element, int64_t *bytes) {
  return rank >= 0 && rank <= TC_TENSOR_RANK && tc_bytes_of(rank, dims, element, bytes);
}

/* ---- reading ---- */

typedef struct loading {
  tc_module *module;
  tc_reader *reader;
  const tc_module_options *options;
  const unsigned char *data; /* what offsets of arrays count from */
  int64_t data_bytes;
  tc_array *arrays;
  int64_t array_count, array_room;
  tc_array *constants; /* of the unit that follows */
  int64_t constant_count;
  /* How many there is room for; programs, ports and so on are counted by the module. */
  int64_t programs, inputs, outputs, symbols, pairs, defaults, fixed, steps;
  int64_t wanted[3];                   /* inputs, outputs and steps, as the module says */
  int32_t values_read, values_written; /* that the last step, a function, has been told of */
} loading;

static void *kept(loading *l, int64_t count, size_t size) {
  void *memory = tc_record_failed(l->reader) ? NULL : tc_store_take(&l->module->store, count, size);
  if (!memory) {
    tc_record_no_memory(l->reader);
  }
  return memory;
}

static int64_t below(loading *l, int64_t value, int64_t end, const char *what) {
  if (value < 0 || value >= end) {
    tc_record_fail(l->reader, what);
  }
  return tc_record_failed(l->reader) ? 0 : value;
}

static int64_t slot(loading *l, int64_t value) {
  return below(l, value, l->module->slot_count, "there is no such slot");
}

static bool more(loading *l, void *items, int64_t count, int64_t *room, size_t size) {
  void **list = items;
  if (tc_record_failed(l->reader) || !tc_reserve(list, count, room, size)) {
    tc_record_no_memory(l->reader);
    return false;
  }
  memset((char *)*list + (size_t)count * size, 0, size);
  return true;
}

/* The contents of an array of the file that is kept: a copy, as the file may go away. */
static const void *array(loading *l, int64_t index, int64_t *bytes) {
  const int64_t at = below(l, index, l->array_count, "there is no such array");
  *bytes = tc_record_failed(l->reader) ? 0 : l->arrays[at].bytes;
  return *bytes ? tc_store_copy(&l->module->store, l->arrays[at].data, *bytes, 1, l->reader) : "";
}

static void read_array(loading *l, const tc_field *f) {
  const int64_t offset = f[1].number, bytes = f[2].number;
  if (offset < 0 || bytes < 0 || offset > l->data_bytes || bytes > l->data_bytes - offset) {
    tc_record_fail(l->reader, "an array does not lie in the file");
  } else if (more(l, &l->arrays, l->array_count, &l->array_room, sizeof(tc_array))) {
    l->arrays[l->array_count++] = (tc_array){l->data + offset, bytes, l->module->mapped != NULL};
  }
}

static void read_constants(loading *l, const tc_field *f) {
  free(l->constants);
  l->constants = calloc((size_t)f[0].number + 1, sizeof(tc_array));
  l->constant_count = f[0].number;
  if (!l->constants) {
    tc_record_no_memory(l->reader);
  }
  for (int64_t i = 0; i < f[0].number && !tc_record_failed(l->reader); i++) {
    const int64_t at = below(l, f[0].numbers[i], l->array_count, "there is no such array");
    if (tc_record_failed(l->reader)) {
      return;
    }
    tc_array *constant = &l->constants[i];
    *constant = l->arrays[at];
    if ((uintptr_t)constant->data % 8) { /* kernels read whole elements */
      constant->data = tc_store_copy(&l->module->store, constant->data, constant->bytes, 1, l->reader);
      constant->mapped = false;
    }
  }
}

static void read_unit(loading *l, const tc_field *f) {
  tc_module *module = l->module;
  const tc_arrays arrays = {l->constants, l->constant_count, true};
  const tc_making making = {.isa = l->options->isa, .weights = module->weights};
  if (!more(l, &module->programs, module->program_count, &l->programs, sizeof(tc_program *))) {
    return;
  }
  tc_program *program = tc_unit_read(l->reader, f, &arrays, &making);
  if (program) {
    module->programs[module->program_count++] = program;
  }
}

/* ---- the module around them ---- */

static void texts(loading *l) {
  if (!tc_record_failed(l->reader)) {
    tc_error_set(l->reader->error, TC_UNSUPPORTED, "the module works on texts, which need Python");
  }
}

/* A type with dimensions that are numbers. */
static tc_type_of type_of(loading *l, const char *dtype, int64_t rank) {
  tc_type_of type = {.rank = (int32_t)rank};
  type.dtype = tc_dtype_find(dtype, &type.element);
  if (!type.dtype && !strcmp(dtype, "string")) {
    texts(l);
  } else if (!type.dtype) {
    tc_record_fail(l->reader, "a type of elements is not known");
  }
  if (rank < -1 || rank > TC_TENSOR_RANK) {
    tc_record_fail(l->reader, "a value has too many dimensions, or none are known");
  }
  return type;
}

static void read_fixed(loading *l, const tc_field *f, tc_fixed *fixed) {
  const tc_type_of type = type_of(l, f[1].text, f[2].number);
  int64_t wanted = 0;
  fixed->tensor = (tc_tensor){.dtype = type.dtype, .rank = type.rank};
  for (int32_t d = 0; d < type.rank && !tc_record_failed(l->reader); d++) {
    fixed->tensor.dims[d] = f[2].numbers[d];
  }
  fixed->tensor.data = (void *)(uintptr_t)array(l, f[0].number, &fixed->bytes);
  if (!tc_record_failed(l->reader) &&
      (!tc_tensor_bytes(type.rank, fixed->tensor.dims, type.element, &wanted) || wanted != fixed->bytes)) {
    tc_record_fail(l->reader, "a constant does not have the bytes of its type");
  }
}

static void read_port(loading *l, const tc_field *f, tc_port *port) {
  port->name = tc_store_text(&l->module->store, f[0].text, l->reader);
  port->type = type_of(l, f[1].text, f[2].number);
  tc_extent *dims = kept(l, f[3].number, sizeof(tc_extent));
  if (f[3].number != tc_max(f[2].number, 0)) {
    tc_record_fail(l->reader, "another number of dimensions than it has");
  }
  for (int64_t d = 0; d < f[3].number && !tc_record_failed(l->reader); d++) {
    dims[d] = f[3].extents[d];
    if (dims[d].value >= 0) {
      dims[d].number = -2 - below(l, dims[d].value, l->module->symbol_count, "there is no such symbol");
    }
  }
  port->type.dims = dims;
  port->slot = (int32_t)slot(l, f[4].number);
}

static const int64_t *read_slots(loading *l, const tc_field *f) {
  for (int64_t i = 0; i < f->number && !tc_record_failed(l->reader); i++) {
    slot(l, f->numbers[i]);
  }
  return tc_store_copy(&l->module->store, f->numbers, f->number, sizeof(int64_t), l->reader);
}

static void read_step(loading *l, const tc_field *f, tc_plan_step *step) {
  const int64_t unit = f[4].number;
  step->name = tc_store_text(&l->module->store, f[0].text, l->reader);
  step->reads = read_slots(l, &f[5]);
  step->writes = read_slots(l, &f[6]);
  step->input_count = (int32_t)f[5].number;
  step->output_count = (int32_t)f[6].number;
  if (tc_record_failed(l->reader)) {
    return;
  }
  if (unit == -1) {
    l->values_read = l->values_written = 0;
    step->inputs = kept(l, step->input_count, sizeof(tc_type_of));
    step->outputs = kept(l, step->output_count, sizeof(tc_type_of));
    return;
  }
  const int64_t number = below(l, unit, l->module->program_count, "there is no such program");
  if (tc_record_failed(l->reader)) {
    return;
  }
  step->program = l->module->programs[number];
  if (step->program->about.has_texts) {
    texts(l);
  } else if (step->program->input_count != step->input_count || step->program->output_count != step->output_count) {
    tc_record_fail(l->reader, "a step takes or gives something else than its program");
  }
  if (tc_record_failed(l->reader)) {
    return;
  }
  step->inputs = step->program->about.inputs;
  step->outputs = step->program->about.outputs;
  for (int32_t i = 0; i < step->input_count + step->output_count; i++) {
    if ((i < step->input_count ? &step->inputs[i] : &step->outputs[i - step->input_count])->rank > TC_TENSOR_RANK) {
      tc_record_fail(l->reader, "a value has too many dimensions");
    }
  }
}

/* An operand or a result of a function, in their order. */
static void read_value(loading *l, const tc_field *f, tc_plan_step *step) {
  const bool written = f[0].number != 0;
  int32_t *told = written ? &l->values_written : &l->values_read;
  if (!step || step->program || *told == (written ? step->output_count : step->input_count)) {
    tc_record_fail(l->reader, "there is no such value");
    return;
  }
  tc_type_of *type = &(written ? step->outputs : step->inputs)[(*told)++];
  *type = type_of(l, f[1].text, f[2].number);
  tc_extent *dims = kept(l, f[2].number, sizeof(tc_extent));
  for (int64_t d = 0; d < f[2].number && !tc_record_failed(l->reader); d++) {
    dims[d] = (tc_extent){-1, f[2].numbers[d]};
  }
  type->dims = dims;
}

static void read_function(loading *l, const tc_field *f, tc_plan_step *step) {
  if (!step || step->program || step->run || l->values_read != step->input_count ||
      l->values_written != step->output_count || f[0].number < 0 || f[0].number > TC_MAX_BYTES) {
    tc_record_fail(l->reader, "there is no such function, or not all of its values");
    return;
  }
  for (int32_t i = 0; i < l->options->regions; i++) {
    if (!strcmp(l->options->of[i].name, step->name)) {
      step->run = l->options->of[i].run;
    }
  }
  step->scratch_bytes = f[0].number;
  step->constants = kept(l, f[1].number, sizeof(void *));
  for (int64_t i = 0; i < f[1].number && !tc_record_failed(l->reader); i++) {
    int64_t bytes;
    step->constants[i] = array(l, f[1].numbers[i], &bytes);
  }
  if (!tc_record_failed(l->reader) && !step->run) {
    tc_error_set(l->reader->error, TC_INVALID,
                 "the region \"%.100s\" has C source of its own: compile it, and pass its function in "
                 "tc_module_options.regions",
                 step->name);
  }
}

static void read_record(loading *l, int32_t kind, const tc_field *f) {
  tc_module *m = l->module;
  tc_plan_step *last = m->step_count ? &m->steps[m->step_count - 1] : NULL;
  switch (kind) {
    case TC_RECORD_ARRAY:
      read_array(l, f);
      break;
    case TC_RECORD_CONSTANTS:
      read_constants(l, f);
      break;
    case TC_RECORD_UNIT:
      read_unit(l, f);
      break;
    case TC_RECORD_MODULE:
      if (f[0].number > l->reader->end - l->reader->at) { /* each is named somewhere */
        tc_record_fail(l->reader, "a number is out of range");
      }
      m->slot_count = (int32_t)f[0].number;
      for (int i = 0; i < 3; i++) {
        l->wanted[i] = f[1 + i].number;
      }
      break;
    case TC_RECORD_SYMBOL:
      if (more(l, &m->symbols, m->symbol_count, &l->symbols, sizeof(tc_symbol))) {
        m->symbols[m->symbol_count++] =
            (tc_symbol){tc_store_text(&m->store, f[0].text, l->reader), f[1].number, f[2].number};
      }
      break;
    case TC_RECORD_DEFAULT:
      if (more(l, &m->defaults, m->default_count, &l->defaults, sizeof(tc_fixed))) {
        read_fixed(l, f, &m->defaults[m->default_count++]);
      }
      break;
    case TC_RECORD_FIXED:
      if (more(l, &m->constants, m->constant_count, &l->fixed, sizeof(tc_fixed))) {
        m->constants[m->constant_count].slot = (int32_t)slot(l, f[3].number);
        read_fixed(l, f, &m->constants[m->constant_count++]);
      }
      break;
    case TC_RECORD_INPUT:
      if (more(l, &m->inputs, m->input_count, &l->inputs, sizeof(tc_port))) {
        read_port(l, f, &m->inputs[m->input_count]);
        if (f[5].number < -1 || f[5].number >= m->default_count) {
          tc_record_fail(l->reader, "there is no such default");
        }
        m->inputs[m->input_count++].start = (int32_t)f[5].number;
      }
      break;
    case TC_RECORD_OUTPUT:
      if (more(l, &m->outputs, m->output_count, &l->outputs, sizeof(tc_port))) {
        read_port(l, f, &m->outputs[m->output_count]);
        m->outputs[m->output_count++].start = -1;
      }
      break;
    case TC_RECORD_PAIR:
      if (more(l, &m->pairs, m->pair_count, &l->pairs, sizeof(tc_pair))) {
        m->pairs[m->pair_count++] =
            (tc_pair){(int32_t)below(l, f[0].number, m->input_count, "there is no such input"),
                      (int32_t)below(l, f[1].number, m->output_count, "there is no such output")};
      }
      break;
    case TC_RECORD_STEP:
      if (last && !last->program && !last->run) {
        tc_record_fail(l->reader, "a function is missing");
      } else if (more(l, &m->steps, m->step_count, &l->steps, sizeof(tc_plan_step))) {
        read_step(l, f, &m->steps[m->step_count++]);
      }
      break;
    case TC_RECORD_VALUE:
      read_value(l, f, last);
      break;
    case TC_RECORD_FUNCTION:
      read_function(l, f, last);
      break;
    default:
      tc_record_fail(l->reader, "it does not belong into a module");
  }
}

/* All parts are there, and every slot is read after it has been written, and written once. */
static void check_flow(loading *l) {
  const tc_module *module = l->module;
  char *alive = kept(l, module->slot_count, 1);
  if (!alive) {
    return;
  }
  bool sound =
      module->input_count == l->wanted[0] && module->output_count == l->wanted[1] && module->step_count == l->wanted[2];
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
    sound = sound && (step->program || step->run);
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
    l->reader->record = "module";
    tc_record_fail(l->reader, "a part is missing, or a value is read that nothing makes, or made twice");
  }
}

/* Where all arrays lie: in the tensors of the safetensors member, behind its header. */
static void find_arrays(loading *l, const tc_member *tensors) {
  uint64_t header = 0;
  for (int i = 8; tensors->bytes >= 8 && i-- > 0;) {
    header = header << 8 | tensors->data[i];
  }
  if (tensors->bytes < 8 || header > (uint64_t)tensors->bytes - 8) {
    tc_record_fail(l->reader, "its arrays have no beginning");
    return;
  }
  l->data = tensors->data + 8 + header;
  l->data_bytes = tensors->bytes - 8 - (int64_t)header;
}

static void read_module(loading *l) {
  tc_field fields[TC_MOST_FIELDS];
  int32_t kind = tc_record_read(l->reader, fields);
  if (kind != TC_RECORD_FILE) {
    tc_record_fail(l->reader, "it begins with something else");
  } else if (fields[0].number != tc_fingerprint()) {
    tc_error_set(l->reader->error, TC_UNSUPPORTED,
                 "the module was saved by another version of tinycomp than this library is of; save it again");
  }
  while ((kind = tc_record_read(l->reader, fields)) != TC_RECORD_KINDS) {
    read_record(l, kind, fields);
    tc_record_forget(l->reader);
  }
  if (l->module->slot_count == 0 && !tc_record_failed(l->reader)) {
    tc_error_set(l->reader->error, TC_UNSUPPORTED, "the file is no module for C: it has nodes that run on the host");
  }
  check_flow(l);
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
  unsigned char *copy = malloc((size_t)description.bytes + 1); /* nobody may change it after it was checked */
  if (!copy) {
    return tc_error_set(error, TC_NO_MEMORY, "no memory for the description of a module");
  }
  memcpy(copy, description.data, (size_t)description.bytes);
  tc_reader reader = {.at = copy, .end = copy + description.bytes, .record = "file", .error = error};
  loading l = {.module = module, .reader = &reader, .options = options};
  find_arrays(&l, &tensors);
  read_module(&l);
  tc_store_free(&reader.items);
  free(l.arrays);
  free(l.constants);
  free(copy);
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
      return tc_error_set(error, TC_INVALID, "%.200s: there is no regular file that can be read, or it is empty", path);
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
  for (int64_t i = 0; i < module->program_count; i++) {
    tc_program_destroy(module->programs[i]);
  }
  free(module->programs);
  tc_weights_destroy(module->weights);
  tc_pool_destroy(module->pool);
  free(module->inputs);
  free(module->outputs);
  free(module->symbols);
  free(module->pairs);
  free(module->defaults);
  free(module->constants);
  free(module->steps);
  tc_store_free(&module->store);
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
