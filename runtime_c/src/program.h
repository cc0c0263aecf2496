/* The inside of a program: shared by its builder, its contexts and the executor. */
#ifndef TINYCOMP_PROGRAM_H
#define TINYCOMP_PROGRAM_H

#include "formulas.h"
#include "isa.h"
#include "kernel.h"
#include "weights.h"

typedef struct tc_constant {
  const void *data;
  int64_t bytes;
  bool mapped;   /* in a file that is mapped for reading only */
  int32_t table; /* which table it is, or -1: one whose words are all the same for all sizes */
} tc_constant;

/* What the program needs of one caller-owned buffer. */
typedef struct tc_requirement {
  int64_t bytes;
  int32_t alignment;
} tc_requirement;

typedef struct tc_step {
  int32_t kernel;
  int32_t operand_count;
  tc_operand *operands;
  bool finds; /* a size: what follows is about that */
  int32_t found_operand;
  int64_t symbol, most; /* values: the size, and what it is at most */
  void *params;
  tc_control *control;   /* of a step that runs bodies, whose `kernel` means nothing; or else NULL */
  int64_t control_index; /* which of these it is */
  void *state;
  tc_packed *packed;   /* what holds the state if other programs may use it, too */
  int64_t state_bytes; /* of the state */
  void *common;        /* of an instance: the state at typical sizes, which belongs to the program */
  void *own;           /* of an instance: memory for states at other sizes */
  int64_t room;        /* of that memory */
  bool shareable;      /* whether the state depends on constants and the following figures alone */
  bool depends;        /* on sizes: it has a part in the list of fix-ups */
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

/* A part of a step that follows from sizes. */
enum tc_fixup_kind { TC_FIXUP_PARAMETER, TC_FIXUP_OFFSET, TC_FIXUP_WORD, TC_FIXUP_NONE };

typedef struct tc_fixup {
  enum tc_fixup_kind kind;
  int64_t place; /* byte of the parameters, operand, or word of the table; of NONE nothing: the step only reads it */
  int32_t table;
  int64_t value; /* which */
} tc_fixup;

/* A piece of the arena of a program over sizes. */
typedef struct tc_piece {
  int64_t value;  /* its bytes */
  int64_t *above; /* the pieces that it begins behind, all of them earlier ones in `order` */
  int64_t above_count;
} tc_piece;

/* An output that lies in the arena when a run ends. */
typedef struct tc_left {
  int32_t output;
  tc_operand place;
  int64_t bytes; /* values, as the dimensions are */
  int32_t rank;
  int64_t dims[TC_MAX_RANK];
} tc_left;

/* Bytes of an output of the caller's, or of the arena. */
enum { TC_IN_ARENA = -1 };

typedef struct tc_stretch {
  int32_t buffer;
  int64_t begin, end;
} tc_stretch;

/* Some that do not touch, in order. */
typedef struct tc_stretches {
  tc_stretch *items;
  int64_t count, capacity;
} tc_stretches;

/* A program at given sizes: all that follows from them. A static program has one, a context of another its own. */
typedef struct tc_instance {
  tc_step *steps;
  int64_t step_count; /* and tables, of a context's own: the program may be gone when they are freed */
  int32_t table_count;
  tc_requirement *inputs;
  tc_requirement *outputs;
  int64_t *values; /* symbols and formulas */
  int64_t *starts; /* of the pieces of the arena */
  void **tables;   /* copies of the constants with words that follow from sizes */
  int64_t arena_bytes;
  int64_t scratch_bytes; /* per thread, the most of any step */
  tc_reach *reaches;     /* one per operand of the program */
  tc_stretches holes;    /* what a run clears before it begins, see written.h */
  struct tc_walk *walk;  /* what finding these takes, where runs do it once more */
  bool repeats;          /* whether setup instructions run every time, since others write there, too */
} tc_instance;

struct tc_program {
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
  tc_shelf shelf;        /* of states, while the program is being finished */
  int64_t control_count; /* steps that run bodies */
  int64_t setup_count;   /* first steps that run only where the sizes are new */

  tc_formulas formulas;
  int64_t found_count; /* of the symbols those that steps find out, the last ones */
  int64_t find_count;  /* steps that do so */
  tc_left *left;
  int64_t left_count;
  int64_t left_capacity;
  int64_t *input_values, *output_values; /* which value says how many bytes a buffer has, or -1 */
  tc_piece *pieces;
  int64_t piece_count;
  int64_t piece_capacity;
  int64_t *order;   /* the pieces, every one behind those that it begins behind */
  tc_fixup *fixups; /* in the order of the steps */
  int64_t fixup_count;
  int64_t fixup_capacity;
  tc_fixup *words; /* of the tables */
  int64_t word_count;
  int64_t word_capacity;
  int32_t table_count;
};

/* Whether sizes are known only in a run. */
static inline bool tc_program_is_symbolic(const tc_program *program) { return program->formulas.symbol_count > 0; }

/* What a step is called in messages. */
static inline const char *tc_step_name(const tc_step *step) {
  static const char *const names[] = {"if", "loop"};
  return step->control ? names[step->control->kind] : tc_kernel_infos[step->kernel].name;
}

/* Puts the step in front of a message. */
int32_t tc_step_locate(tc_error *error, int64_t index, const tc_step *step);

/* Makes room for one more item; false if there is no memory. */
bool tc_reserve(void **items, int64_t count, int64_t *capacity, size_t item_size);

/* Whether an operand may stand where the signature has `role`; says why not in `error`. */
int32_t tc_check_operand(const tc_program *program, char role, const tc_operand *operand, tc_error *error);

/* Whether there is such a value. */
bool tc_is_value(const tc_program *program, int64_t value);

/* Lets the last step be looked at again where a value changes. */
int32_t tc_note_value(tc_program *program, int64_t value, tc_error *error);

/* The same where the sizes of its buffers or the words of its tables change. */
int32_t tc_note_dependencies(tc_program *program, const tc_step *step, tc_error *error);

/* What a step's kernel is called with; false where there is no such step, or it runs bodies. */
int32_t tc_step_plan_of(const tc_program *program, const tc_instance *instance, int64_t instruction,
                        tc_step_plan *plan);

/* The i-th stretch that a run clears; false where there are no more. */
int32_t tc_stretch_of(const tc_instance *instance, int64_t i, int32_t *buffer, int64_t *begin, int64_t *end);

/* Frees a step's state, or gives it back to those who share it. */
void tc_step_drop_state(tc_program *program, tc_step *step);

/* Places the pieces of the arena for the instance's values. */
int32_t tc_place_arena(const tc_program *program, tc_instance *instance, tc_error *error);

/* Fills in what the given sizes make of a step. */
void tc_apply_fixups(const tc_program *program, const tc_instance *instance, tc_step *step);

/* Fills in the words of all tables. */
void tc_fill_tables(const tc_program *program, tc_instance *instance);

/* Asks a step's kernel anew at other sizes, and gives it the state for them. */
int32_t tc_refinish_step(const tc_program *program, tc_instance *instance, int64_t step, tc_error *error);

#endif
