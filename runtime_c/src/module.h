/* The inside of a module: a saved model as sessions run it. */
#ifndef TINYCOMP_MODULE_H
#define TINYCOMP_MODULE_H

#include "reading.h"
#include "tinycomp_run.h"

typedef struct tc_port {
  const char *name;
  tc_type_of type;
  int32_t slot;
  int32_t start; /* of an input: which of the defaults it is where none is set; -1 for none */
} tc_port;

/* A tensor that the file holds. */
typedef struct tc_fixed {
  int32_t slot;
  tc_tensor tensor;
  int64_t bytes;
} tc_fixed;

typedef struct tc_plan_step {
  const char *name;
  tc_program *program; /* NULL for a region with a function of its own */
  int (*run)(const void *const *, void *const *, const void *const *, void *);
  const void **constants; /* of that function */
  int64_t scratch_bytes;
  int32_t input_count, output_count;
  tc_type_of *inputs, *outputs;
  const int64_t *reads, *writes; /* slots */
} tc_plan_step;

/* A symbol of the module, and the sizes that it may have. */
typedef struct tc_symbol {
  const char *name;
  int64_t least, most;
} tc_symbol;

/* An output that may be the same memory as an input: a cache that a run extends where it lies. */
typedef struct tc_pair {
  int32_t input, output;
} tc_pair;

struct tc_module {
  tc_store store; /* all memory that the description takes */
  void *mapped;   /* the file, if this module has mapped it */
  int64_t mapped_bytes;
  tc_weights *weights;
  tc_pool *pool;
  int32_t threads;
  tc_program **programs;
  int64_t program_count;
  tc_port *inputs, *outputs;
  int32_t input_count, output_count;
  tc_symbol *symbols;
  int64_t symbol_count;
  tc_pair *pairs;
  int64_t pair_count;
  tc_fixed *defaults, *constants;
  int64_t default_count, constant_count;
  tc_plan_step *steps;
  int64_t step_count;
  int32_t slot_count;
};

/* Bytes of a tensor; false if it has too many dimensions, one is negative, or the product is beyond all memory. */
bool tc_tensor_bytes(int32_t rank, const int64_t *dims, int32_t element, int64_t *bytes);

#endif
