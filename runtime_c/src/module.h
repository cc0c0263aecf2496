/* The inside of a module: a saved model as sessions run it. */
#ifndef TINYCOMP_MODULE_H
#define TINYCOMP_MODULE_H

#include "program.h"
#include "tinycomp_run.h"

/* Type of a value. A dimension is a number, or a value of the program that it belongs to; of a tensor of the module
 * itself a number, or -2 - s for the symbol s of the module, or -1 for one that has no name. */
typedef struct tc_type_of {
  const char *dtype; /* from the table of names: equal types have equal pointers */
  int32_t element;   /* bytes */
  int32_t rank;      /* -1 if it is not known */
  tc_extent dims[TC_TENSOR_RANK];
  bool grown; /* whether only a run shows them: an output that lies in the program's context */
} tc_type_of;

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

/* Where a symbol of a program is read: the axis of an input, or -1 - i for its element i. */
typedef struct tc_source {
  int32_t input;
  int64_t axis;
} tc_source;

typedef struct tc_plan_step {
  const char *name;
  const tc_program *program; /* NULL for a region with a function of its own */
  int (*run)(const void *const *, void *const *, const void *const *, void *);
  const void **constants; /* of that function */
  int64_t scratch_bytes;
  tc_source *sources;
  int64_t source_count;
  int32_t input_count, output_count;
  tc_type_of *inputs, *outputs;
  int32_t *reads, *writes; /* slots */
  const char **conditions; /* texts of the program's conditions */
  int64_t condition_count;
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

typedef struct tc_block tc_block;

struct tc_module {
  tc_block *blocks; /* all memory that the description takes */
  void *mapped;     /* the file, if this module has mapped it */
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

/* Bytes of elements with these dimensions; false if a size is negative or the product is beyond all memory. */
bool tc_tensor_bytes(int32_t rank, const int64_t *dims, int32_t element, int64_t *bytes);

/* The name of a type in the table of names, and the bytes of an element; NULL if it is not known. */
const char *tc_dtype_find(const char *name, int32_t *element);

#endif
