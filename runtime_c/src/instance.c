/* The memory of instances: of a program at given sizes. */
#include "program.h"

#include <stdlib.h>
#include <string.h>

void tc_walk_free(const tc_walk *walk) {
  for (int64_t i = 0; i < walk->columns_made; i++) {
    free(walk->columns[i].first.items);
  }
  free(walk->columns);
  free(walk->counted);
  free(walk->written.items);
  free(walk->kept.items);
  free(walk->before.items);
}

void tc_holes_free(tc_instance *instance) {
  if (instance->walk) {
    tc_walk_free(instance->walk);
    free(instance->walk);
  }
  free(instance->holes.items);
  free(instance->writers);
  instance->writers = NULL;
  instance->walk = NULL;
  instance->holes = (tc_stretches){0};
}

void tc_instance_free(tc_instance *instance) {
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

static void *copied(const void *from, size_t bytes) {
  void *copy = malloc(bytes + 1);
  if (copy && bytes) {
    memcpy(copy, from, bytes);
  }
  return copy;
}

bool tc_instance_copy(const tc_program *program, tc_instance *instance) {
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
