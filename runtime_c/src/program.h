/* The inside of a program: what building it, planning it and running it share. */
#ifndef TINYCOMP_PROGRAM_H
#define TINYCOMP_PROGRAM_H

#include "formulas.h"
#include "isa.h"
#include "kernel.h"
#include "records.h"
#include "weights.h"

typedef struct tc_constant {
  const void *data;
  int64_t bytes;
  bool mapped;   /* in a file that is mapped for reading only */
  int32_t table; /* number of the table, or -1 for a constant without words that depend on sizes */
} tc_constant;

/* What the program needs of a buffer of the caller. */
typedef struct tc_requirement {
  int64_t bytes;
  int32_t alignment;
} tc_requirement;

typedef struct tc_step {
  int32_t kernel;
  int32_t operand_count;
  tc_operand *operands;
  bool late;             /* a part of it follows from what an earlier one determines */
  bool finds;            /* it determines a size, to which the next three fields belong */
  int32_t found_operand; /* receives the size */
  int64_t symbol, most;  /* values: the size, and its upper bound, or -1 */
  void *params;
  tc_control *control;   /* of a step that runs bodies and has no kernel; otherwise NULL */
  int64_t control_index; /* its number among such steps */
  void *state;
  tc_packed *packed;   /* owner of the state if other programs may use it as well */
  int64_t state_bytes; /* of the state */
  void *common;        /* in an instance: the state at typical sizes, which belongs to the program */
  void *own;           /* in an instance: memory for states at other sizes */
  int64_t room;        /* bytes of that memory */
  bool shareable;      /* the state depends only on constants and on `shared` */
  bool depends;        /* it depends on sizes, and has fix-ups */
  int64_t first_fixup, fixup_count;
  int64_t shared[TC_MAX_SHARED];
  int64_t units;
  bool parallel; /* worth waking other threads for */
  int64_t scratch_bytes;
  tc_work work;
  int64_t first_pointer; /* of this step's operands, in a context's pointer table */
} tc_step;

/* An entry of a context's pointer table that changes with every run. */
typedef struct tc_patch {
  int64_t pointer;
  tc_operand operand;
} tc_patch;

/* A part of a step that depends on sizes. */
enum tc_fixup_kind { TC_FIXUP_PARAMETER, TC_FIXUP_OFFSET, TC_FIXUP_WORD, TC_FIXUP_NONE };

typedef struct tc_fixup {
  enum tc_fixup_kind kind;
  int64_t place; /* byte of the parameters, operand, or word of the table; unused for NONE */
  int32_t table;
  int64_t value; /* number of the value */
} tc_fixup;

/* A buffer in the arena of a symbolic program. */
typedef struct tc_piece {
  int64_t value;  /* its bytes */
  int64_t *above; /* the pieces after which it begins, all of them earlier in `order` */
  int64_t above_count;
} tc_piece;

/* An output that is in the arena at the end of a run. */
typedef struct tc_left {
  int32_t output;
  tc_operand place;
  int64_t bytes; /* a value, like the dimensions */
  int32_t rank;
  int64_t dims[TC_MAX_RANK];
} tc_left;

/* A range of bytes in an output or in the arena. */
enum { TC_IN_ARENA = -1 };

typedef struct tc_stretch {
  int32_t buffer;
  int64_t begin, end;
} tc_stretch;

/* Disjoint ranges in order. */
typedef struct tc_stretches {
  tc_stretch *items;
  int64_t count, capacity;
} tc_stretches;

/* A program at given sizes. A static program has one instance; for a symbolic one, every context has its own. */
typedef struct tc_instance {
  tc_step *steps;
  int64_t step_count; /* kept here, like table_count, because a context may outlive the program */
  int32_t table_count;
  tc_requirement *inputs;
  tc_requirement *outputs;
  int64_t *values; /* symbols and formulas */
  int64_t *starts; /* of the pieces of the arena */
  void **tables;   /* copies of the constants with words that depend on sizes */
  int64_t arena_bytes;
  int64_t scratch_bytes;     /* per thread, the most of any step */
  tc_reach *reaches;         /* one per operand of the program */
  tc_stretches holes;        /* ranges that a run clears first, see initialised.h */
  struct tc_writer *writers; /* of what operands and results read, see initialised.c */
  struct tc_walk *walk;      /* state for finding more of them, if runs must do so */
  bool repeats;              /* setup instructions run every time, because others overwrite their results */
} tc_instance;

/* Type of a value. A dimension is a number, or a value of the program that it belongs to; of a tensor of the module
 * itself a number, or -2 - s for the symbol s of the module, or -1 for one that has no name. */
typedef struct tc_type_of {
  const char *dtype; /* from the table of names: equal types have equal pointers; NULL if the program was not read */
  int32_t element;   /* bytes */
  int32_t rank;      /* -1 if it is not known */
  const tc_extent *dims;
  int64_t first_dim; /* of a program: place of its dimensions among those of all inputs and outputs */
  bool grown;        /* whether only a run shows them: an output that lies in the program's context */
} tc_type_of;

/* What a program says of itself beyond what it does: of one that was read. */
typedef struct tc_about {
  tc_store store; /* of what this consists of */
  tc_type_of *inputs, *outputs;
  int64_t dim_count;      /* of all of them */
  const int64_t *sources; /* for each symbol that inputs show, which one, and the axis, or -1 - i for its element i */
  struct tc_said {
    const char *text, *node;
  } *conditions;
  int64_t condition_count, condition_capacity;
  bool has_texts;
  tc_program **bodies; /* all that are below it, which live as long as it does */
  int64_t body_count;
} tc_about;

struct tc_program {
  tc_about about;
  const tc_isa *isa;
  int64_t l2_bytes;
  tc_weights *weights;
  bool finished;
  tc_instance own; /* at typical sizes */
  int32_t input_count;
  int32_t output_count;
  tc_constant *constants;
  int64_t constant_count;
  int64_t constant_capacity;
  int64_t step_count;
  int64_t step_capacity;
  tc_patch *patches;
  int64_t patch_count;
  int64_t pointer_count;
  int64_t state_bytes;
  tc_shelf shelf;        /* memory for states while the program is being finished */
  int64_t control_count; /* steps that run bodies */
  int64_t setup_count;   /* first steps, which run only for new sizes */

  tc_formulas formulas;
  int64_t found_count; /* symbols that steps determine, the last ones of all symbols */
  int64_t find_count;  /* steps that determine one */
  tc_left *left;
  int64_t left_count;
  int64_t left_capacity;
  int64_t *input_values, *output_values; /* number of the value with the bytes of each buffer, or -1 */
  tc_piece *pieces;
  int64_t piece_count;
  int64_t piece_capacity;
  int64_t *order;   /* the pieces, each after those in its `above` */
  tc_fixup *fixups; /* in the order of the steps */
  int64_t fixup_count;
  int64_t fixup_capacity;
  tc_fixup *words; /* of the tables */
  int64_t word_count;
  int64_t word_capacity;
  int32_t table_count;
};

/* Columns that are written in rows: the bytes that they have in the first of them. */
typedef struct tc_columns {
  int64_t rows, stride;
  tc_stretches first;
} tc_columns;

/* Segments that hold values up to the counts that lie elsewhere. */
typedef struct tc_counted_segments {
  tc_stretch segments, counts;
} tc_counted_segments;

/* What is known while going through the steps. */
typedef struct tc_walk {
  const tc_program *program;
  tc_instance *instance;
  tc_stretches written;
  tc_stretches kept; /* what setup instructions write, for runs to come */
  tc_columns *columns;
  int64_t columns_count, columns_capacity, oldest_columns;
  int64_t columns_made; /* those that have had memory for spans since the walk was made */
  tc_counted_segments *counted;
  int64_t counted_count, counted_capacity;
  tc_stretches before; /* holes, while they are found once more */
  bool enough;         /* memory */
} tc_walk;

/* The operand of an earlier step that writes a buffer; step -1 where there is none. */
typedef struct tc_writer {
  int64_t step;
  int32_t operand;
} tc_writer;

/* Whether sizes are known only at run time. */
static inline bool tc_program_is_symbolic(const tc_program *program) { return program->formulas.symbol_count > 0; }

/* The name of a step in messages. */
static inline const char *tc_step_name(const tc_step *step) {
  static const char *const names[] = {"if", "loop"};
  return step->control ? names[step->control->kind] : tc_kernel_infos[step->kernel].name;
}

/* How many bodies an instruction has. */
static inline int32_t tc_control_bodies(const tc_control *control) { return control->kind == TC_CONTROL_IF ? 2 : 1; }

/* Operands before the first carried or captured one. */
static inline int32_t tc_control_leading(const tc_control *control) { return control->kind == TC_CONTROL_IF ? 1 : 2; }

/* The number of its operands. */
static inline int32_t tc_control_operands(const tc_control *control) {
  return tc_control_leading(control) + control->carried + control->captured + control->results;
}

/* Inputs and outputs of every body. */
static inline int32_t tc_body_inputs(const tc_control *control) {
  return control->carried + control->captured + (control->kind == TC_CONTROL_IF ? 0 : 2);
}

static inline int32_t tc_body_outputs(const tc_control *control) {
  return control->results + (control->kind == TC_CONTROL_IF ? 0 : 1);
}

/* Bytes or elements at the sizes of an instance. */
static inline int64_t tc_extent_at(const tc_extent *extent, const int64_t *values) {
  return extent->value < 0 ? extent->number : values[extent->value];
}

/* Frees what a program keeps of an instruction with bodies. */
void tc_control_free(tc_control *control);

/* Makes an instance of a finished program: parts that depend on sizes are copied, all others belong to the program;
 * false without memory. */
bool tc_instance_copy(const tc_program *program, tc_instance *instance);

/* Frees an instance, and does not look at the program, which may have been freed before. */
void tc_instance_free(tc_instance *instance);

/* Frees what is known of the bytes that the steps of an instance write, and what a walk over them holds. */
void tc_holes_free(tc_instance *instance);
void tc_walk_free(const struct tc_walk *walk);

/* Prefixes a message with the step. */
int32_t tc_step_locate(tc_error *error, int64_t index, const tc_step *step);

/* Checks whether an operand fits the signature's `role`; `error` says why not. */
int32_t tc_check_operand(const tc_program *program, char role, const tc_operand *operand, tc_error *error);

/* Whether there is such a value. */
bool tc_is_value(const tc_program *program, int64_t value);

/* Makes the last step depend on a value, so that it is planned again if the value changes. */
int32_t tc_note_value(tc_program *program, int64_t value, tc_error *error);

/* Makes a step depend on the sizes of its buffers and the words of its tables. */
int32_t tc_note_dependencies(tc_program *program, const tc_step *step, tc_error *error);

/* Gets the plan of a step's kernel call; false if there is no such step, or if it runs bodies. */
int32_t tc_step_plan_of(const tc_program *program, const tc_instance *instance, int64_t instruction,
                        tc_step_plan *plan);

/* Gets the i-th range that a run clears; false if there is none. */
int32_t tc_stretch_of(const tc_instance *instance, int64_t i, int32_t *buffer, int64_t *begin, int64_t *end);

/* Frees a step's state, or releases it if it is shared. */
void tc_step_drop_state(tc_program *program, tc_step *step);

/* Places the pieces of the arena for the instance's values. */
int32_t tc_place_arena(const tc_program *program, tc_instance *instance, tc_error *error);

/* Fills in the parts of a step that depend on sizes. */
void tc_apply_fixups(const tc_program *program, const tc_instance *instance, tc_step *step);

/* Fills in the words of all tables. */
void tc_fill_tables(const tc_program *program, tc_instance *instance);

/* Plans a step again for other sizes, and packs its state for them if necessary. */
int32_t tc_refinish_step(const tc_program *program, tc_instance *instance, int64_t step, tc_error *error);

#endif
