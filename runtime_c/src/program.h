/* The inside of a program: shared by its builder, its contexts and the executor. */
#ifndef TINYCOMP_PROGRAM_H
#define TINYCOMP_PROGRAM_H

#include "isa.h"
#include "kernel.h"
#include "weights.h"

typedef struct tc_constant {
  const void *data;
  int64_t bytes;
  bool mapped; /* in a file that is mapped for reading only */
} tc_constant;

/* What the program needs of one caller-owned buffer. */
typedef struct tc_requirement {
  int64_t bytes;
  int32_t alignment;
} tc_requirement;

typedef struct tc_step {
  int32_t kernel;
  int32_t operand_count;
  tc_operand *operands; /* with one more behind them: where the count of rows is, or absent */
  int64_t rows;         /* that the parameters are for, if the count may be smaller; or else 0 */
  void *params;
  void *state;
  tc_packed *packed; /* what holds the state if other programs may use it, too */
  int64_t units;
  bool parallel; /* worth waking other threads for */
  tc_work work;
  int64_t first_pointer; /* of this step's operands, in a context's pointer table */
} tc_step;

/* An entry of a context's pointer table that changes with every run. */
typedef struct tc_patch {
  int64_t pointer;
  tc_operand operand;
} tc_patch;

struct tc_program {
  const tc_isa *isa;
  int64_t l2_bytes;
  tc_weights *weights;
  bool finished;
  tc_requirement *inputs;
  tc_requirement *outputs;
  int32_t input_count;
  int32_t output_count;
  tc_constant *constants;
  int64_t constant_count;
  int64_t constant_capacity;
  tc_step *steps;
  int64_t step_count;
  int64_t step_capacity;
  tc_patch *patches;
  int64_t patch_count;
  int64_t pointer_count;
  int64_t arena_bytes;
  int64_t scratch_bytes; /* per thread, the most of any step */
  int64_t state_bytes;
};

/* Frees a step's state, or gives it back to those who share it. */
void tc_step_drop_state(tc_program *program, tc_step *step);

#endif
